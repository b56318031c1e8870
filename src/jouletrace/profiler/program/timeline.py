"""From what the processes of a program ran to the rows of its Run, GPU by GPU.

Each kernel has a unit, and a site for the place where it is launched. ``activity`` has when they ran, in the part whose
power is analysed; the facts of the recording have the seconds of each unit and site in all of the program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from jouletrace.arrays import Ints, Mask
from jouletrace.profiler.program.waiting import COLLECTIVE, Waits, away_of, waits_of
from jouletrace.run import MODEL_UNIT, Run, tables
from jouletrace.run.figures import Units
from jouletrace.run.forms import RecordingFacts, StepFacts
from jouletrace.run.recording_names import RECORDINGS, WAITING, is_waiting, waiting_part
from jouletrace.run.spans import union
from jouletrace.tracer.labels import labels_of
from jouletrace.tracer.process_trace import Label, ProcessTrace
from jouletrace.tracer.rows import KERNEL

MOST_OF_ALL = 4_000_000
"""Kernels in a Run; of many GPUs, each has fewer than ``MOST_KERNELS``."""


SHORT_GAP_S = 20e-6
"""Idle time between kernels up to this length lies between launches that the GPU has already received."""


SEEN_NS = 5_000
"""Clocks of host and GPU agree to this."""


MOST_KERNELS, BLOCK_S = 1_500_000, 30.0
"""Largest part of a program whose power is analysed: powers of its kernels hold for the rest."""


MOST_PLACES = 100_000
"""Kernels in ranges that a Run distinguishes. Of more, the half of it with the most time keep their range and name."""


_READINGS, _BUSY_PCT = 10, 20.0
"""Readings of the utilisation before the first kernel, one each 0.1 s, and the median from which on others are named:
making a context takes a few percent."""

AT_ONCE = 0.05
"""Largest share of the time with kernels of several processes that goes without words, as of kernels of one."""


OTHER_RANGES, OTHER_KERNELS = "other ranges", "other kernels"


COMPUTE, COMMUNICATION = "compute", "communication"
"""Phases of a program of several ranks, beside ``WAITING``."""


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


def gpus_of(found: Sequence[ProcessTrace], known: Sequence[str]) -> tuple[list[ProgramGpu], Waits]:
    """The GPUs of a program, those of lower ranks first.

    Args:
        found: Its processes.
        known: Ids of the recorded devices, in the order of CUDA's numbers where CUDA names none. What ran on others is
            left out (``unrecorded``).
    """
    waits = waits_of(found)
    made: dict[str, list[ProcessTrace]] = {}
    for traced, wait in zip(found, waits.wait_ns, strict=True):
        labels, label = labels_of(traced.work)
        work = replace(traced.work, labels=labels, label=label, weight=traced.weights(), wait_ns=wait)
        whole = replace(traced, work=work, marked=traced.work.marked)
        numbers = np.unique(work.device).tolist()
        for number in numbers:
            if (id := _device(traced, number, known)) in known:
                made.setdefault(id, []).append(whole if len(numbers) == 1 else whole.take(work.device == number))
    gpus = []
    for id, parts in made.items():
        if len(parts) > 1:
            for place, away in enumerate(away_of(parts)):
                part = parts[place]
                parts[place] = replace(part, prefix=(f"{part.name} ({part.pid})",), away=away)
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
    return sorted(gpus, key=lambda gpu: (gpu.rank is None, gpu.rank or 0, known.index(gpu.id))), waits


def within(gpu: ProgramGpu, begin_ns: int, end_ns: int) -> ProgramGpu:
    """Only what ran on a GPU in an interval; it may have no parts."""
    parts = []
    for part in gpu.parts:
        here = (part.work.start_ns >= begin_ns) & (part.work.end_ns <= end_ns)
        if here.any():
            parts.append(part.take(here))
    return replace(gpu, parts=parts)


def _device(traced: ProcessTrace, number: int, known: Sequence[str]) -> str:
    """The GPU that CUDA gives a number in a process."""
    named = traced.devices[number] if number < len(traced.devices) else ""
    return named or known[min(number, len(known) - 1)]


def unrecorded(found: Sequence[ProcessTrace], known: Sequence[str]) -> list[str]:
    """GPUs on which kernels ran and whose power isn't recorded."""
    used = [_device(traced, number, known) for traced in found for number in np.unique(traced.work.device).tolist()]
    return [id for id in dict.fromkeys(used) if id not in known]


def recorded(run: Run, gpus: Sequence[ProgramGpu], waits: Waits) -> tuple[Units, pa.Table]:
    """Units and rows of ``activity`` of a program; facts about the recording of each GPU are added to its Run.

    Where several GPUs are recorded, all of one lies below the unit of that device.
    """
    several = sum(device.kind != "cpu" for device in run.devices) > 1
    most = min(MOST_KERNELS, MOST_OF_ALL // len(gpus))
    units = Units()
    activity, recordings = [], list[RecordingFacts]()
    for gpu, name in zip(gpus, _names(run, gpus), strict=True):
        top = MODEL_UNIT
        if several:
            top = units.add("device", gpu.id, module=gpu.id)
        if away := sum(int(np.diff(part.away).sum()) for part in gpu.parts):
            text = f"{len(gpu.parts)} processes had the GPU by turns: {away / 1e9:.3g} s within kernels were another's"
            run.warn("took_turns", text, gpu.id)
        if (share := _at_once(gpu.parts)) > AT_ONCE:
            text = f"kernels of another process ran at the same time for {share:.0%} of the time in which any ran: "
            run.warn("overlapped_processes", f"{text}how they shared that energy isn't measured", gpu.id)
        rows, about, pooled = rows_of(gpu.parts, units, top, most, MOST_PLACES // len(gpus))
        if pooled:
            text = f"{pooled} kernels in ranges, those with the least time, are together: there are too many names"
            run.warn("too_many_names", text, gpu.id)
        device = pa.DictionaryArray.from_arrays(np.zeros(len(rows["unit"]), np.int32), [gpu.id])
        activity.append(tables.conform(pa.table({**rows, "device": device}), "activity"))
        about |= recording_facts(gpu, rows["start_ns"], rows["end_ns"])
        if several:
            about["name"] = name
            if gpu.rank is not None and len(gpus) > 1:
                about |= {"last": waits.last.get(gpu.rank, 0), "collectives": waits.matched}
        recordings.append(about)
    run.workload[RECORDINGS] = recordings
    if len(gpus) > 1 and waits.matched < 0.5 * waits.collectives:
        text = f"{waits.collectives - waits.matched} of {waits.collectives} collectives couldn't be matched"
        run.warn("collectives_unmatched", f"{text} between ranks: waiting is in their communication")
    return units, tables.concat(activity, "activity")


def warn_of_unseen(run: Run, gpus: Sequence[ProgramGpu]) -> None:
    """Warn of GPUs that were busy before the program's first kernel, though no other process was named.

    A driver doesn't list processes of the host, or of another container, in a container of its own.
    """
    named = {warning.where for warning in run.warnings if warning.code == "other_processes"}
    for gpu in gpus:
        times, percent = run.series(gpu.id, "utilization_gpu_pct")
        before = percent[times < min(int(part.work.start_ns.min()) for part in gpu.parts)]
        if gpu.id not in named and len(before) >= _READINGS and (busy := float(np.median(before))) >= _BUSY_PCT:
            text = f"the GPU was busy for {busy:.0f} % of the time before the program's first kernel: another process,"
            run.warn("other_processes", f"{text} which can't be seen from here, is in all figures", gpu.id)


def _at_once(parts: Sequence[ProcessTrace]) -> float:
    """Share of the time in which kernels ran that had kernels of several processes."""
    if len(parts) < 2:
        return 0.0
    times = np.concatenate([union(start, end).ravel() for _, start, end, _ in map(_pieces, parts)])
    order = np.argsort(times, kind="stable")
    running = np.cumsum(np.where(order % 2 == 0, 1, -1))[:-1]  # unions have an even number of edges
    length = np.diff(times[order])
    return float(length[running > 1].sum() / max(length[running > 0].sum(), 1))


def _names(run: Run, gpus: Sequence[ProgramGpu]) -> list[str]:
    """Names of GPUs: by their rank, or by their place among the devices where they have none of their own."""
    ids, ranks = [device.id for device in run.devices], [gpu.rank for gpu in gpus]
    names = []
    for gpu in gpus:
        words = [] if gpu.rank is None else [f"rank-{gpu.rank}"]
        if gpu.rank is None or ranks.count(gpu.rank) > 1:
            words.append(f"gpu-{ids.index(gpu.id)}")
        names.append("-".join(words))
    return names


def rows_of(
    parts: Sequence[ProcessTrace],
    units: Units,
    top: int = MODEL_UNIT,
    most: int = MOST_KERNELS,
    most_places: int = MOST_PLACES,
) -> tuple[dict[str, NDArray[Any]], RecordingFacts, int]:
    """A program on one GPU as rows of a Run, of at most ``most`` kernels; their ``units`` are added below ``top``.

    Returns:
        Columns of ``activity`` for the part that is analysed; its edges, the seconds and launches of units and places
        over the whole program, and the share of kernels of unknown operators; how many kernels in ranges aren't
        distinguished.
    """
    collectives = any(COLLECTIVE.search(name) for part in parts for name in part.work.names)
    columns: list[list[Ints]] = []
    seconds: list[list[float]] = []
    operators_known = labelled = pooled = 0
    for part in parts:
        launched, rows, sums, together = _placed(part, units, top, collectives, most_places // len(parts))
        pooled += together
        columns.append(rows)
        seconds += sums
        if launched is not None:
            operators_known, labelled = operators_known + launched, labelled + len(part.work)
    units.idle(top)
    start, end, unit, site = (np.concatenate(column) for column in zip(*columns, strict=True))
    block = _block(start, end, [segment for part in parts for segment in part.segments], most)
    order = np.flatnonzero(block)[np.argsort(start[block], kind="stable")]
    activity = {"start_ns": start[order], "end_ns": end[order], "unit": unit[order], "site": site[order]}
    activity["copy"] = np.zeros(len(order), bool)  # nothing was repeated as an excitation
    about = RecordingFacts(start_ns=int(start[order].min()), end_ns=int(end[order].max()), seconds=seconds)
    about["unmatched"] = 1 - operators_known / labelled if labelled else None  # None where none was sampled
    return activity, about, pooled


def _place(
    units: Units, top: int, collectives: bool, kernel: str, label: Label, path: Sequence[str], count: int
) -> tuple[int, int]:
    """The units of a kernel and of the place where it is launched; ``count`` launches more."""
    op, module = label
    about: dict[str, Any] = {"op": op or None, "module": module or None}
    parent = units.once((top, "op", op, module), "op", op, top, **about) if op else top
    phase = phase_of(kernel) if collectives else None
    key = (top, "kernel", op, module, kernel)
    kernel_unit = units.once(key, "kernel", kernel, parent, count, phase=phase, **about)
    inside = ".".join(filter(None, [*(path_step.replace(".", "\u2024") for path_step in path), module]))
    above, about["module"] = parent if op else kernel_unit, inside or None
    return kernel_unit, units.once((top, "site", inside, op or kernel), "site", op or kernel, above, count, **about)


def phase_of(kernel: str) -> str:
    """The phase to which a kernel's time belongs, in a program of several ranks."""
    if is_waiting(kernel):
        return WAITING
    return COMMUNICATION if COLLECTIVE.search(kernel) else COMPUTE


def _pooled(index: list[Ints], shape: tuple[int, ...], time: Ints, most: int) -> tuple[list[Ints], int]:
    """Label, name and path of each piece, and how many combinations are no longer distinguished.

    Where there are too many, those with the least time get the last of all paths; the last name, too, if need be.
    """
    first = 0
    for axis in (2, 1):
        distinct_rows, which = tables.distinct(np.ravel_multi_index(tuple(index), shape))
        first = first or len(distinct_rows)
        if len(distinct_rows) <= most:
            break
        rare = np.ones(len(distinct_rows), bool)
        rare[np.argsort(-np.bincount(which, time), kind="stable")[: most // 2]] = False
        index[axis] = np.where(rare[which], shape[axis] - 1, index[axis])
    return index, first - len(tables.distinct(np.ravel_multi_index(tuple(index), shape))[0])


def _placed(
    part: ProcessTrace, units: Units, top: int, collectives: bool, most: int
) -> tuple[int | None, list[Ints], list[list[float]], int]:
    """Kernels with a known operator (None if none was sampled), columns of ``activity``, sums of seconds; pooled."""
    work = part.work
    named = np.array([bool(op) for op, _ in work.labels])
    operators_known = int(named[work.label].sum()) if part.marked else None
    row, start, end, waits = _pieces(part)
    kernels = (*work.names, *map(waiting_part, work.names), OTHER_KERNELS)
    paths = (*work.paths, (OTHER_RANGES,))
    name = work.name[row] + np.where(waits, len(work.names), 0)
    shape = len(work.labels), len(kernels), len(paths)
    index, pooled = _pooled([work.label[row], name, work.path[row]], shape, end - start, most)
    distinct_rows, which = tables.distinct(np.ravel_multi_index(tuple(index), shape))
    pieces = which * len(work) + row
    launches = (tables.distinct(pieces)[0] if len(row) > len(work) else pieces) // len(
        work
    )  # several of a launch are one
    count = np.bincount(launches, minlength=len(distinct_rows))
    ids = np.empty((2, len(distinct_rows)), np.int64)
    for k, (label, kernel, where) in enumerate(
        zip(*(column.tolist() for column in np.unravel_index(distinct_rows, shape)), strict=True)
    ):
        inside = (*part.prefix, *paths[where])
        ids[:, k] = _place(units, top, collectives, kernels[kernel], work.labels[label], inside, int(count[k]))
    weight = work.weight[row]
    seconds = np.bincount(which, (end - start) / 1e9 * weight, len(distinct_rows))
    often = count * np.bincount(which, weight, len(distinct_rows)) / np.bincount(which, minlength=len(distinct_rows))
    sums = [[int(ids[0, k]), int(ids[1, k]), float(seconds[k]), float(often[k])] for k in range(len(seconds))]
    return operators_known, [start, end, ids[0][which], ids[1][which]], sums, pooled


def _pieces(part: ProcessTrace) -> tuple[Ints, Ints, Ints, Mask]:
    """Kernels, some in pieces: the kernel, the edges, and whether it is a wait of each piece, shape (m,).

    What another process had of a kernel's time is in no piece. A wait beside other kernels of the GPU holds nothing up,
    and is communication::

        collective   |--------- wait_ns ---------|---- moves data ----|
        others            |== busy ==|
        pieces       |wait|----------|   wait    |--------------------|
    """
    row, start, end, waits = _waiting(part)
    owner, left, right, outside = _cut(start, end, part.away)
    right = np.where(outside | (part.work.kind[row][owner] != KERNEL), right, left)
    none, first = np.bincount(owner, right > left) == 0, np.append(True, np.diff(owner) > 0)
    keep = (right > left) | (none[owner] & first)  # each kernel has a piece, as it counts
    return row[owner][keep], left[keep], right[keep], waits[owner][keep]


def _waiting(part: ProcessTrace) -> tuple[Ints, Ints, Ints, Mask]:
    """Kernels, those that wait in pieces: as in ``_pieces``."""
    work = part.work
    waited = np.flatnonzero(work.wait_ns > 0)
    if not len(waited):
        return np.arange(len(work)), work.start_ns, work.end_ns, np.zeros(len(work), bool)
    moving = np.array([COLLECTIVE.search(name) is not None for name in work.names])[work.name]
    since, until, last = work.start_ns[waited], work.start_ns[waited] + work.wait_ns[waited], work.end_ns[waited]
    owner, left, right, state = _cut(since, until, union(work.start_ns[~moving], work.end_ns[~moving]))
    rest = np.setdiff1d(np.arange(len(work)), waited)
    columns = (
        np.concatenate([rest, waited[owner], waited]),
        np.concatenate([work.start_ns[rest], left, until]),
        np.concatenate([work.end_ns[rest], right, last]),
        np.concatenate([np.zeros(len(rest), bool), state, np.zeros(len(waited), bool)]),
    )
    keep = columns[2] > columns[1]
    keep[: len(rest)] = True
    return tuple(column[keep] for column in columns)  # type: ignore[return-value]


def _cut(since: Ints, until: Ints, spans: Ints) -> tuple[Ints, Ints, Ints, Mask]:
    """Intervals cut at the edges of disjoint spans: of each piece its interval, its ends, and if it is outside."""
    if not len(spans):
        return np.arange(len(since)), since, until, np.ones(len(since), bool)
    edges = spans.ravel()  # even ones begin a span, odd ones end it
    low, high = np.searchsorted(edges, since, side="right"), np.searchsorted(edges, until)
    inner = np.maximum(high - low, 0)
    owner = np.repeat(np.arange(len(since)), inner + 1)
    nth = np.arange(len(owner)) - np.repeat(np.cumsum(inner + 1) - inner - 1, inner + 1)
    outside = (low[owner] + nth) % 2 == 0
    left = np.where(nth == 0, since[owner], edges[np.clip(low[owner] + nth - 1, 0, len(edges) - 1)])
    right = np.where(nth == inner[owner], until[owner], edges[np.clip(low[owner] + nth, 0, len(edges) - 1)])
    return owner, left, right, outside


def _block(start: Ints, end: Ints, segments: Sequence[tuple[int, int]], most_kernels: int) -> Mask:
    """The span of ``BLOCK_S`` within one segment in which kernels ran for the longest, with no more than so many."""
    first, second = int(start.min()), 1_000_000_000
    busy = np.bincount((start - first) // second, end - start)  # of the kernels that begin in each second
    busy = np.append(0.0, np.cumsum(busy))
    best, most = (first, int(end.max())), 0.0  # a segment may have no kernel
    for begin, until in segments or [best]:
        edges = np.arange(max((begin - first) // second, 0), min((until - first) // second + 1, len(busy) - 1))
        inside = busy[np.minimum(edges + int(BLOCK_S), edges[-1] + 1 if len(edges) else 0)] - busy[edges]
        if len(edges) and inside.max() > 1.02 * most:  # an earlier one unless a later one is clearly busier
            at = int(np.flatnonzero(inside > inside.max() / 1.02)[0])
            since = max(begin, first + int(edges[at]) * second)
            best, most = (since, min(until, since + int(BLOCK_S * 1e9))), float(inside[at])
    chosen = (start >= best[0]) & (start < best[1])  # the last one may run for longer than a block
    if chosen.sum() > most_kernels:
        chosen &= end <= np.sort(end[chosen])[most_kernels]
    return np.asarray(chosen)


def steps_of(parts: Sequence[ProcessTrace]) -> StepFacts | None:
    """The module in which most of the kernels' time lies, and how often it was called; None unless it is one of all.

    A graph that is launched more often than the module in which it was captured is called says nothing of its steps.
    """
    found: set[tuple[str, int]] = set()
    for part in parts:
        seconds, work = defaultdict[str, float](float), part.work
        own_s = np.bincount(work.label, (work.end_ns - work.start_ns) * work.weight, len(work.labels))
        for (_, module), own in zip(work.labels, own_s.tolist(), strict=True):
            seconds[module.partition(".")[0]] += own
        name = max(seconds, key=seconds.__getitem__)
        calls = part.calls.get(name, 0)
        inside = np.array([module.partition(".")[0] == name for _, module in work.labels])[work.label]
        _, launched = np.unique(work.correlation[inside], return_counts=True)
        graphs, in_graphs = int((launched > 1).sum()), int(launched[launched > 1].sum())
        if seconds[name] <= 0.5 * sum(seconds.values()) or (graphs > calls and in_graphs > 0.5 * inside.sum()):
            return None
        found.add((name, calls))
    (name, calls), *others = found or {("", 0)}
    return {"module": name, "calls": calls} if name and calls and not others else None


def recording_facts(gpu: ProgramGpu, start: Ints, end: Ints) -> RecordingFacts:
    """Provenance of the rows of a GPU, whose kernels in the part that is analysed have these edges, ns."""
    about: RecordingFacts = {
        "device": gpu.id,
        "iterations": 1,
        "iterations_by": None,
        "first_ns": min(int(part.work.start_ns.min()) for part in gpu.parts),
        "dropped": gpu.dropped,
        "kernels": sum(len(part.work) for part in gpu.parts),
        "kernels_s": gpu.busy_s,
        "idle_by": _idle_by(start, end, gpu),
    }
    if gpu.rank is not None:
        about["rank"] = gpu.rank
    if gpu.unsampled:
        about["note"] = f"operators: {gpu.unsampled}"
    return about


def _idle_by(start: Ints, end: Ints, gpu: ProgramGpu) -> dict[str, float]:
    """Shares of the idle time by what the host did: loading data, launching, resuming after it waited for the GPU."""
    until = np.maximum.accumulate(end)[:-1]
    gap = np.maximum(start[1:] - until, 0)
    total = float(gap.sum())
    if total <= 0:
        return {}
    short = float(gap[gap <= SHORT_GAP_S * 1e9].sum())
    long = gap > SHORT_GAP_S * 1e9
    since, then = until[long], start[1:][long]
    spans = np.array(sorted(gpu.loads), np.int64).reshape(-1, 2)
    loading = _overlap(since, then, spans)
    # The host learns that the GPU is done just after its last kernel, and launches from then on.
    ends = gpu.syncs[:, 1]
    after = np.searchsorted(ends, then) > np.searchsorted(ends, since - SEEN_NS)
    waited = float((then - since)[after].sum()) - _overlap(since[after], then[after], spans)
    return {
        "data loading": loading / total,
        "between launches": short / total,
        "synchronisation": waited / total,
        "host": max(total - short - loading - waited, 0.0) / total,
    }


def _overlap(start: Ints, end: Ints, spans: Ints) -> float:
    """Length that intervals have in common with spans, both ascending; overlapping spans count once."""
    if not len(spans) or not len(start):
        return 0.0
    spans = union(*spans.T)
    edges, covered = spans.ravel(), np.append(0, np.cumsum(np.diff(spans)))
    values = np.column_stack([covered[:-1], covered[1:]]).ravel()
    return float((np.interp(end, edges, values) - np.interp(start, edges, values)).sum())
