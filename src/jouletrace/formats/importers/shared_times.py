"""Rows of one device that share a time: rows written twice, readings of several devices, or coarse stamps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from jouletrace.arrays import Floats, Indices, Ints, Mask

_MOST = 0.9
"""Share of the times at which a pattern must be seen: the first and the last may be cut off."""

_COARSE = 2.0
"""Stamps less than so many resolutions apart are coarse: rows that share one may have followed each other."""

_AT_ONCE = 0.1
"""Rows whose distance is less than this share of that to the next ones were written together."""

_MOST_DEVICES = 16
"""Devices of a machine."""

_READ_IN_NS = 50e6
"""A tool that reads the devices of a machine one after the other takes no longer for each."""

_LONG, _ROWS = 2.5, 5
"""Distances from which on rows are missing between two, in usual ones; rows by which it is seen whether time passed."""

_EVEN, _LACKING = 0.05, 0.02
"""Distances that differ by less are even; share of a log's time that is worth a remark if rows come too soon."""

_LEAST = 4
"""Times from which it can be seen that readings alternate."""


def repeated(time: Ints, series: Iterable[Floats], resolution_s: float) -> Mask:
    """True where a row repeats the one before it, in time and in all readings; shape (n,).

    Rows that share a coarse stamp do only if all that share one are equal, and half of the others aren't: else
    they are readings that followed each other. Where a clock goes back, rows repeat those of the same times before if
    nearly every time occurs again, or if the file ends before its latest time and all that share a time are equal.

    Args:
        time: Times of the rows in ns, in the order of the file, shape (n,).
        series: Readings of each channel, NaN where a row has none, shape (n,) each.
        resolution_s: Resolution of the printed stamps.
    """
    again = np.zeros(len(time), bool)
    back, coarse, once = np.any(np.diff(time) < 0), _coarse(time, resolution_s), _times_each(np.sort(time)) == 1
    if len(time) < 2 or (once and (time[-1] == time.max() if back else coarse)):
        return again
    order = np.argsort(time, kind="stable")
    shared, equal = np.diff(time[order]) == 0, np.ones(len(time) - 1, bool)
    for values in series:
        before, after = values[order][:-1], values[order][1:]
        equal &= (before == after) | (np.isnan(before) & np.isnan(after))
    if (coarse or (back and once)) and not (np.all(equal[shared]) and np.mean(equal[~shared]) <= 0.5):
        return again
    again[order[1:]] = shared & equal
    return again


def steps_back(time: Ints, resolution_s: float) -> tuple[Ints, Ints, int]:
    """Rows before which a clock stepped back, by how many ns rows from there on are early, and the usual distance.

    Rows of times that were lived twice lie among those before the step, and less time passed than so many rows take.
    A row that comes late lies between two others. Of rows in no order at all no one knows what followed what.

    Args:
        time: Times of one device's readings in ns, in the order of the file, shape (n,).
        resolution_s: Resolution of the printed stamps; rows that share a coarse one followed each other.
    """
    apart, none = np.diff(time), np.empty(0, np.int64)
    back = np.flatnonzero(apart < (0 if _coarse(time, resolution_s) else 1)) + 1
    if not np.any(apart > 0) or len(back) > max(1, (1 - _MOST) * len(time)):
        return none, none, 0
    usual = float(np.median(apart[apart > 0]))
    each = float(apart[(apart >= 0) & (apart < _LONG * usual)].mean())  # of a row, where several share a stamp
    ordered = np.sort(time)
    near = np.searchsorted(ordered, time + usual / 2, "right") - np.searchsorted(ordered, time - usual / 2)
    twice = np.maximum(near[back], near[back - 1]) >= 1.5 * usual / each
    since = np.maximum(back - _ROWS, 0)
    short = (back - since) * each - (time[back] - time[since]) > each / 2
    before = time[back] < np.minimum.accumulate(time)[back - 1]
    steps = back[short & (twice | before) & (np.append(apart, 0)[back] < 1.5 * usual)]
    return steps, np.round(usual - apart[steps - 1]).astype(np.int64), round(usual)


def in_no_order(time: Ints) -> bool:
    """True of rows neither in the order of time nor in its reverse: so many steps back aren't those of a clock."""
    return len(time) > _LEAST and 1 - _MOST < float(np.mean(np.diff(time) < 0)) < _MOST


def hurried(time: Ints, resolution_s: float) -> tuple[int, float, float]:
    """Number of rows that come too soon though none came late, the usual distance and what time they lack, in s.

    A row between two others comes too soon, and so does the next.
    """
    apart = np.diff(time)
    usual = float(np.median(apart)) if len(apart) and not _coarse(time, resolution_s) else 0.0
    soon = apart < (1 - _EVEN) * usual
    lacking = float(np.sum(usual - apart, where=soon) - np.sum(np.maximum(apart - usual, 0)))
    sure = soon.sum() >= _LEAST and np.mean(soon[1:] & soon[:-1]) < _EVEN and apart.min() >= 0
    if not sure or np.mean(np.abs(apart - usual) < _EVEN * usual) < 0.5 or lacking < _LACKING * np.ptp(time):
        return 0, 0.0, 0.0
    return int(soon.sum()), usual / 1e9, lacking / 1e9


def readings_at_once(time: Ints, power: Floats, resolution_s: float, bursts: bool = False) -> tuple[int, bool]:
    """The number of readings of power at each time, and True if it is certain that they are of so many devices.

    Readings of one device that followed each other within a coarse stamp can't be distinguished from those of several
    devices by their times. They are of several if they alternate: up within a stamp, down to the next, at nearly all;
    and if they come in ``bursts``, which the tool only writes of several. Within one of these their stamps may be in
    any order. Three or more readings that aren't written at once may be of one device, logged now and then for a while.
    """
    order = np.argsort(time, kind="stable")
    ordered, watts = time[order], power[order]
    new = _begin(ordered, 0.0)
    each = _times_each(ordered)
    if np.any(np.diff(time) < 0) and not (bursts and in_no_order(time)):
        return each, each > 1 and _differ(new, watts)
    coarse = _coarse(time, resolution_s)
    if coarse and each > 1:
        return each, _alternate(new, watts, each)
    if not coarse and _differ(new, watts):
        sizes = _sizes(new)
        return max(each, int(np.median(sizes[sizes > 1]))), True
    close = _begin(ordered, _AT_ONCE * _spacing(ordered))
    together = _usual(_sizes(close))
    within = float(np.median(np.diff(ordered)[~close[1:]])) if together > 1 else 0.0
    if 2 * (together - 1) * within > _spacing(ordered):  # a log with holes
        return 1, False
    slow = within >= _READ_IN_NS
    if slow and bursts:
        return 1, False
    pair = together == 2
    return together, together > 1 and (bursts or ((pair or not slow) and _alternate(close, watts, together)))


def _sizes(new: Mask) -> Indices:
    """Numbers of rows of groups, each of which begins where ``new`` is set."""
    return np.diff(np.append(np.flatnonzero(new), len(new)))


def _usual(sizes: Indices) -> int:
    """The size that nearly all groups have; 1 if they differ."""
    usual = int(np.median(sizes)) if len(sizes) else 1
    return usual if len(sizes) and np.mean(sizes == usual) >= _MOST else 1


def _times_each(ordered: Ints) -> int:
    """The number of times that nearly every stamp occurs; 1 if that differs."""
    return _usual(_sizes(_begin(ordered, 0.0)))


def _coarse(time: Ints, resolution_s: float) -> bool:
    """True if stamps are about as far apart as they can be printed."""
    steps = np.diff(np.unique(time))
    return len(steps) > 0 and float(np.median(steps)) < _COARSE * resolution_s * 1e9


def _differ(new: Mask, watts: Floats) -> bool:
    """True if half of the groups or more hold several readings that differ."""
    starts = np.flatnonzero(new)
    if not len(starts):
        return False
    spread = np.maximum.reduceat(watts, starts) - np.minimum.reduceat(watts, starts)
    return bool(np.mean(spread > 0) >= 0.5)


def _begin(ordered: Ints, most_ns: float) -> Mask:
    """True where a row begins a group, whose rows are at most so far apart."""
    return np.concatenate([[True], np.diff(ordered) > most_ns])[: len(ordered)]


def _spacing(ordered: Ints) -> float:
    """The distance in ns of groups of rows that were written together, one of each device."""
    gaps = np.diff(ordered).astype(np.float64)
    return float(np.quantile(gaps, 1 - 0.25 / _MOST_DEVICES)) if len(gaps) else 0.0


def _alternate(new: Mask, watts: Floats, size: int) -> bool:
    """True if in groups of ``size`` readings one place is nearly always above another, and not by a rise."""
    starts = np.flatnonzero(new)[_sizes(new) == size]
    if len(starts) < _LEAST:
        return False
    groups = watts[starts[:, None] + np.arange(size)]
    means = groups.mean(0)
    low, high = groups[:, int(means.argmin())], groups[:, int(means.argmax())]
    pairs = ((high, low), (high[1:], low[:-1]), (high[:-1], low[1:]))
    return all(bool(np.mean(above > below) >= _MOST) for above, below in pairs)
