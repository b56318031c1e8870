"""At which rate a board's power sensor samples, told by what its readings make of loads that repeat themselves.

An H100 puts out a reading every 20.000 ms, of samples that a clock of its own takes: 1207 to 1253 a second on the
boards that were looked at, each board's rate its own to 0.1 Hz over half an hour (docs/results/sampling-h100.md).
A load with period T swings at 1/T and its multiples. Sampled at rate r that looks like a swing at ``h/T - m r``, which
is slow, and read out 50 times a second like one slower than 25 Hz: readings swing at the distance of ``h/T`` from the
nearest of the frequencies ``m r + 50 n``. On such a frequency a window's readings don't swing: they are all off alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SURE_HZ = 0.6
"""How well a rate is known from a dozen windows; 0.1 Hz from a hundred."""

_SLOWEST, _FASTEST = 0.01, 0.46
"""Frequencies of readings that tell, over that of readings: slower ones look like drift."""

_STEP_HZ = 0.05
_APART_HZ = 1.6
LONG = 2.0
"""Samples in a period from which on it isn't known how much a load swings near their frequency: with fewer that is
near its own first harmonics, with more it depends on what happens in an iteration."""

_SHORTEST = 0.7
"""Shortest period that tells, over the time between samples: of shorter ones the first harmonic is folded twice."""

_FEWEST, _MOST = 10, 500
"""Readings of a stretch that tell, and that are looked at: in more than 10 s a frequency shows so sharply that it falls
between two of those that are tried."""

_LIKELY, _BY_CHANCE, _CLEAR = 40.0, 5.0, 0.8
"""Log likelihood that a rate must gain over none: at least so much, and this times the root of how many windows tell,
as what chance gains adds up; and how much of that any other may gain."""

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


@dataclass(frozen=True)
class Repetition:
    """Readings while a load repeated itself.

    Attributes:
        period_s: Of the load.
        time_s: Of each reading, from anywhere, shape (n,).
        power_w: Shape (n,).
    """

    period_s: float
    time_s: Floats
    power_w: Floats


@dataclass(frozen=True)
class SamplingRate:
    """How a board's sensor samples.

    Attributes:
        rate_hz: Samples a second.
        readout_s: From one reading to the next.
        sure_hz: How far off the rate may be.
    """

    rate_hz: float
    readout_s: float
    sure_hz: float = SURE_HZ


def sampling_rate(some: Sequence[Repetition], readout_s: float, nominal_hz: float) -> SamplingRate | None:
    """The rate, by maximum likelihood; None where readings don't tell it from others.

    Args:
        some: Of loads with several periods: with one alone a rate can't be told from its mirror image.
        readout_s: From one reading to the next.
        nominal_hz: Half a readout's frequency off at most.
    """
    comb_hz = 1 / readout_s
    rates = nominal_hz + np.arange(-comb_hz / 2, comb_hz / 2, _STEP_HZ)
    gained = np.zeros(len(rates))
    for one in some:
        turns = rates * one.period_s
        if len(one.time_s) < _FEWEST or turns.max() < _SHORTEST:
            continue
        for harmonic in (np.maximum(np.floor(turns), 1.0), np.ceil(turns)):  # those nearest to the rate show most
            gained += _gained(one, np.abs(_off(harmonic / one.period_s - rates, comb_hz)), comb_hz)
    best = int(np.argmax(gained))
    others = np.abs(_off(rates - rates[best], comb_hz)) > _APART_HZ
    if gained[best] < max(_LIKELY, _BY_CHANCE * math.sqrt(len(some))) or gained[others].max() > _CLEAR * gained[best]:
        return None
    return SamplingRate(float(rates[best]), readout_s)


def _gained(one: Repetition, swing_hz: Floats, comb_hz: float) -> Floats:
    """Log likelihood that swings with these frequencies gain over a straight line, less what chance gains."""
    time = one.time_s - one.time_s.mean()
    line, _ = np.linalg.qr(np.column_stack([np.ones(len(time)), time]))
    left = one.power_w - line @ (line.T @ one.power_w)
    total = float(left @ left)
    gained = np.zeros(len(swing_hz))
    tell = (swing_hz > _SLOWEST * comb_hz) & (swing_hz < _FASTEST * comb_hz)
    if total <= 0 or not tell.any():
        return gained
    angle = 2 * np.pi * np.outer(swing_hz[tell], time)
    # Slow swings look much like a line: least squares of what they have beside it.
    cosine, sine = (wave - (wave @ line) @ line.T for wave in (np.cos(angle), np.sin(angle)))
    cc, ss, cs = (cosine**2).sum(1), (sine**2).sum(1), (cosine * sine).sum(1)
    c, s = cosine @ left, sine @ left
    explained = (c**2 * ss - 2 * c * s * cs + s**2 * cc) / (cc * ss - cs**2) / total
    free = len(time) - 4  # a line and a swing are taken from the readings
    gained[tell] = -len(time) / 2 * np.log(1 - np.clip(explained, 0.0, 0.97)) - len(time) / free
    return gained


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
    harmonic = np.arange(1, 1 + max(4, math.ceil(_HIGHEST * sampling.rate_hz * float(period.max(initial=0.0)))))[
        :, None
    ]
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
        off = np.maximum(np.abs(_off(slow, 1 / sampling.readout_s)) - fold * sampling.sure_hz, 0.0)
        kept = 1 / np.maximum(np.pi * window * off, 1.0) ** 2 + _IRREGULAR * sampling.readout_s / window
        variance += ((swing * passed) ** 2 * kept / 2).sum(axis=0)
    return np.asarray(variance.reshape(shape), np.float64)


def _off(frequency: Floats, comb_hz: float) -> Floats:
    """Distance from the nearest multiple of the readings' frequency, with its sign."""
    return np.asarray((frequency + comb_hz / 2) % comb_hz - comb_hz / 2)


def repetitions(
    stamp_ns: NDArray[np.int64],
    power_w: Floats,
    windows: Iterable[tuple[int, int, float]],
    memory_s: float,
) -> list[Repetition]:
    """Readings of windows, without those that remember what was before.

    Args:
        stamp_ns: When readings came, ascending, shape (n,).
        power_w: Finite, shape (n,).
        windows: Start and end in ns, and period of the load in seconds, of each.
        memory_s: For how long readings remember.
    """
    found = []
    for start_ns, end_ns, period_s in windows:
        first, last = np.searchsorted(stamp_ns, [start_ns + round(memory_s * 1e9), end_ns])
        last = min(last, first + _MOST)
        if last > first:
            time_s = (stamp_ns[first:last] - stamp_ns[first]) / 1e9
            found.append(Repetition(period_s, time_s, power_w[first:last]))
    return found
