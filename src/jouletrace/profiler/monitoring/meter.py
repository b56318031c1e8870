"""Running energy of one power record, for live displays and dashboards."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jouletrace.sensor.record import HOLE_PERIODS, MOST_W


class Meter:
    """Running energy of one power record: each reading stands for the time since the previous one.

    Args:
        start_ns: Start in ns since the Unix epoch.
        period_s: Update period of the sensor in seconds.
        kept_s: Length in seconds of the history for ``until``.
        most_w: Readings beyond are left out; see ``sensor.record.most_power_w``.

    Attributes:
        start_ns, last_ns: Start and end of the summed interval.
        energy_j: Energy in that interval in joules.
        hole_s: Seconds of it without readings.
    """

    def __init__(self, start_ns: int, period_s: float | None, kept_s: float = 60.0, *, most_w: float = MOST_W) -> None:
        self._most_w = most_w
        self._kept_ns = int(kept_s * 1e9)
        self.start_ns = self.last_ns = start_ns
        self.energy_j = self.hole_s = 0.0
        self._hole_s = HOLE_PERIODS * period_s if period_s else float("inf")
        self._times = np.array([start_ns], np.int64)
        self._sums = np.zeros(1)

    def add(self, time_ns: NDArray[np.int64], watts: NDArray[np.float64]) -> None:
        """Add the readings newer than ``last_ns``."""
        good = (time_ns > self.last_ns) & (watts >= 0) & (watts <= self._most_w)
        order = np.argsort(time_ns[good], kind="stable")
        time, power = time_ns[good][order].astype(np.int64), watts[good][order]
        if len(time) == 0:
            return
        apart = np.diff(np.append(self.last_ns, time)) / 1e9
        self.hole_s += float(apart[apart > self._hole_s].sum())
        sums = self.energy_j + np.cumsum(power * apart)
        self.energy_j, self.last_ns = float(sums[-1]), int(time[-1])
        self._times, self._sums = np.append(self._times, time), np.append(self._sums, sums)
        recent = max(int(np.searchsorted(self._times, self.last_ns - self._kept_ns)) - 1, 0)
        self._times, self._sums = self._times[recent:], self._sums[recent:]

    @property
    def oldest_ns(self) -> int:
        """Start of the history for ``until``."""
        return int(self._times[0])

    def until(self, time_ns: ArrayLike) -> NDArray[np.float64]:
        """Joules from the start until ``time_ns``, with its shape."""
        seconds = (np.asarray(time_ns, np.int64) - self.start_ns) / 1e9
        return np.asarray(np.interp(seconds, (self._times - self.start_ns) / 1e9, self._sums))
