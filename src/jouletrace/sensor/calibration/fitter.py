"""The search for a sensor's shape: a load as linear features, and variable projection around their amplitudes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jouletrace.arrays import Floats, Ints, Mask
from jouletrace.sensor.calibration.response import SHAPE, StepResponse
from jouletrace.stats.quantiles import SD_OVER_MAD

SETTLE_PERIODS = 6.0
"""Time constant of the fast settling of a load, in sensor periods: well apart from any rise."""


class LoadFeatures(NamedTuple):
    """Parts of the load's power, constant between cuts.

    For every level the load is commanded to: a constant, a linear drift, a fast and a slow
    settling after each change. Their amplitudes are fitted; only the times are known.
    """

    cut_s: Floats  # shape (n + 1,): the edges, and times between
    mean: Floats  # mean of each feature between cuts, shape (features, n)
    prior_sd: Floats  # size that each amplitude may have, over the size of the load's steps; inf if free

    def read(self, time_s: Floats, response: StepResponse) -> Floats:
        """Each feature as read by a sensor at ``time_s``; shape (readings, features)."""
        return response.shape.averaged(time_s, self.cut_s, self.mean).T


def load_features(edges_s: Floats, level: Ints, since_s: float, until_s: float, period_s: float) -> LoadFeatures:
    """Lay out the features of a commanded load.

    Args:
        edges_s: Times at which the load changes, increasing, shape (m,).
        level: Which commanded level holds before, between and after them, shape (m + 1,).
        since_s: Start of the grid; at least a sensor's memory before the first reading.
        until_s: End of the grid.
        period_s: Period of the sensor, which sets the fineness of the grid.
    """
    grid = np.arange(since_s, until_s + period_s / 2, period_s / 2)
    cut_s = np.union1d(grid, edges_s[(edges_s > grid[0]) & (edges_s < grid[-1])])
    middle = (cut_s[:-1] + cut_s[1:]) / 2
    segment = np.searchsorted(edges_s, middle, side="right")
    since = middle - np.append(since_s - 1e3, edges_s)[segment]
    labels = np.unique(level)
    share = (level[segment] == labels[:, None]).astype(np.float64)
    drift = (middle - (since_s + until_s) / 2) / max(until_s - since_s, period_s)
    fast = np.exp(-since / (SETTLE_PERIODS * period_s))
    slow = np.exp(-since / max(2.0, 4 * SETTLE_PERIODS * period_s))
    prior = np.repeat([np.inf, 0.2, 0.2, 0.05], len(labels))
    return LoadFeatures(cut_s, np.vstack([share, share * drift, share * fast, share * slow]), prior)


_HAC_LAGS = 6
_TAIL_MEAN, _TAIL_PRECISION = np.array([0.0, 1.0]), np.array([1.0, 4.0])
"""Of the tail's share and length in their own units. Readings of a slow sensor hardly show a tail, and then it is what
regulators and capacitors have elsewhere: up to about a tenth of the response, over 10 to 30 ms."""

_ROUGH, _FINE = 1e-3, 1e-6
"""Relative change of the cost, or of the shape, at which least squares stop: of a start of the search, which only has
to reach its valley, and of the fit, whose standard errors are a thousand times larger."""

_LOW = np.array([-4.0, 0.0, 0.0, 0.0, 0.2])
_HIGH = np.array([12.0, 30.0, 12.0, 3.0, 2.5])


class Fitter:
    """Fits lag, window, rise and tail for one choice of reading times.

    Shapes travel in units of the period, of a tenth (the tail's share) and of 20 ms (the tail), so
    that all parameters are of order one. The search has the first three only.
    """

    def __init__(self, time_s: Floats, power: Floats, edges_s: Floats, level: Ints, period: float) -> None:
        self.time, self.power, self.edges, self.period = time_s, power, edges_s, period
        memory = 12 * period
        self.features: LoadFeatures = load_features(
            edges_s, level, float(time_s[0]) - 3 * memory, float(time_s[-1]) + memory, period
        )
        self.labels = len(np.unique(level))
        self.step_w = max(float(np.subtract(*np.percentile(power, [95, 5]))), 1e-3)
        self.weight = np.ones(len(power))
        self.noise_w = 0.02 * self.step_w
        self.shape = np.zeros(3)
        self.unit = np.array([period, period, period, 0.1, 0.02])

    def response(self, shape: Floats) -> StepResponse:
        """The response of a shape, without noise."""
        return StepResponse(self.period, **dict(zip(SHAPE, (shape * self.unit[: len(shape)]).tolist(), strict=False)))

    def read(self, shape: Floats) -> Floats:
        """The load's features as a sensor of this shape reads them."""
        return self.features.read(self.time, self.response(shape))

    def amplitudes(self, design: Floats, keep: Mask | None = None) -> Floats:
        """Ridge fit of the load's amplitudes; the ridge is the prior on settling and drift."""
        weight = self.weight if keep is None else self.weight * keep
        ridge = np.diag(1 / (self.features.prior_sd * self.step_w) ** 2) * self.noise_w**2
        weighted = design * weight[:, None] ** 2
        normal = weighted.T @ design + ridge + 1e-9 * np.eye(design.shape[1])
        return np.asarray(np.linalg.solve(normal, weighted.T @ self.power), np.float64)

    def residual(self, shape: Floats) -> Floats:
        """Weighted residuals of the readings at the best amplitudes, shape (n,)."""
        design = self.read(shape)
        return self.weight * (self.power - design @ self.amplitudes(design))

    def search(self) -> None:
        """Coarse search, then least squares from the best few starts."""
        lags, widths, rises = (-0.5, 0.0, 0.5, 1.5), (0.1, 0.5, 1.0, 1.25, 3.0, 10.0), (0.0, 0.5, 2.0)  # in periods
        starts = [np.array([lag, width, rise]) for rise in rises for width in widths for lag in lags]
        costs = [float(np.sum(self.residual(start) ** 2)) for start in starts]
        ranked = [starts[i] for i in np.argsort(costs)]
        # The best start of each of a few different widths: the cost has a valley from width to rise.
        chosen: list[Floats] = []
        for start in ranked:
            if all(start[1] != other[1] or start[2] != other[2] for other in chosen):
                chosen.append(start)
            if len(chosen) == 3:
                break
        solutions = [self._solve(start, _ROUGH) for start in chosen]
        self.shape = min(solutions, key=lambda s: s[1])[0]

    def refine(self, shape: Floats) -> None:
        """Least squares with weights by level, robust against outliers."""
        self.shape = shape
        for _ in range(2):
            self._reweigh()
            self.shape, _ = self._solve(_off_zero(self.shape))

    def add_tail(self) -> None:
        """Let the response have a tail, and refine once more."""
        self.refine(np.append(self.shape[:3], [0.3, 1.0]))

    def _solve(self, start: Floats, tolerance: float = _FINE) -> tuple[Floats, float]:
        from scipy.optimize import least_squares  # slow to import, and calibrations alone need it

        size = len(start)

        def residual(shape: Floats) -> Floats:
            tail = shape[3:]  # none in the search
            pull = np.sqrt(_TAIL_PRECISION[: len(tail)]) * (tail - _TAIL_MEAN[: len(tail)])
            return np.append(self.residual(shape), pull)

        solution = least_squares(
            residual,
            np.clip(start, _LOW[:size] + 1e-3, _HIGH[:size] - 1e-3),
            bounds=(_LOW[:size], _HIGH[:size]),
            diff_step=[0.01] * size,
            x_scale=np.array([0.3, 0.3, 0.3, 1.0, 1.0])[:size],
            ftol=tolerance,
            xtol=tolerance,
            max_nfev=40,
        )
        return solution.x, float(solution.cost)

    def model(self) -> Floats:
        """The fit's value for each reading, in watts, shape (n,)."""
        design = self.read(self.shape)
        return np.asarray(design @ self.amplitudes(design))

    def _reweigh(self) -> None:
        """Weights from the residual's spread, which grows with the power, and less for outliers."""
        model = self.model()
        error = self.power - model
        share = np.clip((model - self.power.min()) / self.step_w, 0, 1)
        low, high = (
            SD_OVER_MAD * np.median(np.abs(error[part])) if part.any() else np.std(error)
            for part in (share < 0.5, share >= 0.5)
        )
        floor = 2e-3 * self.step_w
        spread = np.sqrt((1 - share) * low**2 + share * high**2 + floor**2)
        self.noise_w = 1.0
        self.weight = np.minimum(1.0, 3 * spread / np.maximum(np.abs(error), 1e-12)) ** 0.5 / spread

    def covariance(self) -> Floats:
        """Of the shape's parameters in SI units: sandwich with Newey-West weights, prior included."""
        size, step = len(self.shape), 0.02
        columns = []
        for shift in step * np.eye(size):
            down, up = np.maximum(self.shape - shift, _LOW[:size]), self.shape + shift
            columns.append((self.residual(up) - self.residual(down)) / (up - down).max())
        jacobian, error = np.stack(columns, 1), self.residual(self.shape)
        score = jacobian * error[:, None]
        prior = np.diag(np.append(np.zeros(3), _TAIL_PRECISION)[:size])
        meat = score.T @ score + prior
        for lag in range(1, _HAC_LAGS + 1):
            cross = score[lag:].T @ score[:-lag]
            meat += (1 - lag / (_HAC_LAGS + 1)) * (cross + cross.T)
        bread = np.linalg.pinv(jacobian.T @ jacobian + prior, rcond=1e-10)
        unit = self.unit[:size]
        return np.asarray(bread @ meat @ bread * unit[:, None] * unit)

    def held_out(self) -> float:
        """Share of variance explained in every other segment by amplitudes fitted to the rest."""
        design = self.read(self.shape)
        stretch = np.searchsorted(self.edges, self.time) // 4 % 2 == 0
        left = 0.0
        for part in (stretch, ~stretch):
            if not part.any() or part.all():
                return float("nan")
            error = self.power[~part] - design[~part] @ self.amplitudes(design, part)
            left += float(np.sum(error**2))
        return 1 - left / float(np.sum((self.power - self.power.mean()) ** 2))

    def slope(self) -> Floats:
        """dP/dt of the model at each reading, in W/s, shape (n,)."""
        shift = np.zeros_like(self.shape)
        shift[0] = 0.05
        amplitudes = self.amplitudes(self.read(self.shape))
        ahead, behind = self.read(self.shape - shift) @ amplitudes, self.read(self.shape + shift) @ amplitudes
        return np.asarray((ahead - behind) / (0.1 * self.period))

    def drift(self) -> float:
        """Largest drift of a level over the record, in watts."""
        amplitudes = self.amplitudes(self.read(self.shape))
        return float(np.abs(amplitudes[self.labels : 2 * self.labels]).max())


def _off_zero(shape: Floats) -> Floats:
    """The shape with at least a short window, at the same mean delay.

    At a window of zero a longer one with a shorter lag changes nothing at first: a search stays there.
    """
    moved = shape.copy()
    moved[1] = max(shape[1], 0.2)
    moved[0] -= (moved[1] - shape[1]) / 2
    return moved
