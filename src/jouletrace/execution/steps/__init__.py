"""Workloads prepared for repeated runs."""

from jouletrace.execution.steps.base import Interval, Step
from jouletrace.execution.steps.graph import CaptureError
from jouletrace.execution.steps.registry import make_step
from jouletrace.execution.steps.trial import check_outputs

__all__ = ["CaptureError", "Interval", "Step", "check_outputs", "make_step"]
