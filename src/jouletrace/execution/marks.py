"""Marks in the tracer, by which it knows the iteration and the operator call of each kernel."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

from jouletrace.arrays import Ints, Mask
from jouletrace.execution.calls import UNKNOWN
from jouletrace.tracer.in_process import InProcess
from jouletrace.tracer.process_trace import Launched

_COPY = " again"
"""Ends the mark of a call's repetition."""

_ITERATION, _TURNS = "jouletrace iteration ", 4096
"""Begins the range of an iteration, and after how many their numbers repeat."""


class CallMarks:
    """Marks of iterations, and of operator calls by their numbers."""

    def __init__(self, tracer: InProcess) -> None:
        self._tracer, self._iterations = tracer, count()

    def iteration(self, run: Callable[[], Any]) -> None:
        """Run one iteration."""
        self._tracer.push(f"{_ITERATION}{next(self._iterations) % _TURNS}")
        try:
            run()
        finally:
            self._tracer.pop()

    def call(self, number: int, run: Callable[[], Any], again: bool = False) -> Any:
        """Run an operator call; whether it is a repetition is part of the mark."""
        depth = self._tracer.enter_call(f"{number}{_COPY if again else ''}")
        try:
            return run()
        finally:
            self._tracer.leave_call(depth)


def marked(work: Launched) -> tuple[Ints, Mask, Ints]:
    """Numbers of the calls of launches (``UNKNOWN`` for none), whether they are copies, and numbers of iterations.

    Each has the shape (n,). The number of an iteration is ``UNKNOWN`` for launches before the first.
    """
    texts = [op for op, _ in work.labels]  # those of a compiler's kernels are names of operators
    numbers = [int(text.removesuffix(_COPY)) if text[:1].isdecimal() else UNKNOWN for text in texts]
    copies = [text.endswith(_COPY) for text in texts]
    begun = [path[0] if path and path[0].startswith(_ITERATION) else "" for path in work.paths]
    turns = np.array([int(name.removeprefix(_ITERATION)) if name else UNKNOWN for name in begun])[work.path]
    launched_in_turn = np.flatnonzero(turns != UNKNOWN)
    iteration = np.full(len(turns), UNKNOWN)
    if len(
        launched_in_turn
    ):  # launches of other threads, which may have no range, belong to the iteration that goes on
        steps = np.diff(turns[launched_in_turn], prepend=turns[launched_in_turn[0]]) % _TURNS
        at = np.searchsorted(launched_in_turn, np.arange(len(turns)), side="right") - 1
        iteration = np.where(at < 0, UNKNOWN, np.cumsum(steps)[at])
    return np.array(numbers)[work.label], np.array(copies)[work.label], iteration
