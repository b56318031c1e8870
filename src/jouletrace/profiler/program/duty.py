"""When this process is traced: all of its beginning, and a part of every minute from then on."""

from __future__ import annotations

from jouletrace.tracer.launching import Duty


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
