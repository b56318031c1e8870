"""Marks of ranges that the native tracer gets, too, so that it knows the range of each launch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import zip_longest
from typing import ClassVar

from jouletrace.profiler.record.ranges import Marks, Opened


class LaunchMarks(Marks):
    """Marks that also push and pop their ranges in the native tracer, by thread.

    Each mark makes what its thread has pushed the ranges of the running task, which another may have changed since. A
    range that ends before a later one is popped with that.

    Args:
        time_ns: As in ``Marks``.
        push, pop: Begin and end the innermost range of the calling thread.
    """

    _pushed: ClassVar = threading.local()
    """Of each thread: what is pushed, also by recordings that have ended."""

    def __init__(self, time_ns: Callable[[], int], push: Callable[[str], None], pop: Callable[[], None]) -> None:
        super().__init__(time_ns)
        self._push, self._pop, self._over = push, pop, False

    def begin(self, name: str) -> Opened:
        """See ``Marks``."""
        opened = super().begin(name)
        self._align()
        return opened

    def end(self, opened: Opened, sync: bool = False) -> None:
        """See ``Marks``."""
        super().end(opened, sync)
        self._align()

    def leave(self) -> None:
        """Push no further ranges."""
        self._over = True
        self._align()

    def _align(self) -> None:
        """Let this thread have pushed the ranges of the running task."""
        pushed: list[Opened] = vars(self._pushed).setdefault("ranges", [])
        innermost = self.innermost() if not self._over else None
        chain = innermost.chain if innermost is not None else []
        same = next((n for n, (old, new) in enumerate(zip_longest(pushed, chain)) if old is not new), len(chain))
        for _ in pushed[same:]:
            self._pop()
        for opened in chain[same:]:
            self._push(opened.name)
        pushed[same:] = chain[same:]
