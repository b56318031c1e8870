"""Launches, copies and sets in an imported timeline whose work on a GPU it lacks."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.arrays import Ints, Mask
from jouletrace.run import Run, tables
from jouletrace.run.unrecorded import FEW, WITHOUT_KERNEL, WITHOUT_RECORD, without_work

_CALLS = {
    "kernel": re.compile(r"launch_?(cooperative_?)?(kernel|grid)|(kernel|graph)_?launch|^cu(da)?launch(_|$)", re.I),
    "memcpy": re.compile(r"^(cu|cuda|hip)mem(cpy|set)", re.I),
}
"""Calls after which a GPU works, by the kind of its work; not those of host functions, which need not be recorded."""

_SUBMITS_NS = 1500
"""A copy or set whose call is shorter has nothing to do, of 0 bytes: in public timelines it takes up to 1 µs, without a
record, and one with a record 2.5 µs or more."""

_BEGINS, _ENDS = re.compile("StreamBeginCapture"), re.compile("StreamEndCapture")
"""Between these a launch adds a node to a graph, and runs nothing."""

_END = 0.01
"""Share of the time of all launches at either end in which the window of a profiler cuts kernels off."""


class Launches(NamedTuple):
    """Calls that launch kernels, or copies and sets.

    Attributes:
        made: How many there are, but for those that were captured into a graph and have no work.
        lost: How many have no work.
        at_ends: True if all of these lie at the ends of the timeline.
    """

    made: int
    lost: int
    at_ends: bool


def warn_of_launches(run: Run) -> None:
    """Say how many launches of a timeline have no kernel in it, and how many copies and sets no record."""
    for kind, text in (("kernel", WITHOUT_KERNEL), ("memcpy", WITHOUT_RECORD)):
        launches = launches_of(run.spans, kind)
        few_at_ends = launches.at_ends and launches.lost <= FEW * launches.made
        if launches.lost:
            why = "they ran outside of the recorded time" if few_at_ends else "what they ran is in no figure"
            run.warn(*without_work(launches.lost, launches.made, text, why, at_ends=few_at_ends))


def launches_of(spans: pa.Table, kind: str = "kernel") -> Launches:
    """The launches of a kind of work ("kernel", or "memcpy" with sets) among ``spans``, and how many have none.

    A launch and its work share a correlation. So do launches of several processes, each of which counts its own:
    of these as many are lost as there are more threads that launched by it than spans of devices with it. Work
    without a correlation may be that of any launch.
    """
    calls, work = (spans.filter(pick(spans["kind"], "launch")) for pick in (pc.equal, pc.not_equal))
    (name, names), (lane, lanes) = tables.decoded(calls["name"]), tables.decoded(calls["lane"])
    start, end, id = (pc.fill_null(calls[column], -1).to_numpy() for column in ("start_ns", "end_ns", "correlation"))
    of_work = pc.filter(work["correlation"], pc.equal(work["kind"], kind))
    launching = np.array([bool(_CALLS[kind].search(text)) for text in names], bool)[name]
    launching &= (kind == "kernel") | (end - start >= _SUBMITS_NS)
    row = np.flatnonzero(launching & ((id > 0) | (len(of_work) == 0)))
    if not len(row):
        return Launches(0, 0, at_ends=False)
    keys, key = tables.distinct(np.where(id > 0, id, -1 - np.arange(len(id)))[row])
    pairs, _ = tables.distinct(key * (len(lanes) + 1) + lane[row] + 1)
    launches = np.bincount(pairs // (len(lanes) + 1), minlength=len(keys))
    ran = pc.drop_null(work["correlation"]).to_numpy()
    at = np.minimum(np.searchsorted(keys, ran), len(keys) - 1)
    lost = np.maximum(launches - np.bincount(at[keys[at] == ran], minlength=len(keys)), 0)
    first = np.empty(len(keys), np.int64)
    first[key[::-1]] = start[row[::-1]]
    captured = lost * _in_capture(first, start, name, names)
    lost -= captured
    missing = max(int(lost.sum()) - of_work.null_count, 0)
    edge = _END * np.ptp(first)
    inside = (first > first.min() + edge) & (first < first.max() - edge)
    return Launches(int(launches.sum() - captured.sum()), missing, at_ends=not (lost[inside] > 0).any())


def _in_capture(when: Ints, start: Ints, name: Ints, names: list[str]) -> Mask:
    """True for times between a call that begins a capture and one that ends it; either may lie outside of the file."""
    steps = np.array([bool(_BEGINS.search(text)) - bool(_ENDS.search(text)) for text in names], np.int64)[name]
    edges = np.flatnonzero(steps)
    edges = edges[np.argsort(start[edges], kind="stable")]
    depth = np.append(0, np.cumsum(steps[edges]))
    depth -= depth.min()
    return np.asarray(depth[np.searchsorted(start[edges], when, side="right")] > 0)
