"""Updates of a polled sensor by its stamps: which reads brought news, the period, the grid behind jitter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from jouletrace.arrays import Floats, Ints

_BLOCK = 64
_BINS = 40

OVERSAMPLED = 0.9
"""Rows less than so many periods apart come faster than readings; so many changes a row are one in each."""

_FEWEST, _CHANGES, _PARTS = 6, 16, 4
"""Changes that show a period at the least; of a part of a record; parts that are looked at."""

_MOST = 8192
"""Periods that are tried, the longest: changes don't show one that is much shorter than the time between them."""

_SOONEST, _LONGER = 0.1, 1.3
"""Share of the distances of changes that may be shorter than a period, by how much that may be longer than others."""

_JITTERS, _THROUGHOUT, _CHANCE = (0.0, 0.1, 0.3), 0.75, 0.01
"""Widths over a period by which changes may scatter about their grid; share of the changes that lie on it; probability
that changes at any row seem to."""

_ROUNDING = 1e-6
"""Share of a period by which times are rounded."""

_LOG_FACTORIAL = np.append(0.0, np.cumsum(np.log(np.arange(1, _CHANGES + _FEWEST + 1))))


def updates(time_ns: ArrayLike, value: ArrayLike) -> tuple[Ints, Floats]:
    """Keep the first read of every run of equal values: what a polled sensor really published.

    Two equal successive readings of the sensor look like one; on an idle GPU some updates are
    lost so, and nothing with them.

    Returns:
        Times and values of the reads that brought something new, the very first left out, since
        its age is unknown.
    """
    time, values = np.asarray(time_ns, np.int64), np.asarray(value, np.float64)
    news = np.flatnonzero(np.diff(values) != 0) + 1
    return time[news], values[news]


def published(stamps: Ints, values: Floats, period_s: float) -> tuple[Ints, Floats]:
    """The updates behind polled readings.

    A value that changed is an update. One that stood still for longer than the sensor can go
    without an update was published again: it is put where the update must have been, so that a
    GPU at rest leaves no hole. A segment without polls stays a hole.

    Returns:
        Times and values of the updates. The age of the very first read is unknown: it counts only
        where it stood still for a period and more.
    """
    if len(stamps) == 0:
        return stamps, values
    at, value = updates(stamps, values)
    period = period_s * 1e9
    if len(at) == 0:
        at, value = stamps[:1], values[:1]
    elif at[0] - stamps[0] >= period:
        first = at[0] - round((at[0] - stamps[0]) // period * period)
        at, value = np.append(first, at), np.append(values[0], value)
    until = np.append(at[1:], stamps[-1])
    # An update may be seen up to half a period late before one must have been lost in between.
    repeats = np.maximum(np.floor((until - at) / period - 0.5), 0).astype(np.int64)
    # Only those less than a period from a poll; the poll that saw an update is near those of the one before it too.
    owner = np.concatenate([np.searchsorted(at, stamps, side) - 1 for side in ("left", "right")])
    held = owner >= 0
    owner, poll = owner[held], np.tile(stamps, 2)[held]
    periods = (poll - at[owner]) / period
    owner, number = np.tile(owner, 2), np.concatenate([np.floor(periods), np.ceil(periods)]).astype(np.int64)
    good = (number > 0) & (number <= repeats[owner])
    every = int(repeats.max()) + 1
    owner, number = np.divmod(np.unique(owner[good] * every + number[good]), every)
    times = np.append(at, at[owner] + np.round(number * period).astype(np.int64))
    order = np.argsort(times, kind="stable")
    return times[order], np.append(value, value[owner])[order]


def held_s(time_ns: ArrayLike, value: ArrayLike) -> float | None:
    """Seconds from one reading to the next where a tool wrote each in several rows; None where it didn't.

    Changes of such a record fall on the grid of its readings, throughout. Readings that are equal because they are
    rounded change at any row where power moves: the parts of a record with most changes decide. A change lies anywhere
    between two rows, an arc on a circle of one period. On the grid most arcs of a part share a moment; of changes at
    any row so many do with a probability of ``_CHANCE`` at most, over all periods that are tried.

    Args:
        time_ns: Times of rows, in any order, shape (n,).
        value: Their readings, shape (n,).
    """
    values = np.asarray(value, np.float64)
    there = np.isfinite(values)
    stamps, first = np.unique(np.asarray(time_ns, np.int64)[there], return_index=True)
    time, values = (stamps - stamps[:1]) / 1e9, values[there][first]
    new = np.flatnonzero(np.diff(values)) + 1
    if len(new) < _FEWEST or len(new) > OVERSAMPLED * len(time):
        return None
    row_s = float(np.median(np.diff(time)))
    parts = np.split(new, np.arange(_CHANGES, len(new) - _FEWEST, _CHANGES))
    parts = sorted(parts, key=lambda some: float(np.ptp(time[some])))[:_PARTS]
    gaps = np.concatenate([np.diff(time[some]) for some in parts])
    high = _LONGER * float(np.quantile(gaps, _SOONEST)) + row_s
    if OVERSAMPLED * high <= row_s:  # changes come in bursts, in which rows do
        return None
    step = row_s / float(np.median([np.ptp(time[some]) for some in parts]))  # moves a part's last change by a row
    count = min(math.log(OVERSAMPLED * high / row_s) / step, _MOST)
    periods = high * np.exp(-step * np.arange(count))
    period, score = _likeliest(periods, [(time[some - 1], time[some]) for some in parts], row_s)
    slots = np.round(gaps / period)
    return float(gaps[slots > 0].sum() / slots.sum()) if score > 0 else None


def _likeliest(periods: Floats, arcs: Sequence[tuple[Floats, Floats]], row_s: float) -> tuple[float, float]:
    """The period on whose grid most changes fall, and the logarithm by which chance is less likely than ``_CHANCE``.

    ``arcs`` are from when to when each change of a part may have been, in s.
    """
    candidates, count = [], sum(len(end) for _, end in arcs)
    for jitter in _JITTERS:
        wider_s = np.maximum(jitter * periods, row_s if jitter else 0.0)
        chance, score = np.minimum((row_s + wider_s) / periods, 1.0), np.full(len(periods), math.log(_CHANCE))
        met = np.zeros(len(periods))
        for begin_s, end_s in arcs:
            begin = (begin_s - wider_s[:, None] / 2) / periods[:, None]
            length = np.minimum((end_s - begin_s + wider_s[:, None]) / periods[:, None], 1.0)
            shared = (begin[:, None, :] - begin[:, :, None] + _ROUNDING) % 1 < length[:, :, None]
            most, n = shared.sum(axis=1).max(axis=1), len(end_s)
            # Of n arcs one begins where m - 1 of the others are: less likely than m times (n over m) chance^(m - 1)
            ways = _LOG_FACTORIAL[n] - _LOG_FACTORIAL[most] - _LOG_FACTORIAL[n - most] + np.log(most)
            score -= ways + (most - 1) * np.log(chance)
            met += most
        score = np.where(met < _THROUGHOUT * count, -np.inf, score - math.log(len(_JITTERS) * len(periods)))
        best = int(np.argmax(score))
        candidates.append((float(score[best]), float(periods[best])))
    score_of, period = max(candidates)
    return period, score_of


@dataclass(frozen=True)
class Grid:
    """The regular grid on which a sensor samples, seen through its jittering stamps."""

    period_s: float  # spacing of the grid
    period_se_s: float  # its standard error
    time_s: Floats  # when each reading was taken, in seconds since the first stamp, shape (n,)
    slot: Ints  # number of each reading on the grid, shape (n,); a missing number is a lost reading
    late_s: Floats  # by how much each stamp trails its slot, shape (n,)

    def taken(self, parts: int) -> Floats:
        """When readings were taken if that is only ever at multiples of period / ``parts``.

        Some drivers, when late for a slot, read at the next half of it: one part would put such a
        reading half a period too early. Zero parts: stamps are the times of the readings themselves.
        """
        if parts == 0:
            return np.asarray(self.time_s + self.late_s)
        part = self.period_s / parts
        # a stamp may lie 3 % of a period before its slot by the grid's own error
        missed = np.floor((self.late_s + 0.03 * self.period_s) / part)
        return np.asarray(self.time_s + part * np.maximum(missed, 0))

    @property
    def unsure_s(self) -> Floats:
        """Standard deviation of when each reading was taken, shape (n,): half of what its stamp trails its slot.

        After edges of an H200's bursts readings with late stamps had been taken at the slot in two of three cases, else
        nearly as late as the stamp says: by 0.5 of it, root mean square (n = 21, 2 to 18 ms late, bursts-h200).
        """
        return np.asarray(0.5 * np.maximum(self.late_s, 0.0))

    @property
    def lost(self) -> float:
        """Share of the slots that no reading came from."""
        return 1 - len(np.unique(self.slot)) / (int(np.ptp(self.slot)) + 1)


def find_grid(time_ns: Ints, period_s: float | None = None, only_late: bool = False) -> Grid:
    """Find the sampling grid behind stamps that come late or jitter around it.

    Deviations from the grid live on a circle of one period. They are unrolled at the
    front of their distribution, so that stamps that only come late (by up to almost a period) are distinguished
    from stamps that scatter to both sides. The grid's phase may drift: it follows the median of
    blocks of 64 stamps. The regression of kernels, which needs the sampler's phase, takes ``readout.on_grid``.

    Args:
        time_ns: Increasing stamps, shape (n,), n >= 1.
        period_s: First guess, right to 15 %; the median spacing if None.
        only_late: No stamp comes before its slot, however many are late.
    """
    time = (time_ns - time_ns[0]) / 1e9
    n = len(time)
    if n < 8:
        period = period_s or (float(np.median(np.diff(time))) if n > 1 else float("nan"))
        slot = np.arange(n) if n < 2 else np.round(time / period).astype(np.int64)
        return Grid(period, float("nan"), time, slot, np.zeros(n))
    period = _first_period(time, period_s or float(np.median(np.diff(time))))
    for _ in range(4):
        anchor, phase = _phases(time, period)
        period *= 1 + _median_slope(anchor, phase)
    anchor, phase = _phases(time, period)
    middle = float(np.median(phase))
    spread = float(np.median(np.abs(_wrap(time - middle, period))))
    # The median of a block errs by about 1.9 MAD / √n. If that is all, the grid has not moved.
    if np.std(phase) < 2 * 1.9 * spread / np.sqrt(_BLOCK):
        phase = np.full_like(phase, middle)
    drift = np.interp(time, anchor, phase)
    deviation = _wrap(time - drift, period)
    cut = _front(deviation, period, only_late)
    late = np.where(deviation < cut, deviation + period, deviation)
    taken = time - late
    slot = np.round((taken - drift) / period).astype(np.int64)
    # A period's error is that of its phase at both ends, over the slots in between.
    error = 1.9 * spread / np.sqrt(min(n, _BLOCK)) * np.sqrt(2)
    return Grid(float(period), error / max(float(slot[-1] - slot[0]), 1.0), taken, slot - slot[0], late)


def _first_period(time: Floats, guess: float) -> float:
    """Period near ``guess`` at which stamps are most in phase, of ever longer pieces of the record."""
    frequency, reach = 1 / guess, 0.15 / guess
    time = _longest_stretch(time, guess)
    n = min(_BLOCK, len(time))
    while True:
        piece = time[:n] - time[0]
        resolution = 1 / (4 * max(float(piece[-1]), guess))
        candidates = frequency + resolution * np.arange(-np.ceil(reach / resolution), np.ceil(reach / resolution) + 1)
        phases = np.exp(2j * np.pi * np.outer(candidates, piece))
        frequency, reach = float(candidates[np.argmax(np.abs(phases.sum(1)))]), 2 * resolution
        if n == min(len(time), 16 * _BLOCK):
            return 1 / frequency
        n = min(2 * n, len(time), 16 * _BLOCK)


def _longest_stretch(time: Floats, period: float) -> Floats:
    """The longest part without a hole too long for periods to be counted."""
    # without stamps for longer a count of periods goes wrong
    edges = np.concatenate([[0], np.flatnonzero(np.diff(time) > 10.0 * period) + 1, [len(time)]])
    longest = int(np.argmax(np.diff(edges)))
    return time[edges[longest] : edges[longest + 1]]


def _wrap(x: Floats, period: float) -> Floats:
    """Into [-period/2, period/2)."""
    return np.asarray((x + period / 2) % period - period / 2)


def _phases(time: Floats, period: float) -> tuple[Floats, Floats]:
    """Circular median phase of blocks of stamps, unwrapped, with the middle time of each block."""
    blocks = max(1, len(time) // _BLOCK)
    anchor, phase = np.empty(blocks), np.empty(blocks)
    for i, part in enumerate(np.array_split(time, blocks)):
        angle = np.exp(2j * np.pi * part / period)
        centre = float(np.angle(angle.mean())) / (2 * np.pi) * period
        for _ in range(2):
            centre += float(np.median(_wrap(part - centre, period)))
        anchor[i], phase[i] = part.mean(), centre
    return anchor, np.unwrap(phase, period=period)


def _median_slope(x: Floats, y: Floats) -> float:
    """Theil-Sen slope; zero for a single point."""
    if len(x) < 2:
        return 0.0
    if len(x) > 200:
        pick = np.linspace(0, len(x) - 1, 200).astype(int)
        x, y = x[pick], y[pick]
    i, j = np.triu_indices(len(x), 1)
    return float(np.median((y[j] - y[i]) / (x[j] - x[i])))


def _front(deviation: Floats, period: float, only_late: bool = False) -> float:
    """Where the deviations begin on their circle, at or below zero: the place to unroll it.

    A stamp doesn't come before its reading. Where hardly any lie before the commonest deviation,
    stamps only come late, and what lies farther back is later by almost a period. Where many do,
    they scatter to both sides, and the emptiest place is the best guess, unless they are known to be only late:
    then that is within a tenth of a period.
    """
    counts, edges = np.histogram(deviation, bins=_BINS, range=(-period / 2, period / 2))
    half = counts[: _BINS // 2].astype(float)
    before, beside = np.split(half, [-_BINS // 10])
    few = before.sum() < 0.05 * len(deviation)
    if few or only_late:
        quiet = np.flatnonzero(half <= (0.005 * len(deviation) if few else beside.min()))
        return float(edges[quiet[-1] + 1])
    smooth = np.convolve(np.pad(half, 1, mode="edge"), np.ones(3) / 3, mode="valid")
    emptiest = np.flatnonzero(smooth <= smooth.min() + 0.001 * len(deviation))
    return float(edges[emptiest[len(emptiest) // 2]])
