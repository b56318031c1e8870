"""The operator calls of an iteration: listed, marked for the tracer, and repeated in place. Imports torch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch

from jouletrace.arrays import Ints
from jouletrace.execution.calls import UNKNOWN, Call
from jouletrace.execution.marks import CallMarks
from jouletrace.execution.steps.counting import work_of
from jouletrace.execution.steps.module_names import ModuleNames, Phase, paths_of, phase_of_step
from jouletrace.execution.steps.operators import OperatorMode, describe, is_idempotent, op_name, tensors_in, written
from jouletrace.tracer.process_trace import Launched

_WRITE_UNSAID = ("batch_norm", "instance_norm")
"""Parts of the names of operators that write running statistics, which their schemas don't state."""


@dataclass(frozen=True)
class Seen:
    """An operator call of the listed iteration; see ``Call``."""

    op: str
    shapes: str
    module: str
    site: str
    phase: str
    backward: bool
    repeatable: bool
    flops: float = 0.0
    bytes_moved: float = 0.0

    def call(self, kernels: tuple[int, ...], seconds: float, number: int, inner: int = UNKNOWN) -> Call:
        """The call with the kernels that it launches."""
        named = self.op, self.shapes, self.module, self.site, self.phase
        return Call(*named, kernels, seconds, self.repeatable, number, inner, self.flops, self.bytes_moved)


class Lister(OperatorMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """Lists operator calls, each of which runs by ``run`` with its number, and their work if ``counted``."""

    def __init__(
        self,
        names: ModuleNames,
        device: torch.device,
        phase: Phase,
        run: Callable[[int, Callable[[], Any]], Any] = lambda _, call: call(),
        *,
        counted: bool = True,
    ) -> None:
        super().__init__(device)
        self.seen: list[Seen] = []
        self._counted = counted
        self._names, self._phase, self._run = names, phase, run

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See ``OperatorMode``."""
        site, backward = self._names.locate()
        shapes, phase = describe(tensors_in((args, kwargs))), self._phase(site, backward)
        out = self._run(len(self.seen), lambda: func(*args, **kwargs))
        again, work = repeatable(func, args, kwargs), work_of(func, args, kwargs, out) if self._counted else (0.0, 0.0)
        self.seen.append(Seen(op_name(func), shapes, site.module, site.call, phase, backward, again, *work))
        return out


def repeatable(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True if two runs of a call leave the same state as one."""
    training = any(value is True for value in (*args, *kwargs.values()))
    if training and any(part in op_name(func) for part in _WRITE_UNSAID):
        return False
    return is_idempotent(func, args, kwargs) or not any(True for _ in written(func, args, kwargs))


@contextmanager
def listing(
    module: torch.nn.Module | None,
    device: torch.device,
    phase: Phase = phase_of_step,
    run: Callable[[int, Callable[[], Any]], Any] = lambda _, call: call(),
    *,
    counted: bool = True,
) -> Iterator[list[Seen]]:
    """List the calls made inside, in order; see ``Lister``."""
    with ModuleNames(module) as names, Lister(names, device, phase, run, counted=counted) as lister:
        yield lister.seen


def calls_of(seen: Sequence[Seen], work: Launched, number: Ints, fused: Sequence[str]) -> list[Call]:
    """Operator calls of an iteration with their kernels, in launch order; kernels without one are separate calls.

    Args:
        seen: The calls, by their numbers.
        work: What they launched.
        number: Number of the call of each launch, ``UNKNOWN`` for none, shape (n,).
        fused: Operators that a compiler's kernel fuses, of each launch; "" for other kernels.
    """
    mine: dict[int, list[int]] = {}
    for at, index in enumerate(number.tolist()):
        mine.setdefault(index if index != UNKNOWN else -2 - at, []).append(at)
    length, inner = (work.end_ns - work.start_ns) / 1e9, _inner(seen)
    calls = []
    for index, rows in mine.items():
        kernels, seconds = tuple(work.name[rows].tolist()), float(length[rows].sum())
        unknown = Call(fused[rows[0]], "", "", "", "", kernels, seconds, repeatable=False)
        calls.append(seen[index].call(kernels, seconds, index, inner[index]) if index >= 0 else unknown)
    return calls


def _inner(seen: Sequence[Seen]) -> list[int]:
    """Position of each operator call among those of its module's call; ``UNKNOWN`` where no forward makes it."""
    first: dict[tuple[str, str], int] = {}
    positions = []
    for at, operator in enumerate(seen):
        module, turn = operator.module.split("."), operator.site.split(".")
        if operator.backward or not operator.site or len(module) != len(turn) or turn[-1] == "0":
            positions.append(UNKNOWN)
            continue
        for depth in range(len(module)):
            first.setdefault((".".join(module[: depth + 1]), turn[depth]), at)
        positions.append(at - first[operator.module, turn[-1]])
    return positions


_repeating = threading.local()
"""Has an attribute in a thread that repeats a call."""


class Repeater(OperatorMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """Marks operator calls, and runs some of them several times; the outputs of the repeats are dropped.

    Args:
        device: Device of the workload.
        marks: Where they are marked.
        calls: Calls and their numbers of runs, by the position of each among the operator calls made under this mode,
            whether they launch or not. A different operator at that position, as in programs that branch, runs once.
    """

    def __init__(self, device: torch.device, marks: CallMarks, calls: Mapping[int, tuple[Call, int]]) -> None:
        super().__init__(device)
        self._marks, self._calls, self._at = marks, calls, 0

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See ``OperatorMode``; calls that a repeat makes aren't counted."""
        if vars(_repeating):
            return func(*args, **kwargs)
        call, times = self._calls.get(self._at, (None, 1))
        self._at += 1
        if call is None or op_name(func) != call.op:
            return func(*args, **kwargs)
        out = self._marks.call(call.number, lambda: func(*args, **kwargs))
        if times > 1 and repeatable(func, args, kwargs):
            _repeating.now = True
            try:
                for _ in range(times - 1):
                    self._marks.call(call.number, lambda: func(*args, **kwargs), again=True)
            finally:
                del _repeating.now
        return out


def repeated(
    iteration: Callable[[], Any],
    module: torch.nn.Module | None,
    device: torch.device,
    marks: CallMarks,
    repeats: Sequence[tuple[Call, int]],
) -> Any:
    """One iteration in which some operator calls run several times, and are marked.

    A mode costs the host 10 µs per operator. A GPU that waits for it is idle and, at a power cap, runs at a higher
    clock. The mode is therefore active only in the module call that makes the operator call, where that is known.
    """
    of: dict[tuple[str, int], dict[int, tuple[Call, int]]] = {}
    for call, times in repeats:
        located = module is not None and call.inner != UNKNOWN
        key = (call.module, int(call.site.rpartition(".")[2])) if located else ("", 0)
        of.setdefault(key, {})[call.inner if located else call.number] = (call, times)
    paths = paths_of(module) if module is not None else {}
    with ExitStack() as modes:
        if whole := of.pop(("", 0), None):
            modes.enter_context(Repeater(device, marks, whole))
        for (name, turn), inside in of.items():
            modes.enter_context(_around(paths[name], turn, Repeater(device, marks, inside)))
        return iteration()


@contextmanager
def _around(module: torch.nn.Module, turn: int, mode: Repeater) -> Iterator[None]:
    """Run the ``turn``-th call of a module from now on under a mode."""
    before, forward = module.__dict__.get("forward"), module.forward
    turns = count(1)

    def under(*args: Any, **kwargs: Any) -> Any:
        with mode if next(turns) == turn else nullcontext():
            return forward(*args, **kwargs)

    module.forward = under  # not a hook: some modules take another path where they have hooks
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before
