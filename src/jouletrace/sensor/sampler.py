"""A sensor that takes momentary samples by its own clock, averages them recursively, and is read every 20 ms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import BSpline
from scipy.signal import lfilter

from jouletrace.sensor.kinds.base import Sensor

EDGE_S = 15e-6
"""Half of the time over which a sample enters a reading. A sharp edge would make readings jump by a sixteenth of a
sample as the track moves by a microsecond; track and readout scatter by more than that."""

KNOT_S = 3.0
"""Knot spacing of the phase track; the rate drifts by at most 0.01 Hz per second."""


@dataclass(frozen=True)
class Track:
    """Times of the samples of one recording: ``start_s + n / rate_hz`` plus a smooth cubic spline.

    Attributes:
        start_s: Nominal time of sample 0.
        rate_hz: Nominal rate.
        count: Number of samples.
        shift_s: Coefficients of the spline, shape (m,).
    """

    start_s: float
    rate_hz: float
    count: int
    shift_s: NDArray[np.float64]

    @classmethod
    def straight(cls, start_s: float, end_s: float, rate_hz: float, one_s: float) -> Track:
        """Samples at ``rate_hz`` from ``start_s`` to ``end_s``, one of them at ``one_s``."""
        first = one_s + np.ceil((start_s - one_s) * rate_hz) / rate_hz
        count = max(2, int((end_s - first) * rate_hz))
        return cls(first, rate_hz, count, np.zeros(max(1, round((end_s - start_s) / KNOT_S)) + 3))

    def basis(self) -> NDArray[np.float64]:
        """The spline's functions at the samples, shape (count, m)."""
        return _basis(self.count, len(self.shift_s) - 3)

    def instants(self) -> NDArray[np.float64]:
        """Times of the samples in s, shape (count,)."""
        return self.start_s + np.arange(self.count) / self.rate_hz + self.basis() @ self.shift_s

    def through(self, number: NDArray[np.float64], time_s: NDArray[np.float64]) -> Track:
        """The track with the smoothest spline near given times of samples; both of shape (n,)."""
        basis = self.basis()[np.clip(number.astype(int), 0, self.count - 1)]
        bend = np.diff(np.eye(len(self.shift_s)), 2, axis=0)
        target = time_s - self.start_s - number / self.rate_hz
        shift = np.linalg.lstsq(
            np.vstack([basis, 0.3 * bend]), np.concatenate([target, np.zeros(len(bend))]), rcond=None
        )
        return replace(self, shift_s=shift[0])

    def rates_hz(self) -> NDArray[np.float64]:
        """The rate at each sample, shape (count,)."""
        return 1 / np.gradient(self.instants())


@lru_cache(maxsize=4)
def _basis(count: int, pieces: int) -> NDArray[np.float64]:
    knots = np.linspace(0, count - 1, pieces + 1)
    padded = np.concatenate([[knots[0]] * 3, knots, [knots[-1]] * 3])
    return np.asarray(BSpline.design_matrix(np.arange(count, dtype=float), padded, 3).toarray())


def read_out(
    sensor: Sensor, seen: NDArray[np.float64], instants_s: NDArray[np.float64], time_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Readings from the values of samples: the recursive average, some delay before each reading.

    Args:
        sensor: Its average and delay.
        seen: Value of each sample, shape (samples, ...).
        instants_s: Times of the samples, increasing, shape (samples,).
        time_s: Places of the readings on their grid, shape (n,).

    Returns:
        Shape (n, ...). Linear in ``seen``. The average starts from the mean of ``seen``. A sample within ``EDGE_S`` of
        a reading's moment counts in part.
    """
    mean = seen.mean(axis=0)
    weight = 1 / sensor.averages
    state = lfilter([weight], [1, weight - 1], np.ascontiguousarray((seen - mean).T)).T + mean
    moment = time_s - sensor.delay_s
    last = np.clip(np.searchsorted(instants_s, moment + EDGE_S) - 1, 1, len(state) - 1)
    share = np.clip((moment - instants_s[last]) / (2 * EDGE_S) + 0.5, 0, 1)
    return np.asarray((state[last].T * share + state[last - 1].T * (1 - share)).T)
