"""Find a sensor's response from its readings of a commanded load, and check whether it holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from jouletrace.arrays import Floats, Ints
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.sensor.calibration.fitter import Fitter
from jouletrace.sensor.calibration.fluctuation import fluctuation
from jouletrace.sensor.calibration.response import SHAPE, StepResponse
from jouletrace.sensor.stamps import Grid, find_grid
from jouletrace.stats.one_thread import one_thread

_MIN_EDGES = 8
_BINS = 10


@one_thread
def fit_response(
    time_ns: ArrayLike,
    power_w: ArrayLike,
    edges_ns: ArrayLike,
    levels: ArrayLike | None = None,
) -> StepResponse:
    """Fit lag, window, rise and tail, their errors, noise and jitter to readings of a commanded load.

    The load steps between levels at known times, with pulses of many lengths. Its powers aren't
    known: each level has a constant, a drift and a settling that are fitted linearly, while the
    parameters of the response are estimated by least squares around them (variable projection,
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

    Raises:
        BadInputError: If shapes don't match, times don't increase or readings aren't finite.
        NotPossibleError: If there are too few readings or edges, or the load left no trace.
    """
    time = np.asarray(time_ns, np.int64)
    power = np.asarray(power_w, np.float64)
    edges = np.asarray(edges_ns, np.int64)
    level = np.arange(len(edges) + 1) % 2 if levels is None else np.asarray(levels, np.int64)
    _check(time, power, edges, level)

    grid = find_grid(time)
    edges_s = (edges - time[0]) / 1e9
    # Below a hundredth of a period nothing is gained by moving readings to the grid.
    choices = (0, 1, 2) if np.std(grid.late_s) > 0.01 * grid.period_s else (0,)
    fits = [Fitter(grid.taken(parts), power, edges_s, level, grid.period_s) for parts in choices]
    fits[0].search()
    for fit in fits:
        # The grid moves readings by less than a period: the same valley, entered once.
        fit.refine(fits[0].shape)
    best = _likeliest([fit.power - fit.model() for fit in fits])
    fits[best].add_tail()
    response = _result(fits[best], grid, choices[best])
    if response.explained is not None and response.explained < 0.2:
        raise NotPossibleError("calibration: the readings do not follow the load; is it another device's sensor?")
    return response


def _likeliest(errors: list[Floats]) -> int:
    """Which of several fits errs least: by a Cauchy likelihood, in which no single reading decides.

    A few late readings near edges are all that distinguishes one grid from another: their errors must
    count, but not as squares.
    """
    scale = min(float(np.median(np.abs(error))) for error in errors) + 1e-9
    return int(np.argmin([float(np.sum(np.log1p((error / scale) ** 2))) for error in errors]))


def _check(time: Ints, power: Floats, edges: Ints, level: Ints) -> None:
    if time.shape != power.shape or time.ndim != 1:
        raise BadInputError(f"calibration: {time.shape} stamps do not go with {power.shape} readings")
    if level.shape != (len(edges) + 1,):
        raise BadInputError(f"calibration: {len(edges)} edges need {len(edges) + 1} levels, not {len(level)}")
    if np.any(np.diff(time) <= 0) or np.any(np.diff(edges) <= 0):
        raise BadInputError("calibration: stamps and edges must increase; see sensor.power_record.clean")
    if not np.all(np.isfinite(power)):
        raise BadInputError("calibration: readings must be finite; see sensor.power_record.clean")
    if len(edges) < _MIN_EDGES or len(time) < 40:
        raise NotPossibleError(
            f"calibration: {len(edges)} edges and {len(time)} readings are too few; 8 and 40 are needed"
        )
    within = (edges > time[0]) & (edges < time[-1])
    if within.sum() < _MIN_EDGES:
        raise NotPossibleError(f"calibration: only {within.sum()} edges lie within the record; 8 are needed")


def _result(fit: Fitter, grid: Grid, stamp_grid: int) -> StepResponse:
    """The fitted response with its noise, its errors and what it was judged by."""
    shape, period = fit.response(fit.shape), fit.period
    model = fit.model()
    error = fit.power - model
    slope = fit.slope()
    scatter, jitter = fluctuation(error, model, slope, shape)
    reach = shape.lag_s + shape.window_s + 4 * shape.approach_s
    misfit = edge_misfit(fit.time, error, model, fit.edges, period, fit.step_w, reach)
    covariance = fit.covariance()
    # What the shape leaves unexplained around edges acts as an error of the delay.
    covariance[0, 0] += misfit.area_s**2
    level_sd = np.hypot(scatter.noise_w, np.hypot(scatter.noise_relative, scatter.wander_relative) * model)
    strays = stragglers(error, slope, period, fit.step_w, level_sd, jitter)
    swings = gain_swings(error, model, max(2.0, shape.window_s / period + min(2 * scatter.tau_s / period, 6.0)))
    sizes = np.sqrt(np.diag(covariance)).tolist()
    fitted = replace(
        shape,
        period_s=grid.period_s,
        jitter_s=jitter,
        stamp_grid=stamp_grid,
        noise_w=scatter.noise_w,
        noise_relative=scatter.noise_relative,
        wander_relative=scatter.wander_relative,
        noise_tau_s=scatter.tau_s,
        misfit_relative=misfit.rms,
        covariance=tuple(tuple(float(x) for x in row) for row in covariance),
        explained=fit.held_out(),
        flags=fit_flags(misfit, strays, fit.drift(), fit.step_w, swings, grid.lost),
        origin="calibrated",
    )
    uncertainty = {"period_s": grid.period_se_s, **dict(zip(SHAPE, sizes, strict=True)), "delay_s": fitted.delay_sd_s}
    return replace(fitted, uncertainty=uncertainty)


@dataclass(frozen=True)
class EdgeMisfit:
    """Mean residual as a function of the time since an edge, over the size of the load's steps."""

    area_s: float = 0.0  # its area: an error of the mean delay
    worst: float = 0.0  # its largest size
    worst_se: float = float("inf")  # standard error of that
    rms: float = 0.0  # its root mean square, less what chance makes of it


def edge_misfit(
    time_s: Floats, error: Floats, model: Floats, edges_s: Floats, period: float, step_w: float, memory: float
) -> EdgeMisfit:
    """Average the residual over all edges that no other one precedes within a memory.

    Rises and falls apart: a sensor that isn't linear errs in opposite ways on them.
    """
    span = max(memory, 2 * period)
    latest = np.searchsorted(edges_s, time_s) - 1
    delay = time_s - edges_s[np.clip(latest, 0, None)]
    gap = np.append(np.inf, np.diff(edges_s))
    following = np.append(np.diff(edges_s), np.inf)
    after = np.interp(edges_s + 0.9 * np.minimum(span, following), time_s, model)
    before = np.interp(edges_s - 0.1 * period, time_s, model)
    sign = np.sign(after - before)[np.clip(latest, 0, None)]
    use = (latest >= 0) & (delay < span) & (gap > 0.8 * span)[np.clip(latest, 0, None)]
    curves = []
    for way in (1, -1):
        part = use & (sign == way)
        if part.sum() >= 3 * _BINS:
            curves.append(_curve(delay[part] / span, way * error[part] / step_w))
    if not curves:
        return EdgeMisfit()
    mean, se = (np.concatenate(parts) for parts in zip(*curves, strict=True))
    worst = int(np.argmax(np.abs(mean) - 4 * np.where(np.isfinite(se), se, 0)))
    finite = np.isfinite(se)
    rms = np.sqrt(max(float(np.mean(mean[finite] ** 2 - se[finite] ** 2)), 0.0)) if finite.any() else 0.0
    area = float(np.mean(mean)) * span
    return EdgeMisfit(area, float(abs(mean[worst])), float(se[worst]), float(rms))


def _curve(share_of_span: Floats, share: Floats) -> tuple[Floats, Floats]:
    """Mean and standard error in bins of the delay; zero and infinite where readings are few."""
    bins = np.minimum((share_of_span * _BINS).astype(int), _BINS - 1)
    count = np.bincount(bins, minlength=_BINS)
    mean = np.bincount(bins, share, _BINS) / np.maximum(count, 1)
    square = np.bincount(bins, share**2, _BINS) / np.maximum(count, 1)
    se = np.sqrt(np.maximum(square - mean**2, 0) / np.maximum(count - 1, 1))
    few = count < 5
    return np.where(few, 0.0, mean), np.where(few, np.inf, se)


def gain_swings(error: Floats, model: Floats, alike: float) -> tuple[float, float]:
    """How much the sensor's gain moves over the record, in twelve pieces.

    Returns:
        Root mean square of the pieces' gain errors, and what chance would make of it.
    """
    size = model - np.percentile(model, 5)
    gains, chances = [], []
    for part in np.array_split(np.arange(len(error)), 12):
        weight = float(size[part] @ size[part])
        if len(part) < 10 or weight <= 0:
            continue
        gains.append(float(error[part] @ size[part]) / weight)
        chances.append(float(np.sqrt(alike) * np.linalg.norm(error[part] * size[part])) / weight)
    if len(gains) < 4:
        return 0.0, float("inf")
    return float(np.sqrt(np.mean(np.square(gains)))), float(np.sqrt(np.mean(np.square(chances))))


def stragglers(error: Floats, slope: Floats, period: float, step_w: float, level_sd: Floats, jitter_s: float) -> float:
    """Share of readings near edges that neither noise, ``level_sd`` in watts, nor stamps explain."""
    steep = np.abs(slope) * period > 0.1 * step_w
    if steep.sum() < 20:
        return 0.0
    # The load's edges themselves are known to a fiftieth of a period.
    time_sd = np.hypot(jitter_s, 0.02 * period)
    expected = np.sqrt(level_sd[steep] ** 2 + (0.02 * step_w) ** 2 + (slope[steep] * time_sd) ** 2)
    return float(np.mean(np.abs(error[steep]) > 4 * expected))


def fit_flags(
    misfit: EdgeMisfit, strays: float, drift_w: float, step_w: float, swings: tuple[float, float], lost: float
) -> tuple[str, ...]:
    """Codes of what keeps the model from holding, "unmodelled" first if there are any."""
    flags = []
    if (misfit.worst > 0.03 and misfit.worst > 4 * misfit.worst_se) or strays > 0.06:
        flags.append("misfit_at_edges")
    if drift_w > 0.05 * step_w or (swings[0] > 0.02 and swings[0] > 1.2 * swings[1]):
        flags.append("drifting")
    if lost > 0.05:
        flags.append("drops_samples")
    return ("unmodelled", *flags) if flags else ()
