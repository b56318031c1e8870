"""A workload made ready to run again and again."""

from jouletrace.steps.base import Interval, Step
from jouletrace.steps.blocks import block_means
from jouletrace.steps.cuda.capture_failure import CaptureError
from jouletrace.steps.outputs import check_outputs
from jouletrace.steps.registry import make_step

__all__ = ["CaptureError", "Interval", "Step", "block_means", "check_outputs", "make_step"]
