"""Times that nothing can have run at: recorders lose some stamps, and a figure must not count them.

CUPTI writes 0 for a stamp that it couldn't take, and some recorders overflow a duration. Such spans stay, but without
times.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.arrays import Ints, Mask
from jouletrace.formats.importers.base import Left, about
from jouletrace.formats.importers.dates import DAY_S, NS
from jouletrace.formats.importers.joins import match_launch
from jouletrace.run import Run, tables

_DAY_NS = DAY_S * NS
"""No trace lasts so long: its file would be too large to read."""

_ROUNDING_NS = 2000
"""Stamps of whole microseconds may be off by one at either end. Kernels of one stream that follow each other overlap by
less, or partly: with programmatic dependent launch one begins before the other ends, but doesn't end before it."""

_CLOCKS_NS = 1_000_000
"""Clocks of host and GPU agree better than this, else all kernels are off."""

_WHY = (
    "without a time (start and end 0)",
    "more than a day away from the others, or so long",
    "from before their launch",
    "around later ones of their own stream",
    "there twice, alike in all",
    "without a duration, though stamps are finer than a microsecond",
)
"""Why a time is impossible, in the order in which it is looked for."""


def clear_impossible_times(run: Run, left: Left, origin_ns: int = 0) -> None:
    """Take the times from spans of one file that have impossible ones, and count them.

    ``origin_ns`` is the time since the Unix epoch from which the stamps of the file count.
    """
    spans = run.spans
    if not len(spans):
        return
    kind, kinds = tables.decoded(spans["kind"])
    work = np.isin(kind, [code for code, text in enumerate(kinds) if text in ("kernel", "memcpy")])
    start, end = (pc.fill_null(spans[edge], 0).to_numpy().astype(np.int64) for edge in ("start_ns", "end_ns"))
    why = np.full(len(spans), -1, np.int8)
    why[work & (start == end) & ((start == 0) | (start == origin_ns))] = 0
    middle = float(np.median(start[why < 0])) if (why < 0).any() else 0.0
    why[(why < 0) & ((np.abs(start - middle) > _DAY_NS) | (end.astype(float) - start > _DAY_NS))] = 1
    late = _before_launch(run, left, np.flatnonzero(work & (why < 0)), start, end, why)
    why[late] = 2
    row = np.flatnonzero(work & (why < 0))
    why[row[_covers_later(spans, row, start, end)]] = 3
    row = np.flatnonzero(work & (why < 0))
    why[row[_there_already(spans, row, start, end)]] = 4
    if len(row) and np.any((start[row] - start[row[0]]) % 1000):
        why[row[(start[row] == end[row]) & (kind[row] == _code(kinds, "kernel")) & (why[row] < 0)]] = 5
    _clear(run, left, why, work)


def _before_launch(run: Run, left: Left, row: Ints, start: Ints, end: Ints, why: NDArray[np.int8]) -> Ints:
    """Of some rows of kernels and copies those that start before the call that launched them.

    If most do, the clocks of host and GPU differ: times of kernels then stand, and a warning states it.
    """
    launch = np.flatnonzero(pc.equal(run.spans["kind"], "launch").to_numpy(zero_copy_only=False) & (why < 0))
    keys = pc.fill_null(run.spans["correlation"], -1).to_numpy().astype(np.int64)
    found = match_launch(keys[row], keys[launch], start[launch], end[launch])
    joined = row[found >= 0]
    before = start[launch[found[found >= 0]]] - start[joined]
    late = joined[before > _CLOCKS_NS]
    clocks_differ = len(late) > len(joined) / 2
    if "joins" in (file := about(run)):
        file["joins"]["before_launch"] = int((before > 0).sum()) - (0 if clocks_differ else len(late))
    if not clocks_differ:
        return late
    text = "kernels and copies start before their launch, as most do: the clocks of host and GPU differ"
    left.add("before_launch", text, len(late))
    return late[:0]


def _covers_later(spans: pa.Table, row: Ints, start: Ints, end: Ints) -> Mask:
    """True where a row lasts until after the end of one that was launched later into the same stream, shape (n,).

    Kernels of one launch, of a CUDA graph, may run side by side.
    """
    device, _ = tables.decoded(spans["device"])
    lane, lanes = tables.decoded(spans["lane"])
    nowhere = [code for code, text in enumerate(lanes) if text.endswith(("?", "-1"))]
    launch = pc.fill_null(spans["correlation"], -1).to_numpy().astype(np.int64)
    stream = ((device + 1) * (len(lanes) + 1) + lane + 1)[row]
    order = np.lexsort((-end[row], start[row], stream))
    stream, ends, launch = stream[order], end[row][order], launch[row][order]
    found = np.zeros(len(row), bool)
    edges = [*np.flatnonzero(np.diff(stream, prepend=-1)).tolist(), len(row)]
    for first, last in pairwise(edges):
        own, of = ends[first:last], launch[first:last]
        if lane[row[order[first]]] in nowhere:
            continue
        earliest = np.append(np.minimum.accumulate(own[::-1])[::-1], np.iinfo(np.int64).max)
        begins = np.append(True, (of[1:] != of[:-1]) | (of[1:] < 0))
        following = np.append(np.flatnonzero(begins), len(own))[np.cumsum(begins)]
        found[order[first:last]] = earliest[following] < own - _ROUNDING_NS
    return found


def _there_already(spans: pa.Table, row: Ints, start: Ints, end: Ints) -> Mask:
    """True for rows that repeat another in device, stream, launch, name, start and end, shape (n,).

    Kernels of one launch that start at several times are those of a CUDA graph, of which two may run side by side.
    Without a launch they may be two whose times were rounded.
    """
    of = [tables.decoded(spans[column])[0].astype(np.int64)[row] for column in ("device", "lane", "name")]
    launch = pc.fill_null(spans["correlation"], -1).to_numpy().astype(np.int64)[row]
    keys = np.stack([start[row], end[row], launch, *of])
    order = np.lexsort(keys)
    again = np.zeros(len(row), bool)
    again[order[1:]] = (np.diff(keys[:, order]) == 0).all(0)
    several, place = np.unique(launch, return_inverse=True)
    first, last = np.full(len(several), np.iinfo(np.int64).max), np.full(len(several), np.iinfo(np.int64).min)
    np.minimum.at(first, place, start[row])
    np.maximum.at(last, place, start[row])
    return np.asarray(again & (launch >= 0) & (first == last)[place])


def _code(kinds: Sequence[str], kind: str) -> int:
    return next((code for code, text in enumerate(kinds) if text == kind), -1)


def _clear(run: Run, left: Left, why: NDArray[np.int8], work: Mask) -> None:
    wrong = why >= 0
    if not wrong.any():
        return
    spans = run.spans
    host = spans["id"].to_numpy()[wrong & ~work]
    for column in ("start_ns", "end_ns"):
        spans = tables.changed(spans, column, pc.if_else(pa.array(wrong), None, spans[column]))
    if len(host):  # what seemed to lie within them needn't
        spans = tables.changed(
            spans, "parent", pc.if_else(pc.is_in(spans["parent"], pa.array(host)), None, spans["parent"])
        )
    run.spans = spans
    among = f"of {int(work.sum())} kernels and copies" if not len(host) else f"of {len(spans)} spans"
    said = "; ".join(f"{n} {words}" for code, words in enumerate(_WHY) if (n := int((why == code).sum())))
    first = str(spans["name"][int(np.flatnonzero(wrong)[0])].as_py() or "")[:60]
    text = f"{among} have impossible times, which no figure counts: {said} (first {first!r})"
    left.add("impossible_times", text, int(wrong.sum()))


def earliest_ns(run: Run) -> int:
    """The start of the first span with a time, in ns; 0 if there is none."""
    first: Any = pc.min(run.spans["start_ns"]).as_py()
    return 0 if first is None else int(first)
