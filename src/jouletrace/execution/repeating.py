"""Repetition of one operator of an iteration in place, which makes short kernels distinguishable. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import count
from typing import Any

import torch

from jouletrace.execution.calls import UNKNOWN, Call
from jouletrace.execution.listing import repeatable
from jouletrace.execution.steps.cuda.graph import generator_kept, plain_path
from jouletrace.execution.steps.operator_mode import OperatorMode
from jouletrace.execution.steps.operators import op_name


class Repeater(OperatorMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """Runs some operator calls several times; the outputs of the copies are dropped.

    Args:
        device: Device of the workload.
        repeats: Operator and number of runs, by the number of a call among those made under this mode, whether they
            launch or not. A different operator at that position, as in programs that branch, runs once.
    """

    _copying = False

    def __init__(self, device: torch.device, repeats: Mapping[int, tuple[str, int]]) -> None:
        super().__init__(device)
        self._repeats, self._at = repeats, 0

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See ``OperatorMode``; copies that an inner mode makes aren't counted."""
        if Repeater._copying:
            return func(*args, **kwargs)
        op, times = self._repeats.get(self._at, ("", 1))
        self._at += 1
        out = func(*args, **kwargs)
        if op and op_name(func) == op and repeatable(func, args, kwargs):
            Repeater._copying = True
            try:
                for _ in range(times - 1):
                    func(*args, **kwargs)
            finally:
                Repeater._copying = False
        return out


def repeated(
    iteration: Callable[[], Any],
    module: torch.nn.Module | None,
    device: torch.device,
    repeats: Sequence[tuple[Call, int]],
) -> Any:
    """One iteration in which some operator calls run several times.

    A mode costs the host 10 µs per operator. A GPU that waits for it is idle and, at a power cap, runs at a higher
    clock. The mode is therefore active only in the module call that makes the operator call, where that is known.
    """
    of: dict[tuple[str, int], dict[int, tuple[str, int]]] = {}
    for call, times in repeats:
        known = module is not None and call.inner != UNKNOWN
        key = (call.module, int(call.site.rpartition(".")[2])) if known else ("", 0)
        of.setdefault(key, {})[call.inner if known else call.number] = (call.op, times)
    with ExitStack() as modes:
        if whole := of.pop(("", 0), None):
            modes.enter_context(Repeater(device, whole))
        for (name, turn), inside in of.items():
            assert module is not None
            modes.enter_context(_around(module.get_submodule(name), turn, Repeater(device, inside)))
        return iteration()


@contextmanager
def _around(module: torch.nn.Module, turn: int, mode: Repeater) -> Iterator[None]:
    """Run the ``turn``-th call of a module from now on under a mode."""
    own, forward = module.__dict__.get("forward"), module.forward
    turns = count(1)

    def under(*args: Any, **kwargs: Any) -> Any:
        with mode if next(turns) == turn else nullcontext():
            return forward(*args, **kwargs)

    module.forward = under  # not a hook: some modules take another path where they have hooks
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
    """A CUDA graph of the work of ``call``. Its outputs are never read; graphs of one pool never run at once."""
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
