"""One operator of an iteration, run several times in place: what tells short kernels apart. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import Any

import torch

from jouletrace.execution.calls import UNKNOWN, Call
from jouletrace.execution.listing import repeatable
from jouletrace.steps.cuda.capture_failure import generator_kept
from jouletrace.steps.cuda.capture_path import plain_path
from jouletrace.steps.operator_mode import OperatorMode
from jouletrace.steps.operators import op_name


class Repeater(OperatorMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """Runs one operator call several times; what the copies return is dropped.

    Args:
        device: Where the workload runs.
        number: Of the call among those made under this mode, launching or not.
        op: Its operator: another one at this place, as in programs that branch, runs once.
        times: How often.
    """

    def __init__(self, device: torch.device, number: int, op: str, times: int) -> None:
        super().__init__(device)
        self._number, self._op, self._times, self._at = number, op, times, 0

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See ``OperatorMode``."""
        here, self._at = self._at == self._number, self._at + 1
        out = func(*args, **kwargs)
        if here and op_name(func) == self._op and repeatable(func, args, kwargs):
            for _ in range(self._times - 1):
                func(*args, **kwargs)
        return out


def repeated(
    iteration: Callable[[], Any], module: torch.nn.Module | None, device: torch.device, call: Call, times: int
) -> Any:
    """One iteration in which one operator call runs ``times`` times.

    A mode costs the host 10 µs an operator, which leaves a GPU idle and, at a power cap, at a higher clock. So
    the mode is on in the one call of the one module that makes the operator call, where that is known.
    """
    if module is None or call.inner == UNKNOWN:
        with Repeater(device, call.number, call.op, times):
            return iteration()
    turn = int(call.site.rpartition(".")[2])
    with _around(module.get_submodule(call.module), turn, Repeater(device, call.inner, call.op, times)):
        return iteration()


@contextmanager
def _around(module: torch.nn.Module, turn: int, mode: Repeater) -> Iterator[None]:
    """The ``turn``-th call of a module from now on runs under a mode."""
    own, forward = module.__dict__.get("forward"), module.forward
    turns = count(1)

    def under(*args: Any, **kwargs: Any) -> Any:
        with mode if next(turns) == turn else nullcontext():
            return forward(*args, **kwargs)

    module.forward = under  # no hook: some modules take another path where they have hooks
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own


def captured(
    call: Callable[[], Any], device: torch.device, pool: Any, stream: torch.cuda.Stream
) -> torch.cuda.CUDAGraph:
    """A CUDA graph of what ``call`` launches. Nobody reads its outputs; graphs of one pool never run at once."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with (
        generator_kept(device),
        plain_path(),
        torch.cuda.stream(stream),
        torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"),
    ):
        call()
    return graph
