"""From a built workload and a mode to a step whose units can be removed and repeated."""

from __future__ import annotations

from jouletrace.steps.base import REFUSALS, VariableStep, VariantRefusedError
from jouletrace.steps.compiled import compile_built
from jouletrace.steps.cpu import CpuStep
from jouletrace.steps.cuda.capture_failure import CaptureError
from jouletrace.steps.cuda.eager import CudaEagerStep
from jouletrace.steps.cuda.graph_variants import VariableGraphStep
from jouletrace.steps.eager_variants import VariableEagerStep
from jouletrace.steps.registry import check_mode
from jouletrace.steps.trial import name_of, trial
from jouletrace.workloads.base import Built


def make_variable_step(built: Built, torch_device: str, mode: str) -> VariableStep:
    """Make a built workload ready for experiments on its parts; runs it some times.

    A workload that can't be captured is run eagerly instead, and ``describe()["fallback"]`` says
    why: {"reason": "not_capturable", "text": with the operator and the place}.

    Args:
        built: The workload, built on ``torch_device``.
        torch_device: "cuda:N" or "cpu".
        mode: "graph" (CUDA only), "eager" (on the CPU its step says "cpu"), or "compile" (CUDA only): the graph of
            the compiled workload, whose units can only be repeated.

    Raises:
        BadInputError: If mode and device don't go together, or the workload raises when it runs.
        CaptureError: If a compiled workload can't be captured (a BadInputError).
        VariantRefusedError: For mode "compile" on the CPU, with reason "compiled".
        NotPossibleError: If the device isn't there, has no memory left, or operators can't be followed.
    """
    device = check_mode(built, torch_device, mode, "warm")
    if device.type == "cpu":
        if mode == "compile":
            raise VariantRefusedError("compiled", f"--mode compile: {REFUSALS['compiled']}; use --mode eager")
        trial(built)
        return VariableEagerStep(built, device, CpuStep)
    trial(built, device)
    if mode == "compile":
        from jouletrace.steps.cuda.compiled_step import make_compiled_step

        return make_compiled_step(compile_built(built, device), device)
    fallback = None
    if mode == "graph":
        try:
            return VariableGraphStep(built, device)
        except CaptureError as error:
            fallback = {"reason": "not_capturable", "text": str(error).removeprefix(f"{name_of(built)} ")}
    return VariableEagerStep(built, device, lambda one: CudaEagerStep(one, device), fallback=fallback)
