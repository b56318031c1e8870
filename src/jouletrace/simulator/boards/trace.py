"""The history of a GPU: power that is constant between edges, so that integrals are exact."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Row = tuple[int, float, float, float, float, float, float]
"""One edge: time and the columns below."""

ENERGY, TAIL, BUSY, CLOCK, TEMPERATURE, CAPPED = range(6)
_COLUMNS = 6
_FIRST_ROOM = 4096


class Trace:
    """Everything that happened on a GPU, edge by edge.

    ``ENERGY`` (J), ``TAIL`` (J) and ``BUSY`` (s) are values at the edge; ``CLOCK`` (MHz),
    ``TEMPERATURE`` (°C) and ``CAPPED`` (0 or 1) hold since the previous edge.
    """

    def __init__(self, start_ns: int, temperature_c: float) -> None:
        # times from the start, so that they stay exact where numpy converts them to floats
        self.start_ns = start_ns
        self._time = np.zeros(_FIRST_ROOM, dtype=np.int64)
        self._data = np.zeros((_COLUMNS, _FIRST_ROOM))
        self._data[TEMPERATURE, 0] = temperature_c
        self._count = 1

    @property
    def end_ns(self) -> int:
        """The last edge, in nanoseconds since the Unix epoch."""
        return self.start_ns + int(self._time[self._count - 1])

    def extend(self, rows: list[Row]) -> None:
        """Append edges, oldest first; each is a time since the epoch and the columns."""
        if not rows:
            return
        count = self._count + len(rows)
        if count > len(self._time):
            room = max(2 * len(self._time), count)
            self._time = np.resize(self._time, room)
            data = np.zeros((_COLUMNS, room))
            data[:, : self._count] = self._data[:, : self._count]
            self._data = data
        self._time[self._count : count] = [row[0] - self.start_ns for row in rows]
        self._data[:, self._count : count] = np.array([row[1:] for row in rows]).T
        self._count = count

    def edges(self, start_ns: int, end_ns: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The cells that overlap a window: their edges in ns since the epoch, and the columns there."""
        first = max(int(np.searchsorted(self._time[: self._count], start_ns - self.start_ns, "right")) - 1, 0)
        last = int(np.searchsorted(self._time[: self._count], end_ns - self.start_ns, "left")) + 1
        last = min(last, self._count)
        return self._time[first:last] + self.start_ns, self._data[:, first:last]

    def reached(self, column: int, time_ns: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """Value of ``ENERGY``, ``TAIL`` or ``BUSY`` at any times, linear between edges.

        Times before the first edge give the first value, as if the GPU had been off.
        """
        at = np.asarray(time_ns, dtype=np.int64) - self.start_ns
        low, high = self._span(at)
        value: NDArray[np.float64] = np.interp(at, self._time[low:high], self._data[column, low:high])
        return value

    def held(self, column: int, time_ns: int) -> float:
        """Value of ``CLOCK``, ``TEMPERATURE`` or ``CAPPED`` at a time."""
        at = int(np.searchsorted(self._time[: self._count], time_ns - self.start_ns, "left"))
        return float(self._data[column, min(at, self._count - 1)])

    def _span(self, at: NDArray[np.int64]) -> tuple[int, int]:
        """The slice of edges that covers ``at``; interpolation over the whole history would be slow."""
        if at.size == 0:
            return 0, self._count
        times = self._time[: self._count]
        low = int(np.searchsorted(times, at.min(), "right")) - 1
        high = int(np.searchsorted(times, at.max(), "left")) + 1
        return max(low, 0), max(min(high, self._count), max(low, 0) + 1)
