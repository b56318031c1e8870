"""Loads of several files as those of one Run."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.run import Run, tables
from jouletrace.run.forms import LoadFacts
from jouletrace.run.sound import sound_rows


def edges(run: Run) -> list[tuple[int, int]]:
    """See ``KindOfRun``: loads whose single requests aren't known."""
    return [(load["start_ns"], load["end_ns"]) for load in _without_requests(run)]


def shift(run: Run, by_ns: int) -> None:
    """See ``KindOfRun``."""
    for load in _without_requests(run):
        load["start_ns"] += by_ns
        load["end_ns"] += by_ns


def _without_requests(run: Run) -> list[LoadFacts]:
    """Loads whose times stand in the workload alone."""
    return [load for load in run.workload["serving"]["levels"] if {"totals", "start_ns", "end_ns"} <= set(load)]


def join(runs: Sequence[Run]) -> None:
    """See ``KindOfRun``: number the loads of all files consecutively; the first file has them all."""
    levels: list[LoadFacts] = []
    for run in runs:
        numbers = pc.add(run.requests["level"], pa.scalar(len(levels), pa.int64()))
        run.requests = tables.changed(run.requests, "level", numbers)
        levels += run.workload["serving"]["levels"]
    streamed = _join_steps(runs)
    serving = runs[0].workload["serving"] = {**runs[0].workload["serving"], "levels": levels}
    if streamed is not None:
        serving["streamed"] = streamed


def _join_steps(there: Sequence[Run]) -> float | None:
    """Leave the steps of all loads with the first file, or none if a load has none or some overlap.

    Returns:
        How complete they are where answers showed them; None of logged ones.
    """
    complete = [run.workload["serving"].pop("streamed", None) for run in there]
    steps = tables.concat([run.steps for run in there], "steps").sort_by("start_ns")
    apart = all(len(run.steps) for run in there) and len(sound_rows(steps, "steps")) == len(steps)
    for run in there:
        run.steps = tables.empty("steps")
    if apart:
        there[0].steps = steps
    return min((one for one in complete if one is not None), default=None) if apart else None
