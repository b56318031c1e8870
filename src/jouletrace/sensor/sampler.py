"""A sensor that takes momentary samples by its own clock, averages them recursively, and is read every 20 ms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from scipy.interpolate import BSpline
from scipy.sparse import csr_matrix

from jouletrace.arrays import Floats, Ints
from jouletrace.sensor.models import Sensor
from jouletrace.sensor.shares import forgetting

EDGE_S = 15e-6
"""Half of the time over which a sample enters a reading. A sharp edge would make readings jump by a sixteenth of a
sample as the track moves by a microsecond; track and readout scatter by more than that."""

KNOT_S = 3.0
"""Knot spacing of the phase track; the rate drifts by at most 0.01 Hz per second."""


@dataclass(frozen=True)
class SampleTimes:
    """Times of the samples of one recording: ``start_s + n / rate_hz`` plus a smooth cubic spline."""

    start_s: float  # nominal time of sample 0
    rate_hz: float  # nominal rate
    count: int  # number of samples
    shift_s: Floats  # coefficients of the spline, shape (m,)
    beside: tuple[int, int] = (0, 0)  # samples before and after these, as far from their places as the nearest of them

    @classmethod
    def straight(cls, start_s: float, end_s: float, rate_hz: float, one_s: float) -> SampleTimes:
        """Samples at ``rate_hz`` from ``start_s`` to ``end_s``, one of them at ``one_s``."""
        first = one_s + np.ceil((start_s - one_s) * rate_hz) / rate_hz
        count = max(2, int((end_s - first) * rate_hz))
        return cls(first, rate_hz, count, np.zeros(max(1, round((end_s - start_s) / KNOT_S)) + 3))

    def over(self, start_s: float, end_s: float) -> SampleTimes:
        """The same with samples from ``start_s`` to ``end_s`` at least."""
        before, after = (self.start_s - start_s) * self.rate_hz, (end_s - self.start_s) * self.rate_hz - self.count
        return replace(self, beside=(max(0, int(before) + 1), max(0, int(after) + 2)))

    def later(self, part: float) -> SampleTimes:
        """The same with samples a part of a period later."""
        return replace(self, start_s=self.start_s + part / self.rate_hz)

    @property
    def number(self) -> Ints:
        """Number of each sample, shape (samples,)."""
        return np.arange(-self.beside[0], self.count + self.beside[1])

    def basis(self) -> Floats:
        """The spline's functions at the samples, shape (samples, m)."""
        return _basis(self.count, len(self.shift_s) - 3)[np.clip(self.number, 0, self.count - 1)]

    def instants(self) -> Floats:
        """Times of the samples in s, shape (samples,)."""
        return self.start_s + self.number / self.rate_hz + self.basis() @ self.shift_s

    def through(self, number: Floats, time_s: Floats) -> SampleTimes:
        """The track with the smoothest spline near given times of samples; both of shape (n,)."""
        basis = self.basis()[np.clip(number.astype(int), 0, self.count - 1)]
        bend = np.diff(np.eye(len(self.shift_s)), 2, axis=0)
        target = time_s - self.start_s - number / self.rate_hz
        shift = np.linalg.lstsq(
            np.vstack([basis, 0.3 * bend]), np.concatenate([target, np.zeros(len(bend))]), rcond=None
        )
        return replace(self, shift_s=shift[0])

    def rates_hz(self) -> Floats:
        """The rate at each sample, shape (count,)."""
        return 1 / np.gradient(self.instants())


@lru_cache(maxsize=4)
def _basis(count: int, pieces: int) -> Floats:
    knots = np.linspace(0, count - 1, pieces + 1)
    padded = np.concatenate([[knots[0]] * 3, knots, [knots[-1]] * 3])
    return np.asarray(BSpline.design_matrix(np.arange(count, dtype=float), padded, 3).toarray())


@dataclass(frozen=True)
class Readout:
    """How samples enter readings: the recursive average as sums over the samples between readings.

    Readings need n sums in place of an average at every one of m samples, with m about 25 n.
    """

    row: Ints  # reading whose average each sample enters first, shape (m,)
    factor: Floats  # weight of the sample there; 0 after the last reading, shape (m,)
    decay: Floats  # factor by which the average decays from the reading before, shape (n,)
    last: Ints  # the sample nearest to the moment at which the average is read, shape (n,)
    # Weights in a reading of the average before that sample and of the sample, shape (n,)
    before: Floats
    at: Floats

    @classmethod
    def from_record(cls, sensor: Sensor, instants_s: Floats, time_s: Floats) -> Readout:
        """The readout of a record; see ``read_out``."""
        moment, number = time_s - sensor.delay_s, np.arange(len(instants_s))
        last = np.clip(np.searchsorted(instants_s, moment + EDGE_S) - 1, 1, len(instants_s) - 1)
        share = np.clip((moment - instants_s[last]) / (2 * EDGE_S) + 0.5, 0, 1)
        weight, keep = 1 / sensor.averages, 1 - 1 / sensor.averages
        row = np.searchsorted(last, number, side="right")
        used = row < len(last)
        row = np.minimum(row, len(last) - 1)
        factor = np.where(used, weight * keep ** np.maximum(last[row] - 1 - number, 0), 0.0)
        factor[row == 0] /= 1 - keep ** last[0]
        return cls(row, factor, keep ** np.diff(last, prepend=last[0]), last, 1 - share * weight, share * weight)

    def sums(self, seen: Floats) -> Floats:
        """Weighted sums of the samples that enter each reading first, of values (m, k), shape (n, k)."""
        return np.asarray(self._matrix @ seen)

    @cached_property
    def _matrix(self) -> csr_matrix:
        first = np.searchsorted(self.row, np.arange(len(self.last) + 1))
        return csr_matrix((self.factor, np.arange(len(self.row)), first), shape=(len(self.last), len(self.row)))

    def readings(self, sums: Floats, at_last: Floats) -> Floats:
        """Readings from ``sums`` and from the values at ``last``, both of shape (n, k)."""
        state = forgetting(sums, self.decay[1:])
        return np.asarray(self.before[:, None] * state + self.at[:, None] * at_last)


def read_out(sensor: Sensor, seen: Floats, instants_s: Floats, time_s: Floats) -> Floats:
    """Readings from the values of samples: the recursive average, some delay before each reading.

    Args:
        sensor: Its average and delay.
        seen: Value of each sample, shape (samples, k).
        instants_s: Times of the samples, increasing, shape (samples,).
        time_s: Places of the readings on their grid, increasing, at least one, shape (n,).

    Returns:
        Shape (n, k). Linear in ``seen``. The average starts from the mean of the samples before the first reading. A
        sample within ``EDGE_S`` of a reading's moment counts in part.
    """
    readout = Readout.from_record(sensor, instants_s, time_s)
    return readout.readings(readout.sums(seen), seen[readout.last])
