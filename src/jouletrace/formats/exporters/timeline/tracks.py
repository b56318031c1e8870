"""The place of each span: a process per device, a track per kind and lane, sub-tracks where spans overlap.

Overlapping spans of one track are drawn one below another, as far as viewers support that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.analysis.waveform import waveform_of
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

_SIDE_BY_SIDE = ("Kernels",)
"""Overlapping spans of these kinds ran at the same time; those of other kinds are nested."""

_BLOCK = 1 << 15
_NEAR = 8
"""Sub-tracks in which a parent is searched; a span that overlaps more deeply gets a new sub-track."""

Codes = NDArray[np.int32]


@dataclass(frozen=True)
class Process:
    """A device, or the host, as viewers group tracks.

    Attributes:
        id: From 1.
        name: Its title; contains SIMULATED for a simulated GPU.
        device: Its ``DeviceInfo.id``; None for the host.
    """

    id: int
    name: str
    device: str | None


@dataclass(frozen=True)
class Track:
    """Spans of which any two are nested or disjoint.

    Attributes:
        process: ``Process.id``.
        name: Its title, with its lane.
        rows: Rows of ``Spans.table`` by start; among equal starts the longest first.
    """

    process: int
    name: str
    rows: NDArray[np.int64]


@dataclass(frozen=True)
class Spans:
    """The spans of a Run, prepared for drawing.

    Attributes:
        table: The ``spans`` table in one piece.
        start_ns, end_ns: Edges; the end is never before the start. Shape (n,).
        flaw: 0, or the number of a text of ``FLAWS``, shape (n,).
        drawn: Whether the span has a position in time, shape (n,).
    """

    table: pa.Table
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    flaw: NDArray[np.int8]
    drawn: NDArray[np.bool_]


FLAWS = ("", "its end is unknown", "it ends before it starts")
"""Flaws of the times of a span that is drawn without a length."""


def spans_of(run: Run) -> Spans:
    """The spans of a Run with their edges as arrays."""
    stored = pa.concat_tables([tables.conform(run.spans, "spans"), _of_waveform(run)])
    table = pa.table({name: in_one_piece(stored[name]) for name in stored.column_names})
    known, ended = (np.asarray(table[edge].is_valid()) for edge in ("start_ns", "end_ns"))
    start, end = _whole(table["start_ns"]), _whole(table["end_ns"])
    flaw = np.where(ended, np.where(end < start, np.int8(2), np.int8(0)), np.int8(1))
    if flaw.any():
        end = np.where(flaw == 0, end, start)
    return Spans(table, start, end, flaw, known)


def _of_waveform(run: Run) -> pa.Table:
    """The iteration of the waveform with its kernels, unless the Run contains them in full."""
    found, kept = waveform_of(run), run.spans
    if found is None or not run.devices:
        return tables.empty("spans")
    begin, end = found.edges_ns[[0, -1]].tolist()
    there = pc.and_(pc.greater_equal(kept["start_ns"], begin), pc.less(kept["start_ns"], end))
    if pc.any(pc.and_(there, pc.equal(kept["kind"], "kernel"))).as_py():
        return tables.empty("spans")
    first, device = 1 + (pc.max(kept["id"]).as_py() or 0), run.devices[0].id
    names = dict(zip(run.units["id"].to_pylist(), run.units["name"].to_pylist(), strict=True))
    around = {"id": first, "device": device, "lane": "waveform", "start_ns": begin, "end_ns": end}
    rows: list[dict[str, object]] = [{**around, "kind": "iteration", "name": "iteration"}]
    for number, row in enumerate(found.kernels.select(["start_ns", "end_ns", "unit"]).to_pylist(), first + 1):
        own = {"id": number, "parent": first, "kind": "kernel", "name": names.get(row["unit"])}
        rows.append({**around, **own, **row})
    return tables.from_rows(rows, "spans")


def in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array, with a single dictionary."""
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def codes(column: pa.ChunkedArray) -> tuple[list[str], Codes]:
    """The words of a dictionary column, and the index of each row's word; -1 for none."""
    array = in_one_piece(column)
    return array.dictionary.to_pylist(), array.indices.fill_null(-1).to_numpy(zero_copy_only=False)


def processes_of(run: Run) -> list[Process]:
    """The host and every device that the Run names, the host first."""
    infos: dict[str, DeviceInfo | None] = {device.id: device for device in run.devices}
    for table in (run.spans, run.samples):
        for device in table["device"].unique().to_pylist() if "device" in table.column_names else []:
            if device is not None:
                infos.setdefault(device, None)
    found = [Process(1, _marked("Host", run.simulated), None)]
    for id, info in infos.items():
        name = f"{info.name} ({id})" if info is not None and info.name != id else id
        simulated = run.simulated if info is None else info.simulated
        found.append(Process(len(found) + 1, _marked(name, simulated), id))
    return found


def tracks_of(spans: Spans, processes: list[Process]) -> Iterator[Track]:
    """The tracks of all spans with a position in time, process by process."""
    if not spans.drawn.any():
        return
    devices, device = codes(spans.table["device"])
    kinds, kind = codes(spans.table["kind"])
    lanes, lane = codes(spans.table["lane"])
    headings = list(dict.fromkeys([*_HEADINGS.values(), *sorted(map(_heading, kinds)), _heading(None)]))
    words = sorted(lanes, key=_natural)
    place = {process.device: process.id for process in processes}
    # One number for process, heading and lane; a missing one has code -1, the last of each list.
    group = np.array([place[name] for name in [*devices, None]], np.int64)[device]
    group *= len(headings)
    group += np.array([headings.index(_heading(name)) for name in [*kinds, None]])[kind]
    group *= len(words) + 1
    rank = {word: i for i, word in enumerate(words)}
    group += np.array([*(rank[word] for word in lanes), len(words)])[lane]
    del device, kind, lane
    rows = np.lexsort((-spans.end_ns, spans.start_ns, group))
    if not spans.drawn.all():
        rows = rows[spans.drawn[rows]]
    edges = [0, *(np.flatnonzero(np.diff(group[rows])) + 1).tolist(), len(rows)]
    for first, last in pairwise(edges):
        part = rows[first:last]
        rest, of_lane = divmod(int(group[part[0]]), len(words) + 1)
        process, heading = divmod(rest, len(headings))
        name = _track_name(headings[heading], [*words, ""][of_lane])
        nest = headings[heading] not in _SIDE_BY_SIDE
        number = sub_tracks(spans.start_ns[part], spans.end_ns[part], nest=nest)
        if number.any():
            part = part[np.argsort(number, kind="stable")]
        ends = np.cumsum(np.bincount(number)).tolist()
        for k, (begin, end) in enumerate(pairwise([0, *ends])):
            yield Track(process, f"{name} ({k + 1})" if k else name, part[begin:end])


def _whole(column: pa.ChunkedArray) -> NDArray[np.int64]:
    array = in_one_piece(column)
    array = array.fill_null(0) if array.null_count else array
    found: NDArray[np.int64] = array.to_numpy(zero_copy_only=False)
    return found


def _heading(kind: str | None) -> str:
    """The heading of a kind; the kind's own name for a kind of a newer version."""
    return _HEADINGS.get(kind or "", (kind or "Other").capitalize())


def _track_name(heading: str, lane: str) -> str:
    if not lane:
        return heading
    return f"{heading}, stream {lane}" if heading == "Kernels" and lane.isdigit() else f"{heading}, {lane}"


def _natural(name: str) -> str:
    """A sort key that puts stream 7 before stream 13."""
    return re.sub(r"\d+", lambda digits: digits[0].zfill(20), name)


def _marked(name: str, simulated: bool) -> str:
    return f"SIMULATED {name}" if simulated else name


def sub_tracks(start: NDArray[np.int64], end: NDArray[np.int64], *, nest: bool) -> NDArray[np.int32]:
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
    for i, (begin, finish) in enumerate(_pairs(start, end)):
        while taken and taken[0][0] <= begin:
            heappush(free, heappop(taken)[1])
        found = _enclosing(stacks, begin, finish) if nest else None
        if found is None:
            found = heappop(free) if free else len(stacks)
            if found == len(stacks):
                stacks.append([])
            stacks[found] = [finish]
            heappush(taken, (finish, found))
        number[i] = found
    return number


def _pairs(start: NDArray[np.int64], end: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Starts and ends as Python numbers, of which only a part exists at a time."""
    for i in range(0, len(start), _BLOCK):
        yield from zip(start[i : i + _BLOCK].tolist(), end[i : i + _BLOCK].tolist(), strict=True)


def _enclosing(stacks: list[list[int]], begin: int, finish: int) -> int | None:
    """A sub-track whose innermost open span contains this one, to which it is added."""
    for k, stack in enumerate(stacks[:_NEAR]):
        while stack and stack[-1] <= begin:
            stack.pop()
        if stack and finish <= stack[-1]:
            stack.append(finish)
            return k
    return None
