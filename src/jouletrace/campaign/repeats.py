"""``--repeats``: the same profile in N fresh processes, whose Runs are merged.

Differences between processes (memory layout, clocks, initial temperature of the die) are invisible within one
process; only fresh processes show them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.campaign.worker import profile_apart
from jouletrace.errors import BadInputError
from jouletrace.profiler.profile import finish
from jouletrace.profiler.progress import Progress
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import Run, load, tables
from jouletrace.run.files import RUN_JSON
from jouletrace.run.store import remove_own, save_header

FOLDER = "repeats"


def profile_repeats(
    workload: str,
    settings: ProfileSettings,
    repeats: int,
    *,
    folder: Path,
    command: str = "",
    progress: Progress | None = None,
) -> Run:
    """Profile in ``repeats`` fresh processes, one after the other.

    ``folder/repeats/N`` keeps each Run. The returned Run, saved in ``folder``, contains them all; its intervals
    come from the spread between them. If the function ends early, ``folder`` holds the finished ones, marked
    incomplete.

    Raises:
        BadInputError, NotPossibleError: With the message of the first process that failed.
    """
    progress, folder = progress or Progress(), folder.absolute()
    begun = Run(created_ns=time.time_ns(), command=command, settings=settings.to_dict(), complete=False)
    save_header(begun, folder, first=True)
    places = [folder / FOLDER / str(number) for number in range(1, repeats + 1)]
    try:
        for number, place in enumerate(places, start=1):
            progress.begin(f"run {number} of {repeats}", 0)
            profile_apart(workload, numbered(settings, number), place)
    except BaseException as error:
        there = [place for place in places if (place / RUN_JSON).exists()]
        if there:
            partial = merge([load(place) for place in there])
            code = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            partial.warn(code, f"{len(there)} of {repeats} runs were started; the data recorded so far is kept")
            partial.complete = False
            _finish(partial, settings, repeats, folder, begun)
        else:
            remove_own(folder)
        raise
    return _finish(merge([load(place) for place in places]), settings, repeats, folder, begun)


def _finish(run: Run, settings: ProfileSettings, repeats: int, folder: Path, begun: Run) -> Run:
    run.id, run.command = begun.id, begun.command
    run.settings = {**settings.to_dict(), "repeats": repeats}
    return finish(run, folder)


def is_measured(place: Path) -> bool:
    """True if a folder holds a Run with figures: one that was interrupted has none, or is marked incomplete."""
    if not (place / RUN_JSON).exists():
        return False
    run = load(place)
    return run.complete and len(run.results) > 0


def merge(runs: list[Run]) -> Run:
    """Several Runs of one workload as one; ``windows.block`` distinguishes them."""
    runs = _one_after_another(runs)
    merged = replace(runs[0], id=uuid4().hex, complete=all(run.complete for run in runs), warnings=[])
    for run in runs:
        for warning in run.warnings:
            merged.warn(warning.code, warning.message, warning.where)
    merged.clock_pairs = [pair for run in runs for pair in run.clock_pairs]
    merged.recorder = {key: sum(run.recorder.get(key, 0.0) for run in runs) for key in runs[0].recorder}
    merged.samples = tables.concat([run.samples for run in runs], "samples")
    merged.spans = tables.concat([_numbered_spans(run.spans, number) for number, run in enumerate(runs)], "spans")
    blocks = [pa.array([number] * len(run.windows), pa.int32()) for number, run in enumerate(runs)]
    windows = [tables.changed(run.windows, "block", block) for run, block in zip(runs, blocks, strict=True)]
    merged.windows = tables.concat(windows, "windows")
    return merged


_TIMES = {"samples": ("time_ns",), "spans": ("start_ns", "end_ns"), "windows": ("start_ns", "end_ns")}


def _one_after_another(runs: list[Run]) -> list[Run]:
    """The same Runs at times that don't overlap: virtual time restarts in every process."""
    found: list[Run] = []
    free_ns = 0
    for run in runs:
        times = [run.table(name)[column] for name, columns in _TIMES.items() for column in columns]
        edges = [pc.min_max(column).as_py() for column in times if len(column)]
        if not edges:
            found.append(run)
            continue
        late_ns = max(0, free_ns - min(edge["min"] for edge in edges))
        if late_ns and not run.simulated:
            raise BadInputError("the runs overlap in time: they were not recorded one after the other")
        found.append(_later(run, late_ns) if late_ns else run)
        free_ns = max(edge["max"] for edge in edges) + late_ns + 1_000_000_000
    return found


def _later(run: Run, by_ns: int) -> Run:
    moved = {}
    for name, columns in _TIMES.items():
        table = run.table(name)
        for column in columns:
            table = tables.changed(table, column, pc.add(table[column], pa.scalar(by_ns, pa.int64())))
        moved[name] = table
    pairs = [{**pair, "time_ns": pair["time_ns"] + by_ns} for pair in run.clock_pairs]
    return replace(run, clock_pairs=pairs, **moved)


def _numbered_spans(spans: pa.Table, number: int) -> pa.Table:
    """Spans with ids that are unique among the runs."""
    for name in ("id", "parent"):
        spans = tables.changed(
            spans, name, pc.add(spans[name], pa.scalar(number * tables.SPANS_OF_A_PROCESS, pa.int64()))
        )
    return spans


def numbered(settings: ProfileSettings, number: int) -> ProfileSettings:
    """The settings of one run: ``run=`` in the spec of a simulated GPU varies it between runs, as real GPUs vary."""
    name, _, query = settings.device.partition("?")
    if not name.startswith("sim:"):
        return settings
    parts = [part for part in query.split("&") if part]
    first = next((part.removeprefix("run=") for part in parts if part.startswith("run=")), "0")
    if not first.isdecimal():
        return settings  # opening the device reports the error
    others = [part for part in parts if not part.startswith("run=")]
    return replace(settings, device=f"{name}?{'&'.join([*others, f'run={int(first) + number - 1}'])}")
