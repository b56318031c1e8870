"""Noise about a steady load: independent, correlated, and that of the stamps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jouletrace.arrays import Floats, Mask
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.stats.quantiles import SD_OVER_MAD

_PIECES = 64


@dataclass(frozen=True)
class Fluctuation:
    """How readings scatter about a steady load."""

    noise_w: float  # independent noise at no power
    noise_relative: float  # independent noise that grows with the power, over that power
    wander_relative: float  # correlated fluctuation under load, over the load's power
    tau_s: float  # correlation time of the latter


class Kernel:
    """A response in pieces, and how alike two readings of a fluctuating power are."""

    def __init__(self, response: StepResponse) -> None:
        length = max(response.memory_s - max(response.lag_s, 0.0), 1e-6)
        bounds = np.linspace(0.0, length, _PIECES + 1)
        weight = np.diff(response.step(bounds + response.lag_s))
        weight /= weight.sum()
        self.product = np.correlate(weight, weight, "full")
        self.apart = (np.arange(2 * _PIECES - 1) - (_PIECES - 1)) * length / _PIECES

    def correlation(self, delay_s: Floats, tau_s: float) -> Floats:
        """Autocovariance of unit Ornstein-Uhlenbeck noise as readings see it; shape of ``delay_s``, >= 0."""
        return np.asarray(np.exp(-np.abs(delay_s[..., None] + self.apart) / tau_s) @ self.product)


def fluctuation(error: Floats, model: Floats, slope: Floats, response: StepResponse) -> tuple[Fluctuation, float]:
    """Split the residual into noise, correlated fluctuation and error of the stamps.

    What the power does is alike in neighbouring readings, the more so the more they overlap; what
    the sensor adds is not.

    Returns:
        The fluctuation, and the standard deviation of the time error of a reading in seconds.
    """
    step, period = np.ptp(model), response.period_s
    kernel = Kernel(response)
    steep = np.abs(slope) * period > 0.05 * step
    flat = ~steep
    high = model > model.min() + 0.5 * step
    parts = []
    for part in (flat & ~high, flat & high):
        parts.append(_noise_and_wander(error, part, period, kernel))
    (low_noise, _, _), (high_noise, high_wander, tau) = parts
    low_w = float(np.median(model[flat & ~high])) if np.any(flat & ~high) else 0.0
    high_w = float(np.median(model[flat & high])) if np.any(flat & high) else float(np.median(model))
    # var = noise² + (relative · power)²: two levels give both, neither below zero.
    count = [max(int(np.sum(part)), 1) for part in (flat & ~high, flat & high)]
    both2 = np.array([low_noise, high_noise]) ** 2
    relative2 = max(float(both2[1] - both2[0]) / max(high_w**2 - low_w**2, 1e-9), 0.0)
    # Where the power's own fluctuation would hide it, half of what shows at rest may grow with the power.
    scatter = float(np.var(error[flat & high])) if np.any(flat & high) else 0.0
    hidden = 0.5 * low_noise**2 / max(low_w**2, 1e-9)
    if hidden * high_w**2 < 2 * scatter * np.sqrt(2 / count[1]):
        relative2 = max(relative2, hidden)
    absolute2 = float(np.average(both2, weights=count)) if relative2 == 0 else low_noise**2 - relative2 * low_w**2
    if absolute2 < 0:
        absolute2, relative2 = 0.0, float(np.average(both2 / np.array([low_w, high_w]) ** 2, weights=count))
    jitter = 0.0
    if steep.sum() >= 10:
        level_var = np.interp(model, [low_w, max(high_w, low_w + 1e-9)], [low_noise**2, high_noise**2 + high_wander**2])
        jitter = _time_error(error[steep], slope[steep], level_var[steep], period)
    sizes = Fluctuation(float(np.sqrt(absolute2)), float(np.sqrt(relative2)), high_wander / max(high_w, 1e-9), tau)
    return sizes, jitter


def _time_error(error: Floats, slope: Floats, level_var: Floats, most_s: float) -> float:
    """Standard deviation of a time error in s: it moves readings by the slope, beyond what scatters anyway.

    By the median, for which stragglers don't count; of a squared Gaussian it is 0.455 of the mean.
    """
    from scipy.optimize import brentq  # slow to import, and calibrations alone need it

    def excess(time_s: float) -> float:
        expected = np.maximum(level_var + (slope * time_s) ** 2, 1e-12)
        return float(np.median(error**2 / expected)) - 0.455

    if excess(0.0) <= 0:
        return 0.0
    return most_s if excess(most_s) >= 0 else float(brentq(excess, 0.0, most_s, xtol=1e-6))


def _noise_and_wander(error: Floats, part: Mask, period: float, kernel: Kernel) -> tuple[float, float, float]:
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
        shape = kernel.correlation(lags * period, tau)
        tail, tail_seen = shape[1:][later], seen[1:][later]
        size = float(np.clip(tail @ tail_seen / max(tail @ tail, 1e-30), 0.0, scatter / shape[0]))
        noise = max(scatter - size * float(shape[0]), 0.0)
        # Sampling error of an autocovariance is about variance / sqrt(n). A slow sensor hardly distinguishes
        # noise from fast fluctuation: then the power fluctuates, rather than the sensor.
        misfit = part.sum() * float(np.sum((tail_seen - size * tail) ** 2)) / scatter**2
        usual = np.log(tau / 0.05) / 0.5  # that of GPUs is 50 ms, up to a factor of 1.6, where it can't be determined
        cost = misfit + usual**2
        if cost < best[0]:
            best = (cost, float(np.sqrt(noise)), float(np.sqrt(size)), tau)
    return best[1:]


def _clip(values: Floats) -> tuple[float, float]:
    spread = 5 * SD_OVER_MAD * float(np.median(np.abs(values - np.median(values)))) + 1e-9
    return -spread, spread


def _pairs(part: Mask, lag: int) -> int:
    return int(np.sum(part[lag:] & part[: len(part) - lag]))
