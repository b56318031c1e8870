"""When each source is due: absolute deadlines on one grid, so that nothing drifts."""

from __future__ import annotations

from collections.abc import Iterable

from jouletrace.devices.base import Source


class Schedule:
    """Deadlines of sources.

    All deadlines are whole multiples of a source's interval after ``start_ns``: sources of the
    same pace come together in one wake-up, and a late one skips what it missed.

    Args:
        sources: What is to be polled; the first poll is due one interval after the start.
        start_ns: Origin of the grid, on a clock that doesn't step.
    """

    def __init__(self, sources: Iterable[Source], start_ns: int) -> None:
        self._origin = start_ns
        self._deadlines = [(source, self._next(source, start_ns)) for source in sources]

    def due(self, now_ns: int) -> list[Source]:
        """The sources whose deadline has come; call ``advance`` once they have been polled."""
        return [source for source, deadline in self._deadlines if deadline <= now_ns]

    def advance(self, now_ns: int, alive: list[Source]) -> None:
        """Give what was due its next deadline, by its present interval; forget what isn't alive."""
        self._deadlines = [
            (source, deadline if deadline > now_ns else self._next(source, now_ns))
            for source, deadline in self._deadlines
            if source in alive
        ]

    def restart(self, now_ns: int) -> None:
        """Plan anew, after sources were polled out of turn: a poll may have changed their pace."""
        self._deadlines = [(source, self._next(source, now_ns)) for source, _ in self._deadlines]

    def wake_ns(self) -> int | None:
        """The earliest deadline; None if there is nothing to poll."""
        return min((deadline for _, deadline in self._deadlines), default=None)

    def _next(self, source: Source, now_ns: int) -> int:
        step = max(int(source.interval_s * 1e9), 1)
        return self._origin + ((now_ns - self._origin) // step + 1) * step
