"""When each source is due: absolute deadlines on one grid, so that no drift accumulates."""

from __future__ import annotations

from collections.abc import Iterable

from jouletrace.devices.base import Source


class Schedule:
    """Deadlines of sources.

    All deadlines are integer multiples of a source's interval after ``start_ns``: sources with the
    same interval share one wake-up, and a late source skips its missed deadlines.

    Args:
        sources: The sources to poll; the first poll is due one interval after the start.
        start_ns: Origin of the grid in nanoseconds, on a monotonic clock.
    """

    def __init__(self, sources: Iterable[Source], start_ns: int) -> None:
        self._origin = start_ns
        self._deadlines = [(source, self._next(source, start_ns)) for source in sources]

    def due(self, now_ns: int) -> list[Source]:
        """The sources whose deadline has passed; call ``advance`` after polling them."""
        return [source for source, deadline in self._deadlines if deadline <= now_ns]

    def advance(self, now_ns: int, alive: list[Source]) -> None:
        """Set the next deadline of each due source by its current interval; drop sources that aren't in ``alive``."""
        self._deadlines = [
            (source, deadline if deadline > now_ns else self._next(source, now_ns))
            for source, deadline in self._deadlines
            if source in alive
        ]

    def restart(self, now_ns: int) -> None:
        """Reset all deadlines after polls outside the schedule, which may have changed the intervals."""
        self._deadlines = [(source, self._next(source, now_ns)) for source, _ in self._deadlines]

    def wake_ns(self) -> int | None:
        """The earliest deadline; None if there is nothing to poll."""
        return min((deadline for _, deadline in self._deadlines), default=None)

    def _next(self, source: Source, now_ns: int) -> int:
        step = max(int(source.interval_s * 1e9), 1)
        return self._origin + ((now_ns - self._origin) // step + 1) * step
