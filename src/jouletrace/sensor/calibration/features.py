"""A commanded load as linear features, and what a sensor of given shape would read of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from jouletrace.sensor.windows.response import Response

_STEPS_PER_PERIOD = 20
_FINEST_S = 0.001
SETTLE_PERIODS = 6.0
"""Time constant of the fast settling of a load, in sensor periods: well apart from any rise."""
_SLOW_SETTLE_S = 2.0


@dataclass(frozen=True)
class LoadFeatures:
    """What the load's power is made of, on a fine grid of time.

    For every level the load is commanded to: a constant, a linear drift, a fast and a slow
    settling after each change. Their amplitudes are fitted; only the times are known.
    """

    start_s: float  # time of the first grid point
    step_s: float  # spacing of the grid
    mean: NDArray[np.float64]  # mean of each feature over each grid step, shape (steps, features)
    prior_sd: NDArray[np.float64]  # size that each amplitude may have, over the size of the load's steps; inf if free
    cache: dict[float, NDArray[np.float64]] = field(default_factory=dict, repr=False, compare=False)

    def read(self, time_s: NDArray[np.float64], shape: Response) -> NDArray[np.float64]:
        """Each feature as read by a sensor of this shape at ``time_s``; shape (n, features)."""
        window = max(shape.window_s, 0.02 * self.step_s) / self.step_s
        end = (time_s - shape.lag_s - self.start_s) / self.step_s
        seen = self._through(shape.rise_s, end, window)
        if shape.tail_share == 0:
            return seen
        return (1 - shape.tail_share) * seen + shape.tail_share * self._through(shape.tail_s, end, window)

    def _through(self, constant_s: float, end: NDArray[np.float64], window: float) -> NDArray[np.float64]:
        """Features behind one exponential, over a boxcar that ends at ``end``, both in grid steps."""
        integral = self._integral(constant_s)
        return (_at(integral, end) - _at(integral, end - window)) / window

    def _integral(self, rise_s: float) -> NDArray[np.float64]:
        """Running integral of the features after an exponential, in grid steps."""
        if rise_s in self.cache:
            return self.cache[rise_s]
        if rise_s == 0:
            integral = np.vstack([np.zeros(self.mean.shape[1]), np.cumsum(self.mean, axis=0)])
        else:
            from scipy.signal import lfilter  # slow to import, and calibrations alone need it

            decay = np.exp(-self.step_s / rise_s)
            padded = np.vstack([self.mean, self.mean[-1:]])  # the state after the last step, too
            integral, _ = lfilter([0.0, 1 - decay], [1, -decay], padded, axis=0, zi=self.mean[:1])
            # What went in and hasn't come out yet is the state of the lag times its time constant.
            integral -= integral[0].copy()  # in place: fresh arrays of this size take most of the time
            integral *= -rise_s / self.step_s
            integral += self._integral(0.0)
        # A search asks for many lags and windows at the same rise, one after the other.
        if len(self.cache) >= 7:
            del self.cache[next(rise for rise in self.cache if rise > 0)]
        self.cache[rise_s] = integral
        return integral


def _at(integral: NDArray[np.float64], where: NDArray[np.float64]) -> NDArray[np.float64]:
    """Linear interpolation of rows at fractional places, extended by the first and last slope."""
    low = np.clip(np.floor(where), 0, len(integral) - 2).astype(np.intp)
    part = (where - low)[:, None]
    return np.asarray(integral[low] * (1 - part) + integral[low + 1] * part)


def load_features(
    edges_s: NDArray[np.float64],
    level: NDArray[np.int64],
    since_s: float,
    until_s: float,
    period_s: float,
) -> LoadFeatures:
    """Lay out the features of a commanded load.

    Args:
        edges_s: Times at which the load changes, increasing, shape (m,).
        level: Which commanded level holds before, between and after them, shape (m + 1,).
        since_s: Start of the grid; at least a sensor's memory before the first reading.
        until_s: End of the grid.
        period_s: Period of the sensor, which sets the fineness of the grid.
    """
    # A sensor that is slow to update may still be quick to answer.
    step = min(period_s / _STEPS_PER_PERIOD, _FINEST_S)
    bins = int(np.ceil((until_s - since_s) / step)) + 1
    bounds = since_s + step * np.arange(bins + 1)
    middle = (bounds[:-1] + bounds[1:]) / 2
    segment = np.searchsorted(edges_s, middle, side="right")
    starts = np.append(since_s - 1e3, edges_s)
    since = middle - starts[segment]
    labels = np.unique(level)
    # How much of each bin belongs to each level: an edge inside a bin splits it.
    share = np.zeros((bins, len(labels)))
    share[np.arange(bins), np.searchsorted(labels, level[segment])] = 1
    for edge, before, after in zip(edges_s, level[:-1], level[1:], strict=True):
        at = int((edge - since_s) / step)
        if 0 <= at < bins:
            late = (bounds[at + 1] - edge) / step
            share[at] = 0
            share[at, np.searchsorted(labels, after)] += late
            share[at, np.searchsorted(labels, before)] += 1 - late
    span = max(until_s - since_s, step)
    drift = (middle - (since_s + until_s) / 2) / span
    fast = np.exp(-since / (SETTLE_PERIODS * period_s))
    slow = np.exp(-since / max(_SLOW_SETTLE_S, 4 * SETTLE_PERIODS * period_s))
    columns = [share, share * drift[:, None], share * fast[:, None], share * slow[:, None]]
    k = len(labels)
    prior = np.concatenate([np.full(k, np.inf), np.full(k, 0.2), np.full(k, 0.2), np.full(k, 0.05)])
    return LoadFeatures(since_s, step, np.hstack(columns), prior)
