"""The place of each span: a process per device, a track per kind and lane, sub-tracks where spans overlap.

Overlapping spans of one track are drawn one below another, as far as viewers support that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.analysis.waveform import waveform_of
from jouletrace.arrays import Ints
from jouletrace.run import DeviceInfo, Run, tables

_HEADINGS = {
    "run": "Run",
    "phase": "Phases",
    "iteration": "Iterations",
    "layer": "Layers",
    "range": "Ranges",
    "op": "Operators",
    "launch": "Launches",
    "kernel": "Kernels",
    "memcpy": "Kernels",  # copies run in turn with the kernels of their stream
}
"""The heading of the spans of a kind, in the order of the tracks."""
_PLACES = {heading: place for place, heading in enumerate(_HEADINGS.values())}

_FLAWS = pa.array(["its end is unknown", "it ends before it starts"])

_NEAR = 8
"""Sub-tracks in which a parent is searched; a span that overlaps more deeply gets a new sub-track."""


class TrackGroup(NamedTuple):
    """A device, or the host, as viewers group tracks.

    Attributes:
        id: From 1.
        name: Its title; contains SIMULATED for a simulated GPU.
        device: Its ``DeviceInfo.id``; None for the host.
    """

    id: int
    name: str
    device: str | None


class Track(NamedTuple):
    """Spans of which any two are nested or disjoint.

    Attributes:
        process: The process to which it belongs.
        name: Its title, with its lane.
        rows: Rows of ``DrawnSpans.table`` by start; among equal starts the longest first.
    """

    process: TrackGroup
    name: str
    rows: Ints


class DrawnSpans(NamedTuple):
    """The spans of a Run that have a start.

    Attributes:
        table: The ``spans`` table in one piece; with a column "flaw" if the times of some have one.
        start_ns, end_ns: Edges; the end is never before the start. Shape (n,).
    """

    table: pa.Table
    start_ns: Ints
    end_ns: Ints


def drawn_spans(run: Run) -> DrawnSpans:
    """The spans of a Run with their edges as arrays. Flawed spans have no length."""
    stored = pa.concat_tables([tables.conform(run.spans, "spans"), _of_waveform(run)])
    if stored["start_ns"].null_count:
        stored = stored.filter(stored["start_ns"].is_valid())
    table = stored.unify_dictionaries().combine_chunks()
    start, stop = table["start_ns"].to_numpy(), table["end_ns"]
    open_ended = stop.is_null().to_numpy()
    end = (stop.fill_null(0) if stop.null_count else stop).to_numpy()
    flawed = open_ended | (end < start)
    if flawed.any():
        codes = pa.array(np.where(open_ended, 0, 1).astype(np.int8), mask=~flawed)
        table = table.append_column("flaw", pa.DictionaryArray.from_arrays(codes, _FLAWS))
        end = np.where(flawed, start, end)
    return DrawnSpans(table, start, end)


def _of_waveform(run: Run) -> pa.Table:
    """The iteration of the waveform with its kernels, unless the Run contains them in full."""
    found, kept = waveform_of(run), run.spans
    if found is None or not run.devices:
        return tables.empty("spans")
    begin, end = found.edges_ns[[0, -1]].tolist()
    there = pc.and_(pc.greater_equal(kept["start_ns"], begin), pc.less(kept["start_ns"], end))
    if pc.any(pc.and_(there, pc.equal(kept["kind"], "kernel"))).as_py():
        return tables.empty("spans")
    names = dict(zip(run.units["id"].to_pylist(), run.units["name"].to_pylist(), strict=True))
    where = {"device": run.devices[0].id, "lane": "waveform"}
    rows = [{**where, "kind": "iteration", "name": "iteration", "start_ns": begin, "end_ns": end}]
    for row in found.kernels.select(["start_ns", "end_ns", "unit"]).to_pylist():
        rows.append({**where, "kind": "kernel", "name": names.get(row["unit"]), **row})
    return tables.from_rows(rows, "spans")


def processes_of(run: Run) -> dict[str | None, TrackGroup]:
    """The host and every device that the Run names, by ``TrackGroup.device``, the host first."""
    infos = {device.id: device for device in run.devices}
    for table in (run.spans, run.samples):
        for id in table["device"].unique().drop_null().to_pylist() if "device" in table.column_names else []:
            infos.setdefault(id, DeviceInfo(id, id, simulated=run.simulated))
    found: dict[str | None, TrackGroup] = {None: TrackGroup(1, "SIMULATED Host" if run.simulated else "Host", None)}
    for id, info in infos.items():
        name = id if info.name == id else f"{info.name} ({id})"
        found[id] = TrackGroup(len(found) + 1, f"SIMULATED {name}" if info.simulated else name, id)
    return found


def tracks_of(spans: DrawnSpans, processes: dict[str | None, TrackGroup]) -> Iterator[Track]:
    """The tracks of all spans, process by process."""
    group = np.zeros(len(spans.table), np.int64)
    _refine(group, spans.table["device"], lambda device: processes[device].id)
    _refine(group, spans.table["kind"], lambda kind: (_PLACES.get(_heading(kind), len(_HEADINGS)), _heading(kind)))
    _refine(group, spans.table["lane"], _natural)
    rows = np.lexsort((-spans.end_ns, spans.start_ns, group))
    for first, last in pairwise(np.flatnonzero(np.diff(group[rows], prepend=-1, append=-1)).tolist()):
        part = rows[first:last]
        device, kind, lane = (spans.table[column][int(part[0])].as_py() for column in ("device", "kind", "lane"))
        heading = _heading(kind)
        beside = heading == "Kernels"  # where they overlap, they ran at the same time; others are nested
        stream = "stream " if beside and lane and lane.isdigit() else ""
        name = f"{heading}, {stream}{lane}" if lane else heading
        number = sub_tracks(spans.start_ns[part], spans.end_ns[part], nest=not beside)
        if number.any():
            part = part[np.argsort(number, kind="stable")]
        ends = np.cumsum(np.bincount(number)).tolist()
        for k, (begin, end) in enumerate(pairwise([0, *ends])):
            yield Track(processes[device], f"{name} ({k + 1})" if k else name, part[begin:end])


def _refine(group: Ints, column: pa.ChunkedArray, order: Callable[[str | None], Any]) -> None:
    """Divide groups, numbered in their order, by the texts of a column, in that of their keys."""
    codes, texts = tables.decoded(column)
    keys = [order(text) for text in [*texts, None]]
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    group *= len(ranks)
    group += np.array([ranks[key] for key in keys])[codes]


def _heading(kind: str | None) -> str:
    """The heading of a kind; the kind's own name for a kind of a newer version."""
    return _HEADINGS.get(kind or "", (kind or "Other").capitalize())


def _natural(lane: str | None) -> tuple[bool, str, str]:
    """A sort key of lanes that puts stream 7 before stream 13, and none last."""
    return lane is None, re.sub(r"\d+", lambda digits: digits[0].zfill(20), lane or ""), lane or ""


def sub_tracks(start: Ints, end: Ints, *, nest: bool) -> NDArray[np.int32]:
    """Assign each span to a sub-track so that any two spans of one are nested or disjoint; numbers from 0, shape (n,).

    Starts increase; of equal starts the longest span is first. With ``nest`` a span may lie inside another (calls do;
    kernels don't, they run beside each other).
    """
    number = np.zeros(len(start), np.int32)
    if np.all(start[1:] >= end[:-1]):
        return number
    stacks: list[list[int]] = []  # ends of the open spans on each sub-track, outermost first
    taken: list[tuple[int, int]] = []
    free: list[int] = []
    for i, (begin, finish) in enumerate(zip(start.data, end.data, strict=True)):  # Python numbers, one at a time
        while taken and taken[0][0] <= begin:
            heappush(free, heappop(taken)[1])
        for k, stack in enumerate(stacks[:_NEAR] if nest else ()):
            while stack and stack[-1] <= begin:
                stack.pop()
            if stack and finish <= stack[-1]:
                stack.append(finish)
                number[i] = k
                break
        else:
            number[i] = found = heappop(free) if free else len(stacks)
            stacks[found : found + 1] = [[finish]]
            heappush(taken, (finish, found))
    return number
