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

_STEP_HZ, _APART_HZ = 0.05, 1.6
"""Between rates that are tried, and from where on one is another."""

_SHORTEST = 0.7
"""Shortest period that tells, over the time between samples: of shorter ones the first harmonic is folded twice."""

_FEWEST, _MOST = 10, 500
"""Readings of a stretch that tell, and that are looked at: in more than 10 s a frequency shows so sharply that it falls
between two of those that are tried."""

_LIKELY, _BY_CHANCE, _CLEAR = 40.0, 5.0, 0.8
"""Log likelihood that a rate must gain over none: at least so much, and this times the root of how many windows tell,
as what chance gains adds up; and how much of that any other may gain."""


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
            gained += _gained(one, np.abs(off_comb(harmonic / one.period_s - rates, comb_hz)), comb_hz)
    best = int(np.argmax(gained))
    others = np.abs(off_comb(rates - rates[best], comb_hz)) > _APART_HZ
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


def off_comb(frequency: Floats, comb_hz: float) -> Floats:
    """Distance of frequencies from the nearest multiple of that of readings, with its sign; shape of ``frequency``."""
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
