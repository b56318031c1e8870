"""From the processes of a program to its GPUs: what ran on each, and how long ranks waited for one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from jouletrace.arrays import Ints
from jouletrace.profiler.program.timeline import COLLECTIVE
from jouletrace.profiler.program.turns import away_of
from jouletrace.tracer.labels import labels_of
from jouletrace.tracer.process_trace import ProcessTrace

NEGLIGIBLE_NS = 5_000
"""Shorter waits are no waits."""

CLOCKS_NS = 100_000
"""The clocks of two processes agree to this: a collective ends after its last rank has come."""

MATCHED = 0.95
"""Least share of the collectives of a name that end after the last rank has come, if they are matched rightly."""


@dataclass(frozen=True)
class ProgramGpu:
    """One GPU, with all that ran on it.

    Attributes:
        id: Its UUID.
        rank: Of the process on it; None if there are none, or several.
        parts: By process.
        loads: When its processes waited for data, ns.
        syncs: When they waited for the GPU, ns, by their ends; shape (m, 2).
        dropped: Records that CUPTI dropped.
        unsampled: Why no operators are known.
    """

    id: str
    rank: int | None
    parts: list[ProcessTrace]
    loads: list[tuple[int, int]]
    syncs: Ints
    dropped: int
    unsampled: str

    @property
    def busy_s(self) -> float:
        """Seconds for which kernels ran."""
        return sum(float((part.work.end_ns - part.work.start_ns).sum()) for part in self.parts) / 1e9


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


def gpus_of(traces: Sequence[ProcessTrace], recorded_ids: Sequence[str]) -> tuple[list[ProgramGpu], Waits]:
    """The GPUs of a program, those of lower ranks first.

    Args:
        traces: Its processes.
        recorded_ids: Ids of the recorded devices, in the order of CUDA's numbers where CUDA names none. What ran on
            others is left out (``unrecorded``).
    """
    waits = waits_of(traces)
    made: dict[str, list[ProcessTrace]] = {}
    for traced, wait in zip(traces, waits.wait_ns, strict=True):
        labels, label = labels_of(traced.work)
        work = replace(traced.work, labels=labels, label=label, weight=traced.weights(), wait_ns=wait)
        whole = replace(traced, work=work, marked=traced.work.marked)
        numbers = np.unique(work.device).tolist()
        for number in numbers:
            if (id := _device(traced, number, recorded_ids)) in recorded_ids:
                made.setdefault(id, []).append(whole if len(numbers) == 1 else whole.take(work.device == number))
    gpus = []
    for id, parts in made.items():
        if len(parts) > 1:
            for index, away in enumerate(away_of(parts)):
                part = parts[index]
                parts[index] = replace(part, prefix=(f"{part.name} ({part.pid})",), away=away)
        ranks = {part.rank for part in parts}
        syncs = np.concatenate([part.syncs for part in parts])
        gpus.append(
            ProgramGpu(
                id,
                ranks.pop() if len(ranks) == 1 else None,
                parts,
                sorted(load for part in parts for load in part.loads),
                syncs[np.argsort(syncs[:, 1], kind="stable")],
                sum(part.dropped for part in parts),
                "; ".join(dict.fromkeys(part.unsampled for part in parts if part.unsampled)),
            )
        )
    return sorted(gpus, key=lambda gpu: (gpu.rank is None, gpu.rank or 0, recorded_ids.index(gpu.id))), waits


def within(gpu: ProgramGpu, begin_ns: int, end_ns: int) -> ProgramGpu:
    """Only what ran on a GPU in an interval; it may have no parts."""
    parts = []
    for part in gpu.parts:
        here = (part.work.start_ns >= begin_ns) & (part.work.end_ns <= end_ns)
        if here.any():
            parts.append(part.take(here))
    return replace(gpu, parts=parts)


def _device(traced: ProcessTrace, number: int, recorded_ids: Sequence[str]) -> str:
    """The GPU that CUDA gives a number in a process."""
    named = traced.devices[number] if number < len(traced.devices) else ""
    return named or recorded_ids[min(number, len(recorded_ids) - 1)]


def unrecorded(traces: Sequence[ProcessTrace], recorded_ids: Sequence[str]) -> list[str]:
    """GPUs on which kernels ran and whose power isn't recorded."""
    used = [
        _device(traced, number, recorded_ids) for traced in traces for number in np.unique(traced.work.device).tolist()
    ]
    return [id for id in dict.fromkeys(used) if id not in recorded_ids]


def waits_of(traces: Sequence[ProcessTrace]) -> Waits:
    """How long each kernel of each process waited for other ranks.

    The collectives of a name are matched by their order, between the ranks that have any. They aren't where these have
    different numbers of them, or where one would end before its last rank has come.
    """
    waits = Waits([np.zeros(len(traced.work), np.int64) for traced in traces])
    ranked = [index for index, traced in enumerate(traces) if traced.rank is not None]
    last: dict[int, int] = {}
    matched = total = 0
    for of_all in _collectives([traces[index] for index in ranked]) if len(ranked) > 1 else ():
        calls = [mine for mine in of_all if len(mine)]
        ranks = [index for index, mine in zip(ranked, of_all, strict=True) if len(mine)]
        total += max(len(mine) for mine in calls)
        if len(ranks) < 2 or len({len(mine) for mine in calls}) > 1:
            continue
        start, end = (
            np.stack([getattr(traces[index].work, edge)[mine] for index, mine in zip(ranks, calls, strict=True)])
            for edge in ("start_ns", "end_ns")
        )
        there = start.max(axis=0)
        valid = there <= end.min(axis=0) + CLOCKS_NS
        if valid.mean() < MATCHED:
            continue
        matched += int(valid.sum())
        latest = start.argmax(axis=0)
        for number, index in enumerate(ranks):
            wait = np.where(valid, np.clip(there, start[number], end[number]) - start[number], 0)
            waits.wait_ns[index][calls[number]] = np.where(wait > NEGLIGIBLE_NS, wait, 0)
            rank = traces[index].rank or 0
            last[rank] = last.get(rank, 0) + int((valid & (latest == number)).sum())
    return Waits(waits.wait_ns, last, matched, total)


def _collectives(ranks: Sequence[ProcessTrace]) -> Iterator[list[Ints]]:
    """For each name of a collective: its kernels in each rank, in order of start."""
    names = sorted({name for traced in ranks for name in traced.work.names if COLLECTIVE.search(name)})
    for name in names:
        calls = []
        for traced in ranks:
            codes = [code for code, kernel_name in enumerate(traced.work.names) if kernel_name == name]
            mine = np.flatnonzero(np.isin(traced.work.name, codes))
            calls.append(mine[np.argsort(traced.work.start_ns[mine], kind="stable")])
        yield calls
