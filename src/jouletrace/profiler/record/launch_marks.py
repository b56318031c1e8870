"""Marks of ranges that the native tracer gets, too, so that it knows the range of each launch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar

from jouletrace.profiler.record.ranges import Marks, Opened


class LaunchMarks(Marks):
    """Marks that also push and pop their ranges in the native tracer, by thread.

    A range that another thread ends, or that ends before a later one, is popped once it is its thread's innermost one.

    Args:
        time_ns: As in ``Marks``.
        push, pop: Begin and end the innermost range of the calling thread.
    """

    _pushed: ClassVar = threading.local()
    """Of each thread: marks and range of what is pushed, also by recordings that have ended."""

    def __init__(self, time_ns: Callable[[], int], push: Callable[[str], None], pop: Callable[[], None]) -> None:
        super().__init__(time_ns)
        self._push, self._pop, self._over = push, pop, False

    def begin(self, name: str) -> Opened:
        """See ``Marks``."""
        opened = super().begin(name)
        stack = self._stack()
        if not self._over:
            self._push(name)
            stack.append((self, opened))
        return opened

    def end(self, opened: Opened, sync: bool = False) -> None:
        """See ``Marks``."""
        super().end(opened, sync)
        self._stack()

    def leave(self) -> None:
        """Push no further ranges."""
        self._over = True
        self._stack()

    def _stack(self) -> list[tuple[LaunchMarks, Opened]]:
        """The ranges that this thread has pushed; those that have ended are popped first."""
        stack: list[tuple[LaunchMarks, Opened]] = vars(self._pushed).setdefault("stack", [])
        while stack and not stack[-1][0].holds(stack[-1][1]):
            stack.pop()
            self._pop()
        return stack

    def holds(self, opened: Opened) -> bool:
        """True if a range is still open, in a recording that hasn't ended."""
        return not self._over and opened.id in self._open
