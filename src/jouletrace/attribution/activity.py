"""The timeline of kernels as disjoint intervals, and the share of each column of them in samples and windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csr_matrix

from jouletrace.arrays import Floats, Ints, Mask
from jouletrace.errors import BadInputError
from jouletrace.sensor.models import SampleResponse
from jouletrace.sensor.shares import Timeline

MOST_SETS = 16
"""Sets of kinds that run at once, those with most time, that have a power of their own: readings of some seconds
determine no more, and two processes on a GPU make a thousand."""

TURNS = 4
"""Kernels at once that take turns in each interval between the start or end of one and that of the next."""

LONG_S, HEAD_S, TAIL_S = 60e-6, 40e-6, 60e-6
"""Longer kernels have a head and a tail with separate powers; most of the sensor's response lies within 120 us."""


@dataclass(frozen=True)
class Kind:
    """Kernels that share one unknown power."""

    name: str  # of the kernel
    operator: str = ""  # the operator that launched it, with its shapes; "" where unknown
    module: str = ""  # the module in which it ran; "" where unknown or several
    # Whether these are repetitions in place, run as an excitation: their data are in caches, so their power differs
    # slightly
    repeat: bool = False


@dataclass(frozen=True)
class Activity:
    """Disjoint intervals, in order, each of one column of the design matrix; the rest is idle.

    A column is the head, the middle or the tail of kernels of one kind, or of a set of kinds that ran at once.
    """

    # Shape (n,), ascending; ``end_s[i] <= start_s[i + 1]``
    start_s: Floats
    end_s: Floats
    column: Ints  # index into ``members``, shape (n,)
    kinds: tuple[Kind, ...]  # kinds of kernels
    # Kinds of kernels in each column: one, or several where kernels overlap
    members: tuple[tuple[int, ...], ...]
    part: tuple[int, ...]  # part of the kernels in each column: 0 whole or middle, 1 head, 2 tail
    # Start and end of the timeline
    begin_s: float
    finish_s: float
    slowness: Floats  # logarithm of the duration of the kernels around each interval over their mean, shape (n,)
    beside_s: Floats  # each kind's share of all time in which it runs beside others, shape (kinds,)

    @cached_property
    def seconds(self) -> Floats:
        """Time of each column, then of idle, shape (members + 1,)."""
        busy = np.bincount(self.column, self.end_s - self.start_s, len(self.members))
        return np.append(busy, self.finish_s - self.begin_s - busy.sum())

    @cached_property
    def shares(self) -> Floats:
        """Share of each kind in the energy of each column, shape (members, kinds): kernels at once share equally."""
        shares = np.zeros((len(self.members), len(self.kinds)))
        for column, members in enumerate(self.members):
            np.add.at(shares[column], list(members), 1 / len(members))  # a kind may overlap itself
        return shares

    @cached_property
    def originals(self) -> tuple[tuple[int, ...], ...]:
        """``members`` with kernels in place of their repeats."""
        numbers = {kind: number for number, kind in enumerate(self.kinds) if not kind.repeat}
        like = [numbers.get(replace(kind, repeat=False), number) for number, kind in enumerate(self.kinds)]
        return tuple(tuple(sorted(like[kind] for kind in members)) for members in self.members)

    @cached_property
    def repeated(self) -> Mask:
        """True for columns in which a repeat runs, shape (members,)."""
        return np.array([any(self.kinds[kind].repeat for kind in members) for members in self.members])

    @property
    def timeline(self) -> Timeline:
        """The intervals, each of the kind of its column."""
        return Timeline(self.start_s, self.end_s, self.column, len(self.members))

    def seen(
        self,
        at_s: Floats,
        response: SampleResponse,
        value: Floats,
        watts: Floats,
        into: tuple[Ints, Floats] | None = None,
    ) -> tuple[Floats, Floats, Floats]:
        """Regressors of momentary samples.

        Args:
            at_s: Times of the samples, shape (m,).
            response: Response of a sample.
            value: Value of each interval, 0 between them, shape (n,).
            watts: Power of each interval above idle, for the derivative, shape (n,).
            into: Rows to which the shares of samples are added, and with which weights, both (m,); else each is a row.

        Returns:
            Share of each column, idle last, shape (m, members + 1), rows summing to 1; the mean of ``value``,
            shape (m,); and the derivative of the mean of ``watts`` by the time of the samples, W/s, shape (m,).
        """
        first = np.searchsorted(self.end_s, at_s - response.latest_s)
        count = np.searchsorted(self.start_s, at_s - response.earliest_s) - first
        upto = np.append(0, np.cumsum(count))
        which, at = np.arange(upto[-1]) + np.repeat(first - upto[:-1], count), np.repeat(at_s, count)
        (weight, change), (later, later_change) = (response.at(at - edge[which]) for edge in (self.start_s, self.end_s))
        weight -= later
        change -= later_change
        total, slope = (
            csr_matrix((by, which, upto), (len(at_s), len(of))) @ of for by, of in ((weight, value), (change, watts))
        )
        row, factor = (np.arange(len(at_s)), np.ones(len(at_s))) if into is None else into
        width, rows = len(self.members) + 1, int(row[-1]) + 1
        cell = np.repeat(row * width, count) + self.column[which]
        table = np.bincount(cell, weight * np.repeat(factor, count), rows * width).reshape(rows, width)
        table[:, -1] = np.bincount(row, factor, rows) - table.sum(axis=1)
        return table.astype(float), total, slope

    def table(self, edges_s: Floats, most: int) -> Floats:
        """Share of each of the ``most`` columns with most time in each bin of a regular grid, edges of shape (m + 1,).

        Returns:
            One for each of these, then other columns, idle, and ``slowness`` while busy.
        """
        numbers: dict[tuple[tuple[int, ...], int], int] = {}
        like = np.array([numbers.setdefault(key, len(numbers)) for key in zip(self.originals, self.part, strict=True)])
        column = like[self.column]  # repeats count as their kernels
        apart = np.argsort(-np.bincount(like, self.seconds[:-1]))[:most]
        *shares, slow = self.power(edges_s, *(column == k for k in apart), ~np.isin(column, apart), self.slowness)
        return np.column_stack([*shares, 1 - np.sum(shares, axis=0), slow])

    def between(self, start_s: float, finish_s: float) -> Activity:
        """The part of the timeline within a span, with the same columns."""
        mine = (self.start_s >= start_s) & (self.end_s <= finish_s)
        return replace(
            self,
            start_s=self.start_s[mine],
            end_s=self.end_s[mine],
            column=self.column[mine],
            slowness=self.slowness[mine],
            begin_s=start_s,
            finish_s=finish_s,
        )

    def whole(self) -> Activity:
        """The same with one power from the start of a kernel to its end."""
        numbers: dict[tuple[int, ...], int] = {}
        like = np.array([numbers.setdefault(members, len(numbers)) for members in self.members])
        return replace(self, column=like[self.column], members=tuple(numbers), part=(0,) * len(numbers))

    def as_one(self) -> Activity:
        """The same with all kernels as one kind."""
        none = np.zeros_like(self.column)
        return replace(self, column=none, kinds=(Kind("kernels"),), members=((0,),), part=(0,))

    def power(self, edges_s: Floats, *values: Floats | Mask) -> list[Floats]:
        """Mean over each bin of a regular grid of values, given per interval and 0 between them; each of shape (m,)."""
        near = slice(int(np.searchsorted(self.end_s, edges_s[0])), int(np.searchsorted(self.start_s, edges_s[-1])))
        sums = _integrals(edges_s, self.start_s[near], self.end_s[near], *(value[near] for value in values))
        return [np.asarray(np.diff(upto) / (edges_s[1] - edges_s[0])) for upto in sums]

    def integral(self, at_s: Floats, value: Floats) -> Floats:
        """Integral up to each time of ``value``, given per interval and 0 between them."""
        return _integrals(at_s, self.start_s, self.end_s, value)[0]


def _integrals(at: Floats, start: Floats, end: Floats, *values: Floats | Mask) -> list[Floats]:
    """The integral of each value up to each time."""
    if not len(start):
        return [np.zeros(len(at)) for _ in values]
    edges = np.column_stack([start, end]).ravel()
    sums = (np.append(0.0, np.cumsum(value * (end - start))) for value in values)
    return [np.asarray(np.interp(at, edges, np.repeat(total, 2)[1:-1])) for total in sums]


def slowness_of(start: Floats, end: Floats, kind: Ints) -> Floats:
    """Logarithm of the duration of the kernels around each interval over the median of their class; shape (n,).

    It shows the SM clock, which swings by percents at a power cap, and power with more than its square. A class holds
    the instances of a kind with one shape, a hundred at least: its sorted durations jump by 8 % nowhere. Classes that
    scatter are left out. The result is smoothed over 10 ms and has mean 0 over busy time.
    """
    length = end - start
    log, value, weight = np.log(length), np.zeros(len(length)), np.zeros(len(length))
    busy = np.bincount(kind, length)
    order = np.argsort(kind, kind="stable")
    ends = np.append(0, np.cumsum(np.bincount(kind)))
    for k in np.flatnonzero(busy > 0.01 * busy.sum()):
        mine = order[ends[k] : ends[k + 1]]
        mine = mine[np.argsort(log[mine])]
        for which in np.split(mine, np.flatnonzero(np.diff(log[mine]) > 0.08) + 1):
            away = log[which] - np.median(log[which])
            if len(which) >= 100 and np.std(away) < 0.06:
                value[which], weight[which] = away, length[which]
    middle = (start + end) / 2
    first = np.searchsorted(middle, middle - 5e-3)
    last = np.searchsorted(middle, middle + 5e-3, side="right")
    sums, weights = (np.append(0.0, np.cumsum(x)) for x in (value * weight, weight))
    smooth = (sums[last] - sums[first]) / np.maximum(weights[last] - weights[first], 1e-12)
    return np.asarray(smooth - (smooth * length).sum() / length.sum())


def activity_of(start_ns: Ints, end_ns: Ints, kind: Ints, kinds: Sequence[Kind], origin_ns: int) -> Activity:
    """The intervals of a timeline; sets of kinds that overlap have columns of their own, or their members take turns.

    Args:
        start_ns: Start of each kernel since the Unix epoch, shape (n,).
        end_ns: End of each kernel, shape (n,).
        kind: Index into ``kinds`` of each kernel, shape (n,).
        kinds: Kinds of kernels.
        origin_ns: Zero of the seconds, that of the readings.

    Raises:
        BadInputError: If there is no kernel, one ends before it starts, or all have zero length.
    """
    if not len(start_ns):
        raise BadInputError("timeline: it has no kernel")
    if (end_ns < start_ns).any():
        raise BadInputError(f"timeline: kernel {int(np.argmax(end_ns < start_ns))} ends before it starts")
    order = np.argsort(start_ns, kind="stable")
    start, end, kind = (start_ns[order] - origin_ns) / 1e9, (end_ns[order] - origin_ns) / 1e9, kind[order]
    begin, finish = float(start[0]), float(end.max())
    before = np.maximum.accumulate(np.append(-np.inf, end[:-1]))
    overlap = float(np.maximum(np.minimum(before, end) - start, 0).sum() / max((end - start).sum(), 1e-12))
    members: tuple[tuple[int, ...], ...] = tuple((k,) for k in range(len(kinds)))
    beside_s = np.zeros(len(kinds))
    # smaller overlaps are cut off: launches that begin during the previous one's last block
    if overlap > 2e-3:
        start, end, kind, members, beside_s = _disjoint(start, end, kind, len(kinds))
    else:
        start = np.maximum(start, before)
        keep = end > start
        start, end, kind = start[keep], end[keep], kind[keep]
    if not len(start):
        raise BadInputError(f"timeline: none of its {len(start_ns)} kernels lasts any time")
    slowness = slowness_of(start, end, kind)
    start, end, column, slowness = _in_parts(start, end, kind, slowness, len(members))
    there = np.bincount(column) > 0
    used, column = np.flatnonzero(there), (np.cumsum(there) - 1)[column]
    return Activity(
        start_s=start,
        end_s=end,
        column=column,
        kinds=tuple(kinds),
        members=tuple(members[k % len(members)] for k in used),
        part=tuple(int(k) // len(members) for k in used),
        begin_s=begin,
        finish_s=finish,
        slowness=slowness,
        beside_s=beside_s,
    )


def _in_parts(
    start: Floats, end: Floats, kind: Ints, slowness: Floats, kinds: int
) -> tuple[Floats, Floats, Ints, Floats]:
    """Separate head and tail of intervals of long kinds.

    A kernel draws more at its start and less during its last blocks. With one constant power per kernel that difference
    would bias the powers of its neighbours.
    """
    length = end - start
    mean = np.bincount(kind, length, kinds) / np.maximum(np.bincount(kind, minlength=kinds), 1)
    long = (mean > LONG_S)[kind]
    cut = np.flatnonzero(long)
    head = start[cut] + np.minimum(HEAD_S, length[cut] / 3)
    tail = end[cut] - np.minimum(TAIL_S, length[cut] / 3)
    middle_start, middle_end = start.copy(), end.copy()
    middle_start[cut], middle_end[cut] = head, tail
    starts = np.concatenate([middle_start, start[cut], tail])
    ends = np.concatenate([middle_end, head, end[cut]])
    kinds_ = np.concatenate([kind, kind[cut] + kinds, kind[cut] + 2 * kinds])
    order = np.argsort(starts, kind="stable")
    slow = np.concatenate([slowness, slowness[cut], slowness[cut]])
    return starts[order], ends[order], kinds_[order], slow[order]


def _disjoint(
    start: Floats, end: Floats, kind: Ints, kinds: int
) -> tuple[Floats, Floats, Ints, tuple[tuple[int, ...], ...], Floats]:
    """Cut overlapping kernels at each start and end; each set of kinds that run together is one more.

    Beyond ``MOST_SETS`` of them the members of a set take its time in turns. The sum of random codes of its members
    identifies a set.

    Returns:
        Start, end and column of each interval, the members of the columns, and ``Activity.beside_s``.
    """
    codes = np.random.default_rng(1).integers(1 << 40, 1 << 56, kinds)
    times = np.concatenate([start, end])
    order = np.argsort(times, kind="stable")
    times, sums = times[order], np.cumsum(np.concatenate([codes[kind], -codes[kind]])[order])
    running = np.cumsum(np.where(order < len(start), 1, -1))
    keep = (np.diff(times) > 0) & (running[:-1] > 0)
    left, right, code, size = times[:-1][keep], times[1:][keep], sums[:-1][keep], running[:-1][keep]
    first, last = _within(left, right, start, end)
    beside = np.append(0.0, np.cumsum(np.where(size > 1, (right - left) / size, 0.0)))
    beside_s = np.bincount(kind, beside[last] - beside[first], kinds).astype(float)

    members: list[tuple[int, ...]] = [(k,) for k in range(kinds)]
    several, ranked = size > 1, np.argsort(codes)
    column = np.full(len(left), -1)
    column[~several] = ranked[np.searchsorted(codes[ranked], code[~several])]
    _, seen, which = np.unique(code[several], return_index=True, return_inverse=True)
    most = np.argsort(-np.bincount(which, (right - left)[several]), kind="stable")[:MOST_SETS]
    number = np.full(len(seen), -1)
    for rank in np.sort(most).tolist():
        middle = ((left + right) / 2)[several][seen[rank]]
        number[rank] = len(members)
        members.append(tuple(sorted(kind[(start < middle) & (end > middle)].tolist())))
    column[several] = number[which]
    rare = column < 0
    turns = _in_turns(left[rare], right[rare], size[rare], start, end, kind)
    left, right, column = (
        np.concatenate([whole[~rare], turn]) for whole, turn in zip((left, right, column), turns, strict=True)
    )
    order = np.argsort(left, kind="stable")
    return left[order], right[order], column[order], tuple(members), beside_s


def _within(left: Floats, right: Floats, start: Floats, end: Floats) -> tuple[Ints, Ints]:
    """The first interval in each kernel, and the one behind the last; intervals are cut at each start and end."""
    first = np.searchsorted(left, start)
    return first, np.maximum(np.searchsorted(right, end, side="right"), first)


def _in_turns(
    left: Floats, right: Floats, size: Ints, start: Floats, end: Floats, kind: Ints
) -> tuple[Floats, Floats, Ints]:
    """Start, end and kind of turns that kernels take in place of running at once.

    They have equal turns in an interval of ``TURNS`` kernels or fewer. Of more kernels, n intervals that follow one
    another are one, in which each has the sum of its n turns, with n in proportion to the kernels: their number is one
    in proportion to that of the kernels, not to its product with those at once.

    Args:
        left: Starts of the intervals, shape (n,).
        right: Their ends.
        size: Number of kernels that run in each.
        start: Starts of all kernels, shape (m,).
        end: Their ends.
        kind: Their kinds.
    """
    if not len(left):
        return left, right, size
    weight = np.minimum(TURNS / size, 1.0)
    passed = np.floor(np.cumsum(weight) - weight)
    whole = weight == 1
    fresh = whole[1:] | whole[:-1] | (np.diff(passed) > 0) | (left[1:] > right[:-1])
    fresh = np.append(True, fresh)
    begins = np.flatnonzero(fresh)
    ends, block = np.append(begins[1:], len(left)), np.cumsum(fresh) - 1
    first, last = _within(left, right, start, end)
    there = np.flatnonzero(last > first)
    lowest = block[first[there]]
    count = block[last[there] - 1] - lowest + 1
    kernel = np.repeat(there, count)
    block = np.arange(len(kernel)) - np.repeat(np.cumsum(count) - count - lowest, count)
    order = np.lexsort((kind[kernel], block))
    kernel, block = kernel[order], block[order]
    each = np.append(0.0, np.cumsum((right - left) / size))
    share = each[np.minimum(ends[block], last[kernel])] - each[np.maximum(begins[block], first[kernel])]
    taken = np.cumsum(share)
    before = np.append(0.0, taken[:-1])
    opens, closes = left[begins][block], right[ends - 1][block]
    offset = opens - before[np.searchsorted(block, np.arange(len(begins)))][block]
    starts, stops = np.maximum(before + offset, opens), np.minimum(taken + offset, closes)  # but for rounding
    lasting = stops > starts
    return starts[lasting], stops[lasting], kind[kernel][lasting]
