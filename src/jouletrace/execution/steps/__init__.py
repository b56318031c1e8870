"""Workloads prepared for repeated runs."""

from jouletrace.execution.steps.base import Interval, Step
from jouletrace.execution.steps.blocks import block_means
from jouletrace.execution.steps.cuda.capture_failure import CaptureError
from jouletrace.execution.steps.outputs import check_outputs
from jouletrace.execution.steps.registry import make_step

__all__ = ["CaptureError", "Interval", "Step", "block_means", "check_outputs", "make_step"]
