"""Noise about a steady load: independent, correlated, and that of the stamps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_NOISE_SHARE = 0.3


@dataclass(frozen=True)
class Fluctuation:
    """How readings scatter about a steady load.

    Attributes:
        noise_w: Independent noise at no power.
        noise_relative: Independent noise that grows with the power, over that power.
        wander_relative: Correlated fluctuation under load, over the load's power.
        tau_s: Correlation time of the latter.
    """

    noise_w: float
    noise_relative: float
    wander_relative: float
    tau_s: float


def averaged_correlation(delay_s: NDArray[np.float64], tau_s: float, window_s: float) -> NDArray[np.float64]:
    """Autocovariance of unit Ornstein-Uhlenbeck noise after a boxcar; shape of ``delay_s``, >= 0.

    Second difference of the twice integrated exponential kernel.
    """
    if window_s < 1e-9 * max(tau_s, 1e-9):
        return np.asarray(np.exp(-delay_s / tau_s))

    def twice(d: NDArray[np.float64]) -> NDArray[np.float64]:
        size = np.abs(d)
        return np.asarray(tau_s * size + tau_s**2 * np.expm1(-size / tau_s))

    return np.asarray((twice(delay_s + window_s) - 2 * twice(delay_s) + twice(delay_s - window_s)) / window_s**2)


def fluctuation(
    error: NDArray[np.float64],
    model: NDArray[np.float64],
    slope: NDArray[np.float64],
    period: float,
    window: float,
) -> tuple[Fluctuation, float]:
    """Split the residual into noise, correlated fluctuation and error of the stamps.

    Returns:
        The fluctuation, and the standard deviation of the time error of a reading in seconds.
    """
    step = np.ptp(model)
    steep = np.abs(slope) * period > 0.05 * step
    flat = ~steep
    high = model > model.min() + 0.5 * step
    parts = []
    for part in (flat & ~high, flat & high):
        parts.append(_noise_and_wander(error, part, period, window))
    (low_noise, _, _), (high_noise, high_wander, tau) = parts
    low_w = float(np.median(model[flat & ~high])) if np.any(flat & ~high) else 0.0
    high_w = float(np.median(model[flat & high])) if np.any(flat & high) else float(np.median(model))
    # var = noise² + (relative · power)²: two levels give both, neither below zero. Under load the
    # power's own fluctuation hides a proportional noise; at least half of what shows at rest may
    # be of that kind.
    relative2 = (high_noise**2 - low_noise**2) / max(high_w**2 - low_w**2, 1e-9)
    relative2 = max(relative2, 0.5 * low_noise**2 / max(low_w**2, 1e-9)) if low_w > 0 else max(relative2, 0.0)
    absolute2 = max(low_noise**2 - relative2 * low_w**2, 0.0)
    # A time error δ moves a reading by slope · δ, beyond what scatters there anyway.
    jitter = 0.0
    if steep.sum() >= 10:
        level_var = np.interp(model, [low_w, max(high_w, low_w + 1e-9)], [low_noise**2, high_noise**2 + high_wander**2])
        ratio = (error[steep] ** 2 - level_var[steep]) / slope[steep] ** 2
        # The median of δ² for a Gaussian is 0.455 of its mean; stragglers don't count.
        jitter = float(np.sqrt(max(0.0, np.median(ratio) / 0.455)))
    found = Fluctuation(float(np.sqrt(absolute2)), float(np.sqrt(relative2)), high_wander / max(high_w, 1e-9), tau)
    return found, min(jitter, period)


def _noise_and_wander(
    error: NDArray[np.float64], part: NDArray[np.bool_], period: float, window: float
) -> tuple[float, float, float]:
    """Independent noise, correlated standard deviation and its time constant, of some readings."""
    values = np.where(part, error, np.nan)
    if part.sum() < 12:
        return float(np.std(error[part])) if part.any() else 0.0, 0.0, 3 * period
    values = np.clip(values - np.nanmedian(values), *(_clip(values[part])))
    lags = np.arange(6, dtype=np.float64)
    seen = np.array(
        [np.nanmean(values[k:] * values[: len(values) - k]) if _pairs(part, k) >= 8 else np.nan for k in range(6)]
    )
    scatter = max(float(seen[0]), 1e-12)
    best = (np.inf, float(np.sqrt(scatter)), 0.0, 3 * period)
    later = np.isfinite(seen[1:])
    if not later.any():
        return best[1:]
    for tau in (period * np.geomspace(0.3, 60, 40)).tolist():
        shape = averaged_correlation(lags * period, tau, window)
        tail, tail_seen = shape[1:][later], seen[1:][later]
        size = float(np.clip(tail @ tail_seen / max(tail @ tail, 1e-30), 0.0, scatter / shape[0]))
        noise = max(scatter - size * float(shape[0]), 0.0)
        # Sampling error of an autocovariance is about variance / sqrt(n). A slow sensor hardly tells
        # noise from fast fluctuation: then the power fluctuates, rather than the sensor.
        misfit = part.sum() * float(np.sum((tail_seen - size * tail) ** 2)) / scatter**2
        cost = misfit + (noise / scatter / _NOISE_SHARE) ** 2
        if cost < best[0]:
            best = (cost, float(np.sqrt(noise)), float(np.sqrt(size)), tau)
    return best[1:]


def _clip(values: NDArray[np.float64]) -> tuple[float, float]:
    spread = 5 * 1.4826 * float(np.median(np.abs(values - np.median(values)))) + 1e-9
    return -spread, spread


def _pairs(part: NDArray[np.bool_], lag: int) -> int:
    return int(np.sum(part[lag:] & part[: len(part) - lag]))
