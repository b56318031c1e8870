"""Makes steps of a built workload and a mode, and those on the CPU."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from jouletrace.arrays import Floats
from jouletrace.errors import BadInputError, BrokenOffError, JouletraceError, NotPossibleError
from jouletrace.execution.steps.base import Interval, Step
from jouletrace.execution.steps.cuda import ColdStep, CudaEagerStep, CudaStep
from jouletrace.execution.steps.graph import CudaGraphStep
from jouletrace.execution.steps.trial import name_of, trial, user_code
from jouletrace.workloads.base import Built, Iteration
from jouletrace.workloads.environment import require_device
from jouletrace.workloads.user_code import memory_guard, one_line

if TYPE_CHECKING:
    import torch


def make_step(built: Built, torch_device: str, mode: str, *, l2: str = "warm") -> Step:
    """Prepare a built workload for repeated runs; runs it once, or captures it.

    Args:
        built: The workload, built on ``torch_device``.
        torch_device: "cuda:N" or "cpu".
        mode: "eager" (the step on the CPU reports "cpu"), "graph" (CUDA only) or "compile".
        l2: "warm", or "cold" (CUDA only): the L2 cache is flushed before each iteration, and the step is
            a ``cuda.ColdStep``.

    Raises:
        BadInputError: If mode, device, dtype and cache don't fit together, or the workload raises when it runs.
        CaptureError: If it can't be captured as a CUDA graph (a BadInputError).
        NotPossibleError: If the device is missing, has no memory left, or doesn't support the mode.
    """
    check_options("any", mode, l2=l2)
    device = require_device(torch_device)
    if device.type == "cuda":
        check_tf32(built, device)
        return _on_cuda(built, device, mode, l2)
    if device.type != "cpu":
        raise BadInputError(f"{torch_device}: steps run on cuda:N and cpu")
    check_options("cpu", mode, built.facts.get("dtype"), l2)
    trial(built)
    return CpuStep(compile_built(built), "compile") if mode == "compile" else CpuStep(built)


def _on_cuda(built: Built, device: torch.device, mode: str, l2: str) -> Step:
    trial(built, device)
    step: CudaStep
    if mode == "graph":
        step = CudaGraphStep(built, device)
    elif mode == "compile":
        step = CudaEagerStep(compile_built(built, device), device, "compile")
    else:
        step = CudaEagerStep(built, device)
    return ColdStep(step) if l2 == "cold" else step


def check_tf32(built: Built, device: torch.device) -> None:
    """Refuse TF32 where the GPU would silently compute in IEEE single precision.

    Raises:
        NotPossibleError: If the GPU is older than Ampere.
    """
    import torch

    if built.facts.get("dtype") == "tf32" and torch.cuda.get_device_capability(device) < (8, 0):
        raise NotPossibleError(
            f"--dtype tf32: {torch.cuda.get_device_name(device)} has no TF32, which needs Ampere or later"
        )


MODES = ("eager", "graph", "compile")
L2 = ("warm", "cold")

_REFUSED: dict[str, dict[tuple[str, str], str]] = {
    "simulated": {
        ("mode", "compile"): "a simulated GPU runs eager or graph",
        ("l2", "cold"): "a simulated GPU has no cache to flush",
    },
    "cpu": {
        ("mode", "graph"): "CUDA graphs need a GPU; on the CPU use eager or compile",
        ("l2", "cold"): "only a GPU's L2 cache can be flushed",
        ("dtype", "tf32"): "a number format of NVIDIA GPUs; on the CPU use fp32 or bf16",
    },
}
"""Options that a kind of device doesn't support, and why."""


def check_options(kind: str, mode: str, dtype: str | None = None, l2: str = "warm", where: str = "") -> None:
    """Refuse a mode, dtype or cache that is unknown, or that a kind of device doesn't support.

    ``kind`` is "simulated", "cpu", or any other, which supports all; ``where`` is the requested device, for the
    message. Those of ``workloads.environment`` are assumed to be valid dtypes.

    Raises:
        BadInputError: With the option.
    """
    for name, value, allowed in (("mode", mode, MODES), ("l2", l2, L2)):
        if value not in allowed:
            raise BadInputError(f"--{name} {value}: must be one of {', '.join(allowed)}")
    for (name, value), why in _REFUSED.get(kind, {}).items():
        if {"mode": mode, "dtype": dtype, "l2": l2}[name] == value:
            raise BadInputError(f"--{name} {value}{f' on {where}' if where else ''}: {why}")


def compile_built(built: Built, device: torch.device | None = None, backend: str = "inductor") -> Built:
    """The same workload, compiled by running each input set once; ``facts["compile"]`` describes how.

    Only the target is compiled: settings such as autocast are applied outside of it. The workload has run once
    uncompiled. On CUDA it waits for ``device``.

    Raises:
        NotPossibleError: If it can't be compiled, with the compiler's reason, or memory runs out.
    """
    import torch
    from torch._dynamo.utils import counters

    call: Any = built.call
    if isinstance(call, Iteration):
        call = replace(call, target=torch.compile(call.target, backend=backend, dynamic=False))
    else:
        call = torch.compile(call, backend=backend, dynamic=False)
    before = sum(counters["graph_break"].values())
    start = time.perf_counter()
    try:
        with memory_guard(f"compiling {name_of(built)}"):
            for i in range(len(built.inputs)):
                call(i)
            if device is not None:
                torch.cuda.synchronize(device)
    except JouletraceError:
        raise
    # Any failure here comes from compiling, since the workload ran uncompiled.
    except Exception as error:
        raise NotPossibleError(f"{name_of(built)} can't be compiled: {one_line(error)}; use --mode eager") from error
    breaks = sum(counters["graph_break"].values()) - before  # times that torch split a function
    facts = {"backend": backend, "seconds": time.perf_counter() - start, "graph_breaks": breaks}
    return replace(built, call=call, facts={**built.facts, "compile": facts})


class CpuStep:
    """A workload called on the CPU.

    Attributes:
        mode: "cpu", or "compile" for a compiled workload.
    """

    def __init__(self, built: Built, mode: str = "cpu") -> None:
        self.mode = mode
        self._built = built
        self._next = 0

    def replay(self, n: int) -> Interval:
        """See ``Step.replay``."""
        call, first = self._built.call, self._advance(n)
        with user_code(self._built, failure=BrokenOffError):
            start = time.time_ns()
            for i in range(first, first + n):
                call(i)
            return Interval(start, time.time_ns())

    def latencies(self, n: int) -> Floats:
        """Seconds of each call by the monotonic clock, shape (n,); consecutive calls without time in between."""
        call, first = self._built.call, self._advance(n)
        stamps = np.empty(n + 1, dtype=np.int64)
        with user_code(self._built, failure=BrokenOffError):
            stamps[0] = time.perf_counter_ns()
            for i in range(n):
                call(first + i)
                stamps[i + 1] = time.perf_counter_ns()
        return np.diff(stamps) / 1e9

    def describe(self) -> dict[str, Any]:
        """Mode and threads."""
        import torch

        return {
            "mode": self.mode,
            "l2": "warm",
            "threads": torch.get_num_threads(),
            "latency": "wall time of each call",
            **self._built.facts.get("compile", {}),
        }

    def close(self) -> None:
        """Does nothing: the step owns no resources."""

    def _advance(self, n: int) -> int:
        """Number of the next iteration; input sets also rotate across calls."""
        first = self._next
        self._next += n
        return first
