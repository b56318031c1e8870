"""A sensor that takes momentary samples by a clock of its own, averages them recursively, and is read every 20 ms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import BSpline
from scipy.signal import lfilter

from jouletrace.sensor.response import HOPPER, Response

EDGE_S = 15e-6
"""How sure it is, to either side, whether a sample was taken before a reading: less than a track's and a readout's
scatter would have a reading jump by a sixteenth of a sample in a thousand where the track moves by a microsecond."""

KNOT_S = 3.0
"""Spacing of the knots of the phase's track: the rate drifts by some 0.01 Hz a second at most."""


@dataclass(frozen=True)
class Sensor:
    """What is the same for a board from recording to recording.

    Attributes:
        response: Of one sample.
        averages: Length of the recursive average: ``y += (x - y) / averages`` at each sample.
        delay_s: From the moment whose state a reading is to its place on the grid.
        rates_hz: Least and largest sample rate to look for.
    """

    response: Response = HOPPER
    averages: int = 16
    delay_s: float = 3.4e-3
    rates_hz: tuple[float, float] = (1200.0, 1260.0)


HOPPER_SENSOR = Sensor()
"""Of H100s and H200s: response, average and delay are the same on all that were recorded, the rate isn't."""


@dataclass(frozen=True)
class Track:
    """When the samples of one recording were taken: ``start_s + n / rate_hz`` plus a smooth cubic spline.

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
        """Samples at ``rate_hz`` from ``start_s`` to ``end_s``, one of which is taken at ``one_s``."""
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
        """The same with the smoothest spline that passes near given samples' times; both of shape (n,)."""
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
    """What readings make of the values of samples: the recursive average's state some delay before each.

    Args:
        sensor: How it averages and when it is read.
        seen: Value of each sample, shape (samples, ...).
        instants_s: When they were taken, shape (samples,), increasing.
        time_s: Places of the readings on their grid, shape (n,).

    Returns:
        Shape (n, ...). Linear in ``seen``. The average starts from the mean of ``seen``. A sample that was taken within
        ``EDGE_S`` of a reading's moment counts in part.
    """
    mean = seen.mean(axis=0)
    weight = 1 / sensor.averages
    state = lfilter([weight], [1, weight - 1], np.ascontiguousarray((seen - mean).T)).T + mean
    moment = time_s - sensor.delay_s
    last = np.clip(np.searchsorted(instants_s, moment + EDGE_S) - 1, 1, len(state) - 1)
    share = np.clip((moment - instants_s[last]) / (2 * EDGE_S) + 0.5, 0, 1)
    return np.asarray((state[last].T * share + state[last - 1].T * (1 - share)).T)
