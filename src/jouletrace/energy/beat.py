"""What a sensor that takes samples makes of a load that repeats itself.

A reading of an H100 is made of samples taken every 0.80 to 0.83 ms, not of all that happens in between. A load just as
long is seen at one phase again and again: of DeiT-B at batch 1, 0.797 to 0.798 ms, single windows of 0.8 s came out
between 194 and 249 mJ an iteration on one board. The energy counter says the same, as it adds up the same samples.
How often a board's sensor samples is known roughly, or told by its readings (``energy.sampling_rate``): then what that
does to each window is known too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from jouletrace.energy.sampling_rate import SamplingRate, off_comb

Floats = NDArray[np.float64]

STRONG = (1, 2, 3)
"""Harmonics of an iteration that hold most of its swing."""

SLOW = 3.5
"""Turns of a swing from one sample to the next up to which it counts as strong: what is faster swings less."""

SURE = 0.025
"""How far the time between samples may be from what is stated, relative: each board has its own."""

_HARMLESS = 0.05
"""Share of a swing that a mean may keep: power swings by a tenth within an iteration, or by a half."""

LONG = 2.0
"""Samples in a period from which on it isn't known how much a load swings near their frequency: with fewer that is
near its own first harmonics, with more it depends on what happens in an iteration."""

_FILTER_S = 0.0141
"""Of the low-pass behind the samples: amplitudes of readings go as 4 Hz over ``|1/T - r|`` on three boards."""

_HIGHEST = 3.2
"""Frequencies that count, over the rate: a third harmonic on twice the rate made readings swing by 8 %, a fifth on four
times the rate didn't show."""

_NOTHING_S = 1e-9
"""Period that stands for none: a step that is one operator, without it and without a pause."""

_IRREGULAR = 0.5
"""Share of a swing's variance in readings that averages out no better than noise: windows of DeiT-B scatter by 0.7
times what readings swing by over the root of their number, on and off the beat."""

_OWN, _PAUSED = 0.1, 0.5
"""Amplitudes over the mean power: of a step's own swing at each multiple of its frequency, taken to fall as 1/f above
the rate, and of what a pause adds that lasts the share d of a period: times ``|sin(π h d)| / h`` for harmonic h, as of
any square pulse. DeiT-B's readings swung by 0.11 to 0.14 without a pause, by 0.35 with one of a quarter of the period,
and by 0.1 at the twelfth harmonic with one in pieces, at batch 64."""


def beats(period_s: float, sampling_s: float | None, total_s: float) -> bool:
    """Whether the mean power of a load may be that of one phase of it.

    Args:
        period_s: Of the load.
        sampling_s: From one sample of the sensor to the next; None where it isn't known.
        total_s: Over which the mean is taken, many periods.
    """
    if not sampling_s or not period_s > 0 or not total_s > 0:
        return False
    return bool(left(np.array([period_s]), sampling_s, total_s)[0] > _HARMLESS)


def left(
    period_s: Floats,
    sampling_s: float,
    window_s: float,
    harmonics: Iterable[int] = STRONG,
    slow: float = SLOW,
    sure: float = SURE,
) -> Floats:
    """Share of a swing of this period that the mean of a window's samples keeps, at most; shape as ``period_s``.

    Sampled with period T, harmonic h of a swing with period t looks like one of frequency ``|h/t - m/T|`` for the
    nearest whole m, and of that ``1 / (π W |h/t - m/T|)`` is left over a window W. Harmonics are taken to fall as 1/h,
    and T to be off for the worse.

    Args:
        period_s: t.
        sampling_s: T.
        window_s: W.
        harmonics: Which h.
        slow: Turns of a harmonic from one sample to the next up to which it counts.
        sure: How far T may be off, relative.
    """
    kept = np.zeros_like(period_s)
    period = np.maximum(period_s, _NOTHING_S)  # a step that is one operator, without it, has none
    for harmonic in harmonics:
        turns = harmonic * sampling_s / period
        # Windows hold whole iterations: what isn't folded (m = 0) is averaged out.
        off = np.maximum(np.abs(turns - np.maximum(np.round(turns), 1.0)) - sure * turns, 0.0)
        share = 1 / harmonic / np.maximum(np.pi * window_s / sampling_s * off, 1.0)
        kept = np.maximum(kept, np.where(turns <= slow, share, 0.0))
    return kept


def seen_variance(
    period_s: Floats,
    window_s: Floats | float,
    sampling: SamplingRate,
    pause_s: Floats | float = 0.0,
    pieces: NDArray[np.int64] | int = 1,
) -> Floats:
    """Variance of a window's mean power, relative, that comes of what the samples miss; shape of ``period_s``.

    Of a swing at d Hz from the nearest frequency at which readings don't swing ``1 / (π W d)`` is left over a window
    W, and windows begin at any phase of it.

    Args:
        period_s: Of the load, the pause included.
        window_s: W, one or of the same shape.
        sampling: The board's.
        pause_s: Of each period, one or of the same shape.
        pieces: In how many, evenly spread, the pause is made.
    """
    shape = np.shape(period_s)
    period, window, pause, split = (
        np.broadcast_to(np.asarray(some, np.float64), shape).ravel() for some in (period_s, window_s, pause_s, pieces)
    )
    period = np.maximum(period, _NOTHING_S)
    most = max(4, math.ceil(_HIGHEST * sampling.rate_hz * float(period.max(initial=0.0))))
    harmonic = np.arange(1, most + 1)[:, None]
    frequency = harmonic / period
    share = pause / period
    pulse = np.where(harmonic % split == 0, _PAUSED * np.sin(np.pi * harmonic * share / split) * split / harmonic, 0.0)
    swing = np.hypot(_OWN * np.minimum(sampling.rate_hz / frequency, 1.0), pulse)
    swing[frequency > _HIGHEST * sampling.rate_hz] = 0.0
    variance = np.zeros(len(period))
    nearest = np.maximum(np.round(frequency / sampling.rate_hz), 1.0)
    for fold in (np.zeros_like(nearest), nearest):
        slow = frequency - fold * sampling.rate_hz
        passed = 1 / np.hypot(1.0, 2 * np.pi * _FILTER_S * slow)
        off = np.maximum(np.abs(off_comb(slow, 1 / sampling.readout_s)) - fold * sampling.sure_hz, 0.0)
        kept = 1 / np.maximum(np.pi * window * off, 1.0) ** 2 + _IRREGULAR * sampling.readout_s / window
        variance += ((swing * passed) ** 2 * kept / 2).sum(axis=0)
    return np.asarray(variance.reshape(shape), np.float64)
