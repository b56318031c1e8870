"""Workloads prepared for repeated runs."""

from jouletrace.execution.steps.base import Interval, Step
from jouletrace.execution.steps.graph import CaptureError
from jouletrace.execution.steps.registry import make_step
from jouletrace.execution.steps.trial import check_outputs
from jouletrace.public import public_names

__all__ = ["CaptureError", "Interval", "Step", "check_outputs", "make_step"]

__getattr__ = public_names(
    __name__,
    {
        "base": "Cycles counted_replay",
        "counting": "count_operators count_workload fake_tensors",
        "cuda": "AHEAD CudaStep FlushStep",
        "registry": "compile_built",
        "simulated": "SimulatedStep simulate_workload",
    },
)
