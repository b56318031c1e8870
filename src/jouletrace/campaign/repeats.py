"""``--repeats``: the same profile in N fresh processes, whose Runs are merged.

Differences between processes (memory layout, clocks, initial temperature of the die) are invisible within one
process; only fresh processes show them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.campaign.cluster import Cluster, fill_one_on
from jouletrace.campaign.loop import DamagedError, Note, PointObserver, PointOutcome, Tally, carry_out, claimed
from jouletrace.campaign.worker import profile_in_child
from jouletrace.devices import is_simulated
from jouletrace.errors import BadInputError
from jouletrace.profiler.profile import finish
from jouletrace.profiler.progress import Progress
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import Run, load, tables
from jouletrace.run.files import RUN_JSON, shown
from jouletrace.workloads import resolve

FOLDER = "repeats"
CLAIM = "repeats.json"


def profile_repeats(
    workload: str,
    settings: ProfileSettings,
    repeats: int,
    *,
    folder: Path,
    command: str = "",
    progress: Progress | None = None,
) -> tuple[Run, Tally[Path]]:
    """Profile in ``repeats`` fresh processes, one after the other; those whose Run is there are not repeated.

    ``folder/repeats/N`` keeps each Run. The returned Run, saved in ``folder``, contains them all; its intervals
    come from the spread between them. The first failure and Ctrl-C end it: the Run contains those that there are, and
    is marked incomplete.

    Raises:
        BaseException: What ended it, if nothing was recorded: the folder is as before.
        BadInputError: If the folder holds something else.
    """
    folder = folder.absolute()
    was_there = folder.exists()

    def measure(places: Sequence[Path], note: Note[Path]) -> None:
        (place,) = places
        shutil.rmtree(folder / place, ignore_errors=True)
        profile_in_child(workload, numbered(settings, int(place.name)), folder / place)
        note(PointOutcome(place))

    with claimed(folder / CLAIM, "repeated profile", {"workload": workload, **settings.to_dict()}):
        groups = [[Path(FOLDER, str(number))] for number in range(1, repeats + 1)]
        tally = carry_out(
            groups,
            lambda place: is_measured(folder / place, workload, settings),
            measure,
            PointObserver(progress, "run"),
        )
        run = gathered(folder, repeats, settings, command, interrupted=isinstance(tally.ended_by, KeyboardInterrupt))
    if run is not None:
        return run, tally
    (folder / CLAIM).unlink()
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    if not was_there:
        folder.rmdir()
    assert tally.ended_by is not None, "a repeat that returns has saved its Run"
    raise tally.ended_by


def profile_on(
    there: Cluster, workload: str, settings: ProfileSettings, repeats: int, *, folder: Path, command: str = ""
) -> Run:
    """As ``profile_repeats``, on one GPU of a cluster: all repeats, or none if one fails.

    Sensors of GPUs differ by more than processes do, and repeats of one Run follow one another. On another GPU they
    would begin again, so nothing is resumed.

    Raises:
        Exception: Why there is no Run.
    """
    fill: Callable[[Path], None] = partial(profile_in_child, workload, settings, command=command)
    if repeats > 1:
        fill = partial(_all_repeats, workload, settings, repeats, command)
    fill_one_on(there, fill, folder, settings.device)
    return load(folder)


def _all_repeats(workload: str, settings: ProfileSettings, repeats: int, command: str, folder: Path) -> None:
    _, tally = profile_repeats(workload, settings, repeats, folder=folder, command=command)
    if tally.ended_by is not None:
        raise tally.ended_by


def places_of(folder: Path, repeats: int) -> list[Path]:
    """The folders of the Runs of repeats; a single one is in the folder itself."""
    return [folder] if repeats == 1 else [folder / FOLDER / str(number) for number in range(1, repeats + 1)]


def can_resume(folder: Path) -> bool:
    """True if a folder holds repeats that were broken off."""
    return (folder / CLAIM).exists() and not ((folder / RUN_JSON).exists() and load(folder).complete)


def gathered(
    folder: Path, repeats: int, settings: ProfileSettings, command: str = "", *, interrupted: bool = True
) -> Run | None:
    """The Runs of repeats as one, saved in ``folder``; None if there are none.

    It is incomplete if some are missing, because the command was ``interrupted`` or a repeat failed.
    """
    there = [load(place) for place in places_of(folder, repeats) if (place / RUN_JSON).exists()]
    known = load(folder) if (folder / RUN_JSON).exists() else None
    if not there or (known is not None and known.complete):
        return known
    run = merge(there)
    if len(there) < repeats or not run.complete:
        said = f"{len(there)} of {repeats} runs were started; the data recorded so far is kept"
        run.warn("interrupted" if interrupted else "failed", said)
        run.complete = False
    if known is not None:
        run.id = known.id  # which lets it be replaced
    run.command, run.settings = command, {**settings.to_dict(), "repeats": repeats}
    return finish(run, folder)


def is_measured(place: Path, workload: str, settings: ProfileSettings) -> bool:
    """True if a folder holds a Run with figures: one that was interrupted has none, or is marked incomplete.

    Raises:
        DamagedError: If it can't be read.
        BadInputError: If the Run is of another workload, or of other values of an axis.
    """
    if (run := run_at(place)) is None:
        return False
    wanted, stated = ({name: one.get(name) or None for name in _AXES} for one in (settings.to_dict(), run.settings))
    if run.settings and (wanted != stated or run.workload.get("name") != resolve(workload).name):
        raise BadInputError(f"{shown(place)} holds a Run of something else: remove it, or name another folder")
    return run.complete and len(run.results) > 0


def run_at(place: Path) -> Run | None:
    """The Run in a folder, if there is one.

    Raises:
        DamagedError: If it can't be read.
    """
    try:
        return load(place) if (place / RUN_JSON).exists() else None
    except BadInputError as error:
        raise DamagedError(str(error)) from None


_AXES: Final = ("batch", "seq_len", "dtype", "mode", "config")
"""Settings by which points of a campaign differ."""


def merge(runs: list[Run]) -> Run:
    """Several Runs of one workload as one; ``windows.block`` distinguishes them."""
    runs = _one_after_another(sorted(runs, key=lambda run: run.created_ns))  # one that failed is measured later
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
    if not is_simulated(name):
        return settings
    parts = [part for part in query.split("&") if part]
    first = next((part.removeprefix("run=") for part in parts if part.startswith("run=")), "0")
    if not first.isdecimal():
        return settings  # opening the device reports the error
    others = [part for part in parts if not part.startswith("run=")]
    return replace(settings, device=f"{name}?{'&'.join([*others, f'run={int(first) + number - 1}'])}")
