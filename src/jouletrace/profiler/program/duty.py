"""Which part of a program is traced: all of its beginning, and a part of every minute from then on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Duty:
    """The part of a program that is traced.

    Attributes:
        first_s: Length of the beginning, s.
        first_kernels: Largest number of kernels of the beginning.
        traced_s, every_s: From then on, so many seconds in so many.
        most_kernels: Kernels after which ``every_s`` doubles, and after twice as many again: records stay in memory.
    """

    first_s: float = float("inf")
    first_kernels: int = 1_500_000
    traced_s: float = 5.0
    every_s: float = 60.0
    most_kernels: int = 4_000_000


class Cycle:
    """When tracing is to pause and to resume.

    Args:
        duty: The part that is traced.
        now: When tracing begins, s of any clock, as all ``now``.

    Attributes:
        paused: Whether tracing is paused.
        every_s: The present period.
    """

    def __init__(self, duty: Duty, now: float) -> None:
        self.paused, self.every_s = False, duty.every_s
        self._duty, self._first, self._since = duty, now, now
        self._kernels: int | None = None

    def due(self, now: float, kernels: int) -> bool:
        """Whether it is time to change, after so many kernels."""
        duty = self._duty
        if self.paused:
            return now - self._since >= self.every_s - duty.traced_s
        if self._kernels is None:  # still the beginning
            return now - self._first >= duty.first_s or kernels >= duty.first_kernels
        return now - self._since >= duty.traced_s

    def changed(self, now: float, paused: bool) -> None:
        """Tracing was paused or resumed."""
        self.paused, self._since = paused, now

    def count(self, kernels: int) -> None:
        """So many kernels were traced when a pause was due; lengthens the period if they are too many."""
        if self._kernels is None:
            self._kernels = kernels
        elif kernels - self._kernels > self._duty.most_kernels:
            self._kernels, self.every_s = self._kernels + self._duty.most_kernels, 2 * self.every_s
