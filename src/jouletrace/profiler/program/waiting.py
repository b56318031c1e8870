"""Time of kernels in which they didn't run: they wait for other ranks, or another process has the GPU.

A collective's kernel spins until the last rank has launched its own. Processes that share a GPU have it by turns,
within their kernels: one that the GPU interrupts for another process counts as running from its start to its end::

    process A    |== a1 ==|                 |== a2 ==|
    process B        |=========== b ===================|
    B has the GPU        |=================|         |=|

A kernel starts and ends only while its process has the GPU. So it has it between two such events of its own with none
of another process in between; and where another's event comes next, the two share that time in proportion to what their
kernels still need, by the time that kernels of the kind take without events of others. Copies run beside kernels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from jouletrace.arrays import Floats, Indices, Ints, Mask
from jouletrace.run.spans import union
from jouletrace.run.tables import distinct
from jouletrace.tracer.process_trace import ProcessTrace
from jouletrace.tracer.rows import KERNEL

COLLECTIVE = re.compile(r"(?i)\bnccl|^nccl")
"""In the names of kernels that move data between GPUs."""


NEGLIGIBLE_NS = 5_000
"""Shorter waits are no waits."""


CLOCKS_NS = 100_000
"""The clocks of two processes agree to this: a collective ends after its last rank has come."""


MATCHED = 0.95
"""Least share of the collectives of a name that end after the last rank has come, if they are matched rightly."""


GAP_NS = 20_000
"""No other process runs between two kernels of a process that lie closer than this."""


ALONE = 5
"""Least number of uninterrupted kernels of a kind whose median counts as its time."""


LONGER = 0.5
"""Least time by which kernels of a kind last longer for each second that others had: 1 if processes take turns, near 0
if they run at once, as under MPS."""


SHARE = 0.5
"""Least share of its kernels' time that a process has if they take turns, over an equal one."""


_NONE, _ALL, _NEXT = -1, -2, -3
"""In place of the process that has the GPU: none; all whose kernels run, equally; the one before, then the next."""


@dataclass(frozen=True)
class Waits:
    """How ranks waited for one another.

    Attributes:
        wait_ns: Of each process: how long each kernel waited, shape (n,).
        last: How often each rank came last.
        matched, collectives: How many were matched, of how many of each rank.
    """

    wait_ns: list[Ints]
    last: dict[int, int] = field(default_factory=dict)
    matched: int = 0
    collectives: int = 0


def waits_of(found: Sequence[ProcessTrace]) -> Waits:
    """How long each kernel of each process waited for other ranks.

    The collectives of a name are matched by their order, between the ranks that have any. They aren't where these have
    different numbers of them, or where one would end before its last rank has come.
    """
    waits = Waits([np.zeros(len(traced.work), np.int64) for traced in found])
    ranked = [place for place, traced in enumerate(found) if traced.rank is not None]
    last: dict[int, int] = {}
    matched = total = 0
    for of_all in _collectives([found[place] for place in ranked]) if len(ranked) > 1 else ():
        calls = [mine for mine in of_all if len(mine)]
        ranks = [place for place, mine in zip(ranked, of_all, strict=True) if len(mine)]
        total += max(len(mine) for mine in calls)
        if len(ranks) < 2 or len({len(mine) for mine in calls}) > 1:
            continue
        start, end = (
            np.stack([getattr(found[place].work, edge)[mine] for place, mine in zip(ranks, calls, strict=True)])
            for edge in ("start_ns", "end_ns")
        )
        there = start.max(axis=0)
        valid = there <= end.min(axis=0) + CLOCKS_NS
        if valid.mean() < MATCHED:
            continue
        matched += int(valid.sum())
        latest = start.argmax(axis=0)
        for number, place in enumerate(ranks):
            wait = np.where(valid, np.clip(there, start[number], end[number]) - start[number], 0)
            waits.wait_ns[place][calls[number]] = np.where(wait > NEGLIGIBLE_NS, wait, 0)
            rank = found[place].rank or 0
            last[rank] = last.get(rank, 0) + int((valid & (latest == number)).sum())
    return Waits(waits.wait_ns, last, matched, total)


def _collectives(ranks: Sequence[ProcessTrace]) -> Iterator[list[Ints]]:
    """For each name of a collective: its kernels in each rank, in order of start."""
    names = sorted({name for traced in ranks for name in traced.work.names if COLLECTIVE.search(name)})
    for name in names:
        calls = []
        for traced in ranks:
            codes = [code for code, one in enumerate(traced.work.names) if one == name]
            mine = np.flatnonzero(np.isin(traced.work.name, codes))
            calls.append(mine[np.argsort(traced.work.start_ns[mine], kind="stable")])
        yield calls


def away_of(parts: Sequence[ProcessTrace]) -> list[Ints]:
    """Spans in which each process doesn't have the GPU though kernels of it have begun, ns, disjoint, shape (m, 2).

    There are none where kernels of several processes run at once, and where one of them wasn't traced.
    """
    first = min(int(part.work.start_ns.min()) for part in parts)  # of times since then a float has every ns
    rows = [_known(part, parts) for part in parts]
    start, end = (
        np.concatenate([getattr(part.work, at)[mine] for part, mine in zip(parts, rows, strict=True)]) - first
        for at in ("start_ns", "end_ns")
    )
    none = [np.zeros((0, 2), np.int64) for _ in parts]
    process = np.repeat(np.arange(len(parts)), [int(mine.sum()) for mine in rows])
    if len(np.unique(process)) < 2:
        return none
    names = [number << 40 | part.work.label << 20 | part.work.name for number, part in enumerate(parts)]
    _, kind = distinct(np.concatenate([name[mine] for name, mine in zip(names, rows, strict=True)]))
    order = np.argsort(np.concatenate([start, end]), kind="stable")
    time, kernel, opens = np.concatenate([start, end])[order], order % len(start), order < len(start)
    begins, ends = np.split(np.argsort(order), 2)
    owner, length = process[kernel], np.diff(time)
    runs = _runs(owner, opens, len(parts))
    has, shared = _has(owner, runs, time), np.maximum(runs.sum(axis=0), 1)
    between = [(has == _NEXT) & ((owner[:-1] == number) | (owner[1:] == number)) for number in range(len(parts))]

    def had(number: int) -> Floats:
        part = np.where(has == _ALL, runs[number] / shared, 0.5 * between[number])
        total = np.append(0.0, np.cumsum(np.where(has == number, length, part * length)))
        mine = process == number
        return np.asarray(total[ends[mine]] - total[begins[mine]])

    lasts, running = (end - start).astype(float), np.concatenate([had(number) for number in range(len(parts))])
    if not _by_turns(process, kind, lasts, running):
        return none
    more = _needs(lasts, running, kind, ends - begins == _events(owner, begins, ends)) - running
    turn = np.flatnonzero(has == _NEXT)
    before, after = (np.maximum(more[kernel[turn + k]] + length[turn] / 2, 1.0) for k in (0, 1))
    cut = time[turn] + length[turn] * before / (before + after)
    away = []
    for number in range(len(parts)):
        gone = np.flatnonzero(runs[number] & ~np.isin(has, (number, _ALL)) & ~between[number])
        late, early = owner[turn] == number, owner[turn + 1] == number
        since = np.concatenate([time[gone], cut[late], time[turn][early]]).astype(np.int64)
        until = np.concatenate([time[gone + 1], time[turn + 1][late], cut[early]]).astype(np.int64)
        away.append(first + union(since, until) if len(since) else none[number])
    return away


def _known(part: ProcessTrace, parts: Sequence[ProcessTrace]) -> Mask:
    """True for the kernels of a process during which all are traced, as far as they run then."""
    start, end, undisturbed = part.work.start_ns, part.work.end_ns, part.work.kind == KERNEL
    for other in parts:
        traced = np.array(sorted(other.segments), np.int64).reshape(-1, 2)
        edges = np.column_stack([traced[:-1, 1], traced[1:, 0]]).ravel()  # even ones end a segment, odd ones begin one
        before, after = np.searchsorted(edges, start, side="right"), np.searchsorted(edges, end)
        undisturbed = undisturbed & (before == after) & (before % 2 == 0)
    return np.asarray(undisturbed)


def _runs(owner: Ints, opens: Mask, processes: int) -> Mask:
    """True where kernels of a process have begun and not ended, shape (processes, events - 1)."""
    change = np.where(opens, 1, -1)
    return np.stack([np.cumsum(np.where(owner == number, change, 0))[:-1] > 0 for number in range(processes)])


def _has(owner: Ints, runs: Mask, time: Ints) -> Ints:
    """The process that has the GPU from each event to the next, or a number that stands for others; (events - 1,)."""
    mine, next_, every = owner[:-1], owner[1:], np.arange(len(owner) - 1)
    running, own_runs, its, same = runs.sum(axis=0), runs[mine, every], runs[next_, every], mine == next_
    near = np.diff(time) <= GAP_NS
    return np.select(
        [same & ~own_runs & near, running == 0, running == 1, same & own_runs, same, own_runs & its, own_runs, its],
        [_NONE, _NONE, runs.argmax(axis=0), mine, _ALL, _NEXT, mine, next_],
        _ALL,
    )


def _events(owner: Ints, begins: Indices, ends: Indices) -> Ints:
    """Events of its own process from the start to the end of each kernel, the last one counted."""
    rank = np.empty(len(owner), np.int64)
    rank[np.argsort(owner, kind="stable")] = np.arange(len(owner))
    return np.asarray(rank[ends] - rank[begins])


def _by_turns(process: Ints, kind: Ints, lasts: Floats, own_s: Floats) -> bool:
    """True if kernels last longer by what others had, and each process had its share, as far as events show it."""
    count, others = np.bincount(kind), lasts - own_s
    away, longer = (each - (np.bincount(kind, each) / count)[kind] for each in (others, lasts))
    slope = float(away @ longer / max(float(away @ away), 1.0))
    share = np.bincount(process, own_s) / np.maximum(np.bincount(process, lasts), 1.0)
    return bool(slope >= LONGER and share.min() >= SHARE / len(share))


def _needs(lasts: Floats, own_s: Floats, kind: Ints, alone: Mask) -> Floats:
    """Time that each kernel needs: that of its kind ``alone``, or of what it surely had, ns, shape (n,)."""
    of_kind = np.zeros(int(kind.max()) + 1)
    for which, mine in enumerate(np.split(np.argsort(kind, kind="stable"), np.cumsum(np.bincount(kind))[:-1])):
        free = mine[alone[mine]]
        of_kind[which] = np.median(lasts[free] if len(free) >= ALONE else own_s[mine])
    return np.asarray(of_kind[kind])
