"""A workload made ready to run again and again: the seam of every experiment."""

from jouletrace.steps.base import Interval, Step, VariableStep, Variant, VariantRefusedError
from jouletrace.steps.blocks import block_means
from jouletrace.steps.cuda.capture_failure import CaptureError
from jouletrace.steps.outputs import check_outputs
from jouletrace.steps.registry import make_step
from jouletrace.steps.units import Unit
from jouletrace.steps.variable import make_variable_step

__all__ = [
    "CaptureError",
    "Interval",
    "Step",
    "Unit",
    "VariableStep",
    "Variant",
    "VariantRefusedError",
    "block_means",
    "check_outputs",
    "make_step",
    "make_variable_step",
]
