"""Makes a step of a built workload and a mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jouletrace.errors import BadInputError
from jouletrace.execution.steps.base import Step
from jouletrace.execution.steps.compiled import compile_built
from jouletrace.execution.steps.cpu import CpuStep
from jouletrace.execution.steps.cuda.step import check_tf32
from jouletrace.execution.steps.modes import check_options
from jouletrace.execution.steps.trial import trial
from jouletrace.workloads.base import Built
from jouletrace.workloads.environment import require_device

if TYPE_CHECKING:
    import torch


def make_step(built: Built, torch_device: str, mode: str) -> Step:
    """Prepare a built workload for repeated runs; runs it once, or captures it.

    Args:
        built: The workload, built on ``torch_device``.
        torch_device: "cuda:N" or "cpu".
        mode: "eager" (the step on the CPU reports "cpu"), "graph" (CUDA only) or "compile".

    Raises:
        BadInputError: If mode and device don't fit together, or the workload raises when it runs.
        CaptureError: If it can't be captured as a CUDA graph (a BadInputError).
        NotPossibleError: If the device is missing, has no memory left, or doesn't support the mode.
    """
    device = check_mode(built, torch_device, mode)
    return _on_cuda(built, device, mode) if device.type == "cuda" else _on_cpu(built, mode)


def check_mode(built: Built, torch_device: str, mode: str) -> torch.device:
    """The device, if it can run a workload in this way.

    Raises:
        BadInputError: If mode, device, and dtype don't fit together.
        NotPossibleError: If the device is missing.
    """
    check_options("any", mode)
    device = require_device(torch_device)
    if device.type == "cuda":
        check_tf32(built, device)
        return device
    if device.type != "cpu":
        raise BadInputError(f"{torch_device}: steps run on cuda:N and cpu")
    check_options("cpu", mode, built.facts.get("dtype"))
    return device


def _on_cpu(built: Built, mode: str) -> Step:
    trial(built)
    if mode == "compile":
        return CpuStep(compile_built(built), "compile")
    return CpuStep(built)


def _on_cuda(built: Built, device: torch.device, mode: str) -> Step:
    from jouletrace.execution.steps.cuda.eager import CudaEagerStep
    from jouletrace.execution.steps.cuda.graph import CudaGraphStep

    trial(built, device)
    if mode == "graph":
        return CudaGraphStep(built, device)
    if mode == "compile":
        return CudaEagerStep(compile_built(built, device), device, "compile")
    return CudaEagerStep(built, device)
