"""Levels of a power record: a quiet segment, its slope with temperature."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from jouletrace.errors import BadInputError
from jouletrace.run import Estimate
from jouletrace.stats.interval import effective_n, mean_estimate
from jouletrace.stats.quantiles import student


def quiet_level(power_w: ArrayLike, *, method: str = "baseline") -> Estimate:
    """Mean power of a segment in which nothing changed, its interval allowing for correlation.

    Null ("too_few_values") below two readings.
    """
    return mean_estimate(power_w, correlated=True, method=method)


def temperature_slope(temperature_c: ArrayLike, power_w: ArrayLike) -> Estimate:
    """Watts per kelvin of a quiet GPU, by regression of its power on its temperature.

    Null with reason "too_few_values" below eight readings, or "temperature_did_not_vary" if it
    covers less than 2 K: thermometers count in whole degrees.
    """
    t, p = np.asarray(temperature_c, np.float64), np.asarray(power_w, np.float64)
    if t.shape != p.shape or t.ndim != 1:
        raise BadInputError(f"baseline: {t.shape} temperatures do not go with {p.shape} powers")
    if len(t) < 8:
        return Estimate.null("too_few_values", "regression")
    if np.ptp(t) < 2:
        return Estimate.null("temperature_did_not_vary", "regression")
    centred = t - t.mean()
    slope = float(centred @ p / (centred @ centred))
    residual = p - p.mean() - slope * centred
    # The score, not the residual, is what adds up to the slope's error.
    worth = min(effective_n(residual), effective_n(centred * residual))
    free = max(worth - 2, 1.0)
    sd = float(np.sqrt(residual @ residual / (centred @ centred) / free))
    half = student(0.975, free) * sd
    return Estimate(slope, slope - half, slope + half, len(t), "regression")
