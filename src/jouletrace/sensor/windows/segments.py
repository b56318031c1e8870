"""What is known of the record between edges, and how well a plain sum of readings does there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.sensor.calibration.fluctuation import seen_correlation
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.windows.varied import noise_sd

Floats = NDArray[np.float64]

_PRIOR_COUNT = 6.0
"""The calibrated fluctuation has the weight of so many readings of the segment itself."""


UNSEEN_SHARE = 0.25
"""Of the variance that a load's fluctuation has beyond the calibration's, so much is taken to be faster than
the record. Sums of an H100's record under its power cap miss the energy counter by 0.0045 × power × √seconds,
which is that share of the 6 % by which readings fluctuate there (docs/results/bursts-h100.md)."""


LARGE = 0.2
"""Least change of level, over the higher one, that shows the sensor's response: at smaller edges, as between two
windows of one load, readings show how the load's power dips and overshoots."""


@dataclass(frozen=True)
class Stretches:
    """The record between known edges: before, between and after them."""

    edges_s: Floats  # the edges, shape (m,)
    level_w: Floats  # mean power of each segment, shape (m + 1,)
    wander_w: Floats  # standard deviation of the power's correlated fluctuation in each, shape (m + 1,)
    error_j2: Floats  # variance of a plain sum of readings from before the first edge to after each, shape (m,)
    rate: Floats  # variance that such a sum gains in each segment, in J²/s, shape (m + 1,)
    unseen_w: Floats  # standard deviation of a reading by fluctuation too fast for the record, shape (m + 1,)

    @property
    def jump_w(self) -> Floats:
        """Change of level at each edge, shape (m,)."""
        return np.diff(self.level_w)

    @property
    def large_s(self) -> Floats:
        """The edges at which the level changes by more than a fifth of the higher one, shape (k,)."""
        higher = np.maximum(self.level_w[1:], self.level_w[:-1])
        return self.edges_s[np.abs(self.jump_w) > LARGE * np.maximum(higher, 0.0)]

    def index(self, time_s: Floats) -> NDArray[np.intp]:
        """Number of the segment in which each time lies; same shape."""
        return np.searchsorted(self.edges_s, time_s, side="right")

    def sum_variance(self, start_s: Floats, end_s: Floats) -> Floats:
        """Variance in J² of plain sums over [start, end]; zero if the end comes first."""

        def until(time: Floats) -> Floats:
            if len(self.edges_s) == 0:
                return np.asarray(time * self.rate[0])
            at = self.index(time)
            known = np.where(at > 0, self.error_j2[np.maximum(at - 1, 0)], 0.0)
            since = time - self.edges_s[np.maximum(at - 1, 0)]
            return np.asarray(known + since * self.rate[at])

        return np.maximum(until(np.maximum(start_s, end_s)) - until(start_s), 0.0)


def stretches(time_s: Floats, power_w: Floats, edges_s: Floats, response: StepResponse) -> Stretches:
    """Level and fluctuation of each segment, from the readings that cover nothing else."""
    begin = np.append(-np.inf, edges_s)
    end = np.append(edges_s, np.inf)
    first = np.searchsorted(time_s, begin + response.memory_s, side="left")
    last = np.searchsorted(time_s, end + response.lag_s, side="right")
    count = np.maximum(last - first, 0)
    total = np.append(0.0, np.cumsum(power_w))
    mean = (total[np.maximum(last, first)] - total[first]) / np.maximum(count, 1)
    bounded = np.isfinite(begin) & np.isfinite(end)
    middle = (np.where(bounded, begin, 0.0) + np.where(bounded, end, 0.0)) / 2 + response.delay_s
    after = np.minimum(np.searchsorted(time_s, middle), len(time_s) - 1)
    level = np.where(count > 0, mean, power_w[after])
    wander = _wander(power_w, first, last, level, response)
    noise = noise_sd(response, level)
    # What calibration saw of a quiet load is slow. What a busy one adds may be faster than readings
    # follow, and then it is noise of each of them, not power that the next one shows too.
    # The calibrated fluctuation counts twice, since a short segment shows more by chance; a nominal one is no reading.
    calm = (1 if response.origin == "nominal" else 2) * response.wander_relative * np.maximum(np.abs(level), 1e-9)
    unseen = np.sqrt(UNSEEN_SHARE * np.maximum(wander**2 - calm**2, 0.0))
    rate = wander**2 * sum_rate(time_s, response) + (noise**2 + unseen**2) * response.period_s
    jumps = np.diff(level)
    gained = np.append(0.0, np.diff(edges_s) * rate[1:-1]) if len(edges_s) else np.empty(0)
    error = np.cumsum(gained + jumps**2 * edge_variance(response)) if len(edges_s) else np.empty(0)
    return Stretches(edges_s, level, wander, error, rate, unseen)


def _wander(
    power_w: Floats, first: NDArray[np.intp], last: NDArray[np.intp], level: Floats, response: StepResponse
) -> Floats:
    """Fluctuation from successive differences, which a drift or a slow settling hardly touches.

    A segment too short for an estimate borrows from others at similar power, and they from the calibration: a
    GPU near its cap fluctuates differently than below it.
    """
    size = np.maximum(np.abs(level), 1e-9)
    both = seen_correlation(np.array([0.0, response.period_s]), response.noise_tau_s, response)
    lost = float(both[0] - both[1])
    if lost < 0.02:
        # readings overlap so much that their differences hold noise alone
        return np.asarray(response.wander_relative * size)
    # segments whose powers differ by at most a tenth fluctuate alike
    alike = np.round(np.log(size) / 0.1).astype(np.intp)
    alike -= alike.min()
    squares, count = _squared_differences(power_w, first, last, alike)
    seen = count * np.maximum(squares / 2 - noise_sd(response, level) ** 2, 0.0) / lost / size**2
    prior = _PRIOR_COUNT * response.wander_relative**2
    pooled = (prior + np.bincount(alike, seen)) / (_PRIOR_COUNT + np.bincount(alike, count))
    return np.asarray(size * np.sqrt((_PRIOR_COUNT * pooled[alike] + seen) / (_PRIOR_COUNT + count)))


def _squared_differences(
    power_w: Floats, first: NDArray[np.intp], last: NDArray[np.intp], alike: NDArray[np.intp]
) -> tuple[Floats, Floats]:
    """Mean squared successive difference within each segment, and the number of differences.

    No difference counts for more than five deviations of all at similar power, as their largest fifth gives
    these: near its cap a GPU dips now and then, and that is fluctuation; an edge that the response
    misplaces is none, and would conceal itself if it were included.
    """
    squares = np.asarray(np.diff(power_w) ** 2)
    number = np.arange(len(squares))
    stretch = np.searchsorted(first, number, side="right") - 1
    inside = (number >= first[stretch]) & (number + 1 < last[stretch])
    kind = alike[stretch]
    for one in np.unique(kind[inside]):
        members = np.flatnonzero(inside & (kind == one))
        # of a squared Gaussian a fifth is more than 1.642 times its mean
        limit = 25 * float(np.quantile(squares[members], 0.8)) / 1.642
        squares[members] = np.minimum(squares[members], limit)
    count = np.bincount(stretch[inside], minlength=len(first)).astype(np.float64)
    total = np.bincount(stretch[inside], squares[inside], len(first))
    return np.asarray(total / np.maximum(count, 1)), count


def sum_rate(time_s: Floats, response: StepResponse) -> float:
    """Variance in s (J²/s for a fluctuation of 1 W) that a plain sum gains with its length.

    It is computed on a piece of the record itself, since unevenly spaced readings tile time unevenly:
    the weight of each instant in the sum, less one, goes through the fluctuation's covariance. The
    difference between a long and a short sum leaves out what happens at their ends.
    """
    if len(time_s) < 16:
        return 2 * response.noise_tau_s
    middle = time_s - response.delay_s
    cells = (middle[1:] + middle[:-1]) / 2
    long = min(120, len(cells) - 2)
    starts = np.unique(np.linspace(0, len(cells) - 1 - long, 6).astype(int))
    gains = []
    for start in starts:
        if (cells[start + long] - cells[start]) / response.period_s > 20_000:
            continue  # a hole, or far fewer readings than the sensor has updates
        short = _sum_variance(time_s, cells, start, start + long // 3, response)
        gains.append(
            (_sum_variance(time_s, cells, start, start + long, response) - short)
            / (cells[start + long] - cells[start + long // 3])
        )
    return max(float(np.mean(gains)), 0.0) if gains else 2 * response.noise_tau_s


def _sum_variance(time_s: Floats, cells: Floats, first: int, last: int, response: StepResponse) -> float:
    """Variance in s² of the sum of readings over cells first to last, for a fluctuation of 1 W."""
    step = response.period_s / 8
    since, until = cells[first] - response.memory_s, cells[last] + response.memory_s
    bounds = since + step * np.arange(int((until - since) / step) + 2)
    taken, width = time_s[first + 1 : last + 1], np.diff(cells[first : last + 1])
    missed = np.diff(np.clip(bounds, cells[first], cells[last])) - _seen(taken, width, bounds, response)
    decay = np.exp(-step / response.noise_tau_s)
    return float(missed @ exponentially_smoothed(missed[None], decay)[0])


def _seen(taken: Floats, width: Floats, bounds: Floats, response: StepResponse) -> Floats:
    """Weight of each bin's power in a sum of readings, each of which counts for its width; of the bins' shape.

    A reading has forgotten what is long past: only bins in its memory are looked at.
    """
    step = bounds[1] - bounds[0]
    # after 14 more time constants all but a millionth is forgotten
    forgotten = response.memory_s + 14.0 * max(response.rise_s, response.tail_s)
    ahead = int(np.ceil(max(-response.lag_s, 0.0) / step)) + 1
    number = min(int(np.ceil(forgotten / step)) + ahead + 1, len(bounds) - 1)
    last = np.floor((taken - bounds[0]) / step).astype(np.intp) + ahead
    left = np.clip(last - number, 0, len(bounds) - 1 - number)
    bins = left[:, None] + np.arange(number + 1)
    share = response.step(taken[:, None] - bounds[bins])
    seen = width[:, None] * (share[:, :-1] - share[:, 1:])
    return np.asarray(np.bincount(bins[:, :-1].ravel(), seen.ravel(), len(bounds) - 1), np.float64)


def exponentially_smoothed(values: Floats, decay: float) -> Floats:
    """Each row times the matrix of ``decay ** |i - j|``, in time that goes with its length; same shape, (n, m).

    Two recursions y[i] = x[i] + decay y[i - 1], ahead and back, hold the diagonal twice. As banded systems:
    ``scipy.signal`` takes a second to import.
    """
    length = values.shape[1]
    bands = np.vstack([np.ones(length), np.full(length, -decay)])
    from scipy.linalg import lapack  # slow to import, in every process

    ahead, _ = lapack.dtbtrs(bands, values.T, uplo="L")
    back, _ = lapack.dtbtrs(bands, values.T, uplo="L", trans="T")
    return np.asarray((ahead + back).T - values, np.float64)


def edge_variance(response: StepResponse) -> float:
    """Variance in s² of the plain sum over a unit step inside a window, over all phases."""
    period = response.period_s
    phases = np.arange(32) / 32 * period
    reach = int(np.ceil((response.memory_s + abs(response.lag_s)) / period)) + 2
    delays = phases[:, None] + period * np.arange(-reach, reach)
    shown = response.step(delays).sum(1) * period
    return float(np.var(shown - phases))
