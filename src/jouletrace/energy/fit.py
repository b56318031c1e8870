"""Find a sensor's response from its readings of a commanded load."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares

from jouletrace.energy.features import LoadFeatures, load_features
from jouletrace.energy.fit_checks import edge_misfit, fit_flags, gain_swings, stragglers
from jouletrace.energy.noise import Fluctuation, fluctuation
from jouletrace.energy.response import Response
from jouletrace.energy.stamps import Grid, find_grid
from jouletrace.errors import BadInputError, NotPossibleError

_MIN_EDGES = 8
_WIDTHS = (0.1, 0.5, 1.0, 1.25, 3.0, 10.0)  # starts of the search, in periods
_RISES = (0.0, 0.5, 2.0)
_HAC_LAGS = 6
_MIN_EXPLAINED = 0.2


@dataclass(frozen=True)
class Fit:
    """A calibrated response and what it was judged by.

    Attributes:
        response: The response, with its uncertainty and flags.
        time_s: When each reading was taken, in seconds since the first stamp, shape (n,).
        power_w: The readings, shape (n,).
        model_w: What the model says of them, shape (n,).
        fluctuation: Noise and correlated fluctuation of the residual.
        edges_s: When the load changed, on the same clock as ``time_s``, shape (m,).
    """

    response: Response
    time_s: NDArray[np.float64]
    power_w: NDArray[np.float64]
    model_w: NDArray[np.float64]
    fluctuation: Fluctuation
    edges_s: NDArray[np.float64]


def fit_response(
    time_ns: ArrayLike,
    power_w: ArrayLike,
    edges_ns: ArrayLike,
    levels: ArrayLike | None = None,
    *,
    period_s: float | None = None,
    counter_ratio: float | None = None,
) -> Fit:
    """Fit lag, window and rise, their errors, noise and jitter to readings of a commanded load.

    The load steps between levels at known times, with pulses of many lengths. Its powers aren't
    known: each level has a constant, a drift and a settling that are fitted linearly, while the
    three parameters of the response are found by least squares around them (variable projection,
    Golub and Pereyra 1973). Standard errors allow for correlated, heteroscedastic residuals
    (Newey and West 1987). The fit is done with the stamps as they are and with the regular grid
    behind them; what explains most is kept.

    Args:
        time_ns: Stamps of the readings, increasing, shape (n,). Of a polled sensor only the reads
            that brought news (``stamps.updates``).
        power_w: Readings in watts, shape (n,).
        edges_ns: Times at which the load changed, increasing, shape (m,), m >= 8.
        levels: Which level holds before, between and after the edges, as integers, shape (m + 1,);
            0, 1, 0, 1 and so on if None.
        period_s: A first guess of the period.
        counter_ratio: Energy of the record over the counter's, to be stored with the response.

    Raises:
        BadInputError: If shapes don't match, times don't increase or readings aren't finite.
        NotPossibleError: If there are too few readings or edges, or the load left no trace.
    """
    time = np.asarray(time_ns, np.int64)
    power = np.asarray(power_w, np.float64)
    edges = np.asarray(edges_ns, np.int64)
    level = np.arange(len(edges) + 1) % 2 if levels is None else np.asarray(levels, np.int64)
    _check(time, power, edges, level)

    grid = find_grid(time, period_s)
    edges_s = (edges - time[0]) / 1e9
    # Below a hundredth of a period nothing is gained by moving readings to the grid.
    choices = (0, 1, 2) if np.std(grid.late_s) > 0.01 * grid.period_s else (0,)
    fits = [_Fitter(grid.taken(parts), power, edges_s, level, grid.period_s) for parts in choices]
    fits[0].search()
    for fit in fits:
        # The grid moves readings by less than a period: the same valley, entered once.
        fit.refine(fits[0].shape)
    best = int(np.argmin([fit.cost for fit in fits]))
    found = fits[best].result(grid, stamp_grid=choices[best], counter_ratio=counter_ratio)
    if found.response.explained is not None and found.response.explained < _MIN_EXPLAINED:
        raise NotPossibleError("calibration: the readings do not follow the load; is it another device's sensor?")
    return found


def _check(
    time: NDArray[np.int64], power: NDArray[np.float64], edges: NDArray[np.int64], level: NDArray[np.int64]
) -> None:
    if time.shape != power.shape or time.ndim != 1:
        raise BadInputError(f"calibration: {time.shape} stamps do not go with {power.shape} readings")
    if level.shape != (len(edges) + 1,):
        raise BadInputError(f"calibration: {len(edges)} edges need {len(edges) + 1} levels, not {len(level)}")
    if np.any(np.diff(time) <= 0) or np.any(np.diff(edges) <= 0):
        raise BadInputError("calibration: stamps and edges must increase; see energy.record.clean")
    if not np.all(np.isfinite(power)):
        raise BadInputError("calibration: readings must be finite; see energy.record.clean")
    if len(edges) < _MIN_EDGES or len(time) < 40:
        raise NotPossibleError(
            f"calibration: {len(edges)} edges and {len(time)} readings are too few; 8 and 40 are needed"
        )
    within = (edges > time[0]) & (edges < time[-1])
    if within.sum() < _MIN_EDGES:
        raise NotPossibleError(f"calibration: only {within.sum()} edges lie within the record; 8 are needed")


class _Fitter:
    """Variable projection for one choice of reading times."""

    def __init__(
        self,
        time_s: NDArray[np.float64],
        power: NDArray[np.float64],
        edges_s: NDArray[np.float64],
        level: NDArray[np.int64],
        period: float,
    ) -> None:
        self.time, self.power, self.edges, self.period = time_s, power, edges_s, period
        self.memory = 12 * period
        self.features: LoadFeatures = load_features(
            edges_s, level, float(time_s[0]) - 3 * self.memory, float(time_s[-1]) + self.memory, period
        )
        self.labels = len(np.unique(level))
        self.step_w = max(float(np.subtract(*np.percentile(power, [95, 5]))), 1e-3)
        self.weight = np.ones(len(power))
        self.noise_w = 0.02 * self.step_w
        self.shape = np.zeros(3)

    # Shapes travel in periods, so that all three parameters are of order one.

    def read(self, shape: NDArray[np.float64]) -> NDArray[np.float64]:
        lag, window, rise = shape * self.period
        return self.features.read(self.time, lag, window, rise)

    def amplitudes(self, design: NDArray[np.float64], keep: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
        """Ridge fit of the load's amplitudes; the ridge is the prior on settling and drift."""
        weight = self.weight if keep is None else self.weight * keep
        ridge = np.diag(1 / (self.features.prior_sd * self.step_w) ** 2) * self.noise_w**2
        weighted = design * weight[:, None] ** 2
        normal = weighted.T @ design + ridge + 1e-9 * np.eye(design.shape[1])
        return np.asarray(np.linalg.solve(normal, weighted.T @ self.power), np.float64)

    def residual(self, shape: NDArray[np.float64]) -> NDArray[np.float64]:
        design = self.read(shape)
        return self.weight * (self.power - design @ self.amplitudes(design))

    def search(self) -> None:
        """Coarse search, then least squares from the best few starts."""
        starts = [np.array([lag, w, r]) for r in _RISES for w in _WIDTHS for lag in (-0.5, 0.0, 0.5, 1.5)]
        costs = [float(np.sum(self.residual(start) ** 2)) for start in starts]
        ranked = [starts[i] for i in np.argsort(costs)]
        # The best start of each of a few different widths: the cost has a valley from width to rise.
        chosen: list[NDArray[np.float64]] = []
        for start in ranked:
            if all(start[1] != other[1] or start[2] != other[2] for other in chosen):
                chosen.append(start)
            if len(chosen) == 3:
                break
        solutions = [self._solve(start) for start in chosen]
        self.shape = min(solutions, key=lambda s: s[1])[0]

    def refine(self, shape: NDArray[np.float64]) -> None:
        """Least squares with weights by level, outliers held down."""
        self.shape = shape
        for _ in range(2):
            self._reweigh()
            self.shape, self.cost = self._solve(self.shape)
        # Weights differ from fit to fit, so the cost that compares fits is without them.
        error = self.power - self.model()
        self.cost = float(np.mean(np.minimum(error**2, np.percentile(error**2, 99))))

    def _solve(self, start: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        low, high = np.array([-4.0, 0.0, 0.0]), np.array([12.0, 30.0, 12.0])
        found = least_squares(
            self.residual,
            np.clip(start, low + 1e-3, high - 1e-3),
            bounds=(low, high),
            diff_step=[0.01] * 3,
            x_scale=[0.3, 0.3, 0.3],
            max_nfev=40,
        )
        return found.x, float(found.cost)

    def model(self) -> NDArray[np.float64]:
        design = self.read(self.shape)
        return design @ self.amplitudes(design)

    def _reweigh(self) -> None:
        """Weights from the residual's spread, which grows with the power, and less for outliers."""
        error = self.power - self.model()
        share = np.clip((self.model() - self.power.min()) / self.step_w, 0, 1)
        low = 1.4826 * np.median(np.abs(error[share < 0.5])) if np.any(share < 0.5) else np.std(error)
        high = 1.4826 * np.median(np.abs(error[share >= 0.5])) if np.any(share >= 0.5) else np.std(error)
        floor = 2e-3 * self.step_w
        spread = np.sqrt((1 - share) * low**2 + share * high**2 + floor**2)
        self.noise_w = 1.0
        self.weight = np.minimum(1.0, 3 * spread / np.maximum(np.abs(error), 1e-12)) ** 0.5 / spread

    def covariance(self) -> NDArray[np.float64]:
        """Of lag, window and rise in s²: sandwich with Newey-West weights."""
        step = 0.02
        columns = []
        for i in range(3):
            shift = np.zeros(3)
            shift[i] = step
            down = self.shape - np.where(self.shape - shift >= np.array([-4.0, 0.0, 0.0]), shift, 0)
            up = self.shape + shift
            columns.append((self.residual(up) - self.residual(down)) / (up - down)[i])
        jacobian, error = np.stack(columns, 1), self.residual(self.shape)
        score = jacobian * error[:, None]
        meat = score.T @ score
        for lag in range(1, _HAC_LAGS + 1):
            cross = score[lag:].T @ score[:-lag]
            meat += (1 - lag / (_HAC_LAGS + 1)) * (cross + cross.T)
        bread = np.linalg.pinv(jacobian.T @ jacobian, rcond=1e-10)
        return np.asarray(bread @ meat @ bread * self.period**2)

    def held_out(self) -> float:
        """Share of variance explained in every other stretch by amplitudes fitted to the rest."""
        design = self.read(self.shape)
        stretch = np.searchsorted(self.edges, self.time) // 4 % 2 == 0
        left = 0.0
        for part in (stretch, ~stretch):
            if not part.any() or part.all():
                return float("nan")
            error = self.power[~part] - design[~part] @ self.amplitudes(design, part)
            left += float(np.sum(error**2))
        return 1 - left / float(np.sum((self.power - self.power.mean()) ** 2))

    def result(self, grid: Grid, *, stamp_grid: int, counter_ratio: float | None) -> Fit:
        lag, window, rise = self.shape * self.period
        model = self.model()
        error = self.power - model
        slope = self._slope()
        scatter, jitter = fluctuation(error, model, slope, self.period, window)
        misfit = edge_misfit(self.time, error, model, self.edges, self.period, self.step_w, lag + window + 4 * rise)
        covariance = self.covariance()
        # Edges are known to a fraction of the grid's step only, and their phases are not all alike.
        covariance += np.diag([5e-3, 1e-2, 5e-3]) ** 2 * self.period**2
        # What the shape leaves unexplained around edges acts as an error of the delay.
        covariance[0, 0] += misfit.area_s**2
        delay = np.array([1, 0.5, 1])
        level_sd = np.hypot(scatter.noise_w, np.hypot(scatter.noise_relative, scatter.wander_relative) * model)
        strays = stragglers(error, slope, self.period, self.step_w, level_sd, jitter)
        swings = gain_swings(error, model, max(2.0, window / self.period + min(2 * scatter.tau_s / self.period, 6.0)))
        flags = fit_flags(misfit, strays, self._drift(), self.step_w, swings, grid.lost)
        response = Response(
            period_s=grid.period_s,
            window_s=float(window),
            rise_s=float(rise),
            lag_s=float(lag),
            jitter_s=jitter,
            stamp_grid=stamp_grid,
            noise_w=scatter.noise_w,
            noise_relative=scatter.noise_relative,
            wander_relative=scatter.wander_relative,
            noise_tau_s=scatter.tau_s,
            misfit_relative=misfit.rms,
            counter_ratio=counter_ratio,
            covariance=tuple(tuple(float(x) for x in row) for row in covariance),
            uncertainty={
                "period_s": grid.period_se_s,
                "lag_s": float(np.sqrt(covariance[0, 0])),
                "window_s": float(np.sqrt(covariance[1, 1])),
                "rise_s": float(np.sqrt(covariance[2, 2])),
                "delay_s": float(np.sqrt(delay @ covariance @ delay)),
            },
            explained=self.held_out(),
            flags=flags,
            origin="calibrated",
        )
        return Fit(response, self.time, self.power, model, scatter, self.edges)

    def _slope(self) -> NDArray[np.float64]:
        """dP/dt of the model at each reading, in W/s."""
        shift = np.array([0.05, 0, 0])
        design = self.read(self.shape)
        amplitudes = self.amplitudes(design)
        ahead, behind = self.read(self.shape - shift) @ amplitudes, self.read(self.shape + shift) @ amplitudes
        return np.asarray((ahead - behind) / (0.1 * self.period))

    def _drift(self) -> float:
        """Largest drift of a level over the record, in watts."""
        amplitudes = self.amplitudes(self.read(self.shape))
        return float(np.abs(amplitudes[self.labels : 2 * self.labels]).max())
