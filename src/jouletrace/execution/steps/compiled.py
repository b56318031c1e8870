"""A workload compiled by torch, which then runs like an eager one."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jouletrace.errors import JouletraceError, NotPossibleError
from jouletrace.execution.steps.trial import name_of
from jouletrace.workloads.base import Built
from jouletrace.workloads.iteration import Iteration
from jouletrace.workloads.memory import memory_guard
from jouletrace.workloads.user_errors import one_line

if TYPE_CHECKING:
    import torch


def compile_built(built: Built, device: torch.device | None = None, backend: str = "inductor") -> Built:
    """The same workload, compiled by running each input set once; ``facts["compile"]`` describes how.

    Only the target is compiled: settings such as autocast are applied outside of it.

    Args:
        built: A workload that has run once uncompiled.
        device: The CUDA device to wait for; None on the CPU.
        backend: As for ``torch.compile``.

    Raises:
        NotPossibleError: If it can't be compiled, with the compiler's reason, or memory runs out.
    """
    import torch

    call: Any = built.call
    if isinstance(call, Iteration):
        call = replace(call, target=torch.compile(call.target, backend=backend, dynamic=False))
    else:
        call = torch.compile(call, backend=backend, dynamic=False)
    before = _graph_breaks()
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
    facts = {"backend": backend, "seconds": time.perf_counter() - start, "graph_breaks": _graph_breaks() - before}
    return replace(built, call=call, facts={**built.facts, "compile": facts})


def _graph_breaks() -> int:
    """Number of times that torch split a function while compiling, in this process so far."""
    from torch._dynamo.utils import counters

    return sum(counters["graph_break"].values())
