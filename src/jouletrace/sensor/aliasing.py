"""What a sensor that takes samples makes of a load that repeats itself.

A reading of an H100 is made of samples taken every 0.80 to 0.83 ms, not of all that happens in between. A load just as
long is seen at one phase again and again: of DeiT-B at batch 1, 0.797 to 0.798 ms, single windows of 0.8 s came out
between 194 and 249 mJ an iteration on one GPU. The energy counter says the same, as it adds up the same samples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jouletrace.sensor.calibration.response import StepResponse

Floats = NDArray[np.float64]

STRONG = (1, 2, 3)
"""Harmonics of an iteration that hold most of its swing."""

ANY_RATE_U, KNOWN_RATE_U = 0.026, 0.001
"""Relative uncertainty of the sample rate: of GPUs of a kind, each with its own; and of a GPU whose rate a recording
determined, which changes by 0.0003 with temperature."""

_HARMLESS = 0.05
"""Share of a swing that a mean may keep: power swings by a tenth within an iteration, or by a half."""


def aliased(period_s: float, sampling_s: float | None, total_s: float, rate_u: float = ANY_RATE_U) -> bool:
    """Whether the mean power over ``total_s`` of a load with this period may be that of one phase of it."""
    if not sampling_s or not period_s > 0 or not total_s > 0:
        return False
    return share_kept(period_s, sampling_s, total_s, rate_u) > _HARMLESS


def read_in_step(period_s: float, response: StepResponse, total_s: float) -> bool:
    """Whether readings, which come once per period of the response, may show one phase of a load with this period."""
    if not period_s > 0 or not total_s > 0:
        return False
    kept = 0.0
    for harmonic in STRONG:
        frequency = harmonic / period_s
        off = abs(frequency - max(round(frequency * response.period_s), 1) / response.period_s)
        kept = max(kept, response.shown(frequency) / harmonic / max(np.pi * total_s * off, 1.0))
    return kept > _HARMLESS


def share_kept(period_s: float, sampling_s: float, window_s: float, rate_u: float = ANY_RATE_U) -> float:
    """Share of a swing of this period that the mean of a window's samples keeps, at most.

    Sampled with period T, harmonic h of a swing with period t looks like one of frequency ``|h/t - m/T|`` for the
    nearest whole m, and of that ``1 / (π W |h/t - m/T|)`` is left over a window W. Harmonics are taken to fall as 1/h,
    and T to be off for the worse by its relative uncertainty ``rate_u``.
    """
    kept = 0.0
    for harmonic in STRONG:
        turns = harmonic * sampling_s / period_s
        if turns > 3.5:  # what is faster swings less
            continue
        # Windows hold whole iterations: what isn't folded (m = 0) is averaged out.
        off = max(abs(turns - max(round(turns), 1)) - rate_u * turns, 0.0)
        kept = max(kept, 1 / harmonic / max(np.pi * window_s / sampling_s * off, 1.0))
    return kept
