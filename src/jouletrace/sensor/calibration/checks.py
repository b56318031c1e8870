"""Whether a fitted response holds: what the residual does around edges and in the long run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_BINS = 10
_MISFIT_SHARE = 0.03
_DRIFT_SHARE = 0.05
_GAIN_SHARE = 0.02
_LOST_SHARE = 0.05
_STRAGGLER_SHARE = 0.06


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
    known = np.isfinite(se)
    rms = np.sqrt(max(float(np.mean(mean[known] ** 2 - se[known] ** 2)), 0.0)) if known.any() else 0.0
    area = float(np.mean(mean)) * span
    return EdgeMisfit(area, float(abs(mean[worst])), float(se[worst]), float(rms))


def _curve(place: Floats, share: Floats) -> tuple[Floats, Floats]:
    """Mean and standard error in bins of the delay; zero and infinite where readings are few."""
    bins = np.minimum((place * _BINS).astype(int), _BINS - 1)
    count = np.bincount(bins, minlength=_BINS)
    mean = np.bincount(bins, share, _BINS) / np.maximum(count, 1)
    square = np.bincount(bins, share**2, _BINS) / np.maximum(count, 1)
    se = np.sqrt(np.maximum(square - mean**2, 0) / np.maximum(count - 1, 1))
    few = count < 5
    return np.where(few, 0.0, mean), np.where(few, np.inf, se)


def gain_swings(error: Floats, model: Floats, alike: float) -> tuple[float, float]:
    """How much the sensor's gain moves over the record, in twelve pieces.

    Args:
        error: Residual of each reading.
        model: What the model says of it.
        alike: Over how many neighbouring readings residuals are alike, at least 1.

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
    if (misfit.worst > _MISFIT_SHARE and misfit.worst > 4 * misfit.worst_se) or strays > _STRAGGLER_SHARE:
        flags.append("misfit_at_edges")
    if drift_w > _DRIFT_SHARE * step_w or (swings[0] > _GAIN_SHARE and swings[0] > 1.2 * swings[1]):
        flags.append("drifting")
    if lost > _LOST_SHARE:
        flags.append("drops_samples")
    return ("unmodelled", *flags) if flags else ()
