"""Ranges of threads that also mark the launches within them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from jouletrace.profiler.record.ranges import Marks, Opened

FIRST_RANGE = 1 << 20
"""Meanings of marks from here on are ranges."""


class RangeMarks(Marks):
    """Marks of ranges, which also mark the launches within them.

    Args:
        mark: Marks the place between two launches; False before CUDA runs, and while tracing pauses.
        time_ns: As in ``Marks``.
    """

    def __init__(self, mark: Callable[[int], bool], time_ns: Callable[[], int] = time.time_ns) -> None:
        super().__init__(time_ns)
        self.paths: list[tuple[str, ...]] = []
        self._mark = mark
        self._index, self._unmarked, self._marking = dict[int, int](), list[int](), threading.RLock()

    def begin(self, name: str) -> Opened:
        """See ``Marks``."""
        opened = super().begin(name)
        with self._marking:
            number = self._index[opened.id] = len(self.paths)
            self.paths.append(opened.path)
            self._put(FIRST_RANGE + 2 * number)
        return opened

    def end(self, opened: Opened, sync: bool = False) -> None:
        """See ``Marks``."""
        with self._marking:
            number = self._index.pop(opened.id, None)
            if number is not None:
                self._close(number)
        super().end(opened, sync)

    def _close(self, number: int) -> None:
        begun = FIRST_RANGE + 2 * number
        if begun not in self._unmarked:
            self._put(begun + 1)
            return
        self._unmarked.remove(begun)  # nothing was traced within it
        if number == len(self.paths) - 1:
            self.paths.pop()

    def _put(self, meaning: int) -> None:
        """Mark what is still unmarked, and this."""
        self._unmarked.append(meaning)
        while self._unmarked and self._mark(self._unmarked[0]):
            del self._unmarked[0]
