"""Shares of intervals in readings: which part of what ran in a kind of interval does each reading show.

A reading of a sensor that averages momentary samples recursively shows the power behind an exponential low pass::

    reading(t) = ∫ p(t - delay - d) exp(-d / rise) / rise dd + noise

since ``y += weight (x - y)`` at ``rate`` samples per second forgets with ``rise = -1 / (rate ln(1 - weight))``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_banded

from jouletrace.sensor.models import Sensor

Floats = NDArray[np.float64]

_Weigh = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Response:
    """A sensor's reading of power, and the standard deviations of what isn't known of it."""

    rise_s: float  # time constant of the exponential memory
    rise_sd: float  # relative standard deviation of it
    delay_s: float  # from the moment at which the average is read to the reading's time
    delay_sd_s: float
    weight: float  # of the last momentary sample in a reading, 1: none but it
    noise_w: float  # standard deviation of independent noise of a reading
    period_s: float  # between readings

    @classmethod
    def sampled(cls, sensor: Sensor, period_s: float, rate_hz: float | None = None) -> Response:
        """The response of a sensor that averages momentary samples.

        Args:
            sensor: One of ``sensor.kinds``.
            period_s: Seconds between readings.
            rate_hz: Samples per second of this GPU; None if unknown: then it lies anywhere in the sensor's range.
        """
        low, high = sensor.any_rate_hz
        rate = rate_hz or (low + high) / 2
        spread = 1e-3 if rate_hz else (high - low) / math.sqrt(12) / rate
        weight = 1 / sensor.averages
        rise_s = -1 / (rate * math.log1p(-weight))
        return cls(rise_s, spread, sensor.delay_s, sensor.delay_sd_s, weight, sensor.noise_w, period_s)

    @property
    def sample_s(self) -> float:
        """Seconds between momentary samples."""
        return -self.rise_s * math.log1p(-self.weight)


@dataclass(frozen=True)
class Timeline:
    """Intervals, each of a kind; in order of their starts. Those of one kind may overlap: their powers add."""

    start_s: Floats  # shape (m,)
    end_s: Floats  # shape (m,)
    kind: NDArray[np.int64]  # shape (m,), from 0

    @property
    def kinds(self) -> int:
        """Number of kinds."""
        return int(self.kind.max()) + 1

    def running(self, time_s: Floats) -> Floats:
        """Number of intervals of each kind that run at ``time_s``, shape (times, kinds)."""
        return np.cumsum(self._binned(time_s, np.ones_like), axis=0)

    def seconds(self, time_s: Floats) -> Floats:
        """Seconds that intervals of each kind ran between each two of ``time_s``, shape (len(time_s) - 1, kinds)."""
        begun = self._binned(time_s, lambda gap: gap)[1:]
        return np.asarray(self.running(time_s)[:-1] * np.diff(time_s)[:, None] + begun)

    def _binned(self, time_s: Floats, weigh: _Weigh) -> Floats:
        """Sum over starts less that over ends, each in the bin of the next of ``time_s``, shape (times, kinds)."""
        size = (len(time_s) + 1) * self.kinds
        total = np.zeros(size)
        for edge, sign in ((self.start_s, 1.0), (self.end_s, -1.0)):
            slot = np.searchsorted(time_s, edge)
            gap = time_s[np.minimum(slot, len(time_s) - 1)] - edge
            total += np.bincount(slot * self.kinds + self.kind, sign * weigh(gap), size)
        return total.reshape(-1, self.kinds)[:-1]


def shares(time_s: Floats, timeline: Timeline, response: Response) -> Floats:
    """Share of each kind in the readings, shape (readings, kinds): of ``sum(share * power)`` they are made.

    ``time_s`` are the moments that readings show, increasing: their times less the delay. An edge at s shows as
    1 - exp(-(t - s) / rise) in a reading at t: the number of intervals that run less a sum of exponentials, which is
    carried from reading to reading. It takes time in proportion to readings and intervals.
    """
    left = timeline._binned(time_s, lambda gap: np.exp(-np.maximum(gap, 0.0) / response.rise_s))
    return np.asarray(timeline.running(time_s) - forgetting(left, np.exp(-np.diff(time_s) / response.rise_s)))


def forgetting(added: Floats, fade: Floats) -> Floats:
    """Solution of ``y[k] = fade[k - 1] y[k - 1] + added[k]``, of the shape of ``added``, (n,) or (n, c)."""
    bands = np.stack([np.ones(len(added)), np.append(-fade, 0.0)])
    return np.asarray(solve_banded((1, 0), bands, added, check_finite=False))
