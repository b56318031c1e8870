"""``--repeats``: the same profile in N fresh processes, whose Runs are merged.

Differences between processes (memory layout, clocks, initial temperature of the die) are invisible within one
process; only fresh processes show them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.errors import BadInputError, BrokenOffError, JouletraceError, NotPossibleError, RecorderDiedError
from jouletrace.known_secrets import hidden
from jouletrace.processes.children import our_child, python_path
from jouletrace.profiler.profile import finish, profile_workload
from jouletrace.profiler.progress import Progress
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import Run, load, tables
from jouletrace.run.files import RUN_JSON
from jouletrace.run.loading import load_header
from jouletrace.run.store import remove_own, save_header

FOLDER = "repeats"
PATIENCE_S = 10.0
"""Seconds within which an interrupted process must save its record."""

_SAYS = "jouletrace: "
_INTERRUPTED = 130


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
            in_fresh_process(workload, numbered(settings, number), place)
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


def in_fresh_process(workload: str, settings: ProfileSettings, folder: Path, limit_s: float | None = None) -> None:
    """Profile in a separate process; ``folder`` receives its Run.

    Raises:
        BadInputError, NotPossibleError, RecorderDiedError: With the message of the process.
        BrokenOffError: If the workload ended the process, whatever its exit code.
        TimeoutError: If it took longer than ``limit_s``; it has been ended.
        RuntimeError: If it failed with an unexpected exception, with its output.
    """
    task = {"workload": workload, "settings": asdict(settings), "folder": str(folder)}
    process = subprocess.Popen(
        our_child("jouletrace.profiler.repeats"),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,  # the workload's prints aren't results
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONPATH": python_path()},
        process_group=0,  # this process forwards Ctrl-C, exactly once
    )
    try:
        _, said = process.communicate(json.dumps(task), timeout=limit_s)
    except BaseException as error:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise TimeoutError(f"it did not end within {limit_s:g} s") from None
        raise
    code, last = process.returncode, (said.strip().splitlines() or [""])[-1]
    if code == 0 and _is_complete(folder):
        return
    if last.startswith(_SAYS):  # otherwise the workload has chosen the exit code
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
        if code == NotPossibleError.exit_code:
            raise NotPossibleError(last.removeprefix(_SAYS))
        if code == BadInputError.exit_code:
            raise BadInputError(last.removeprefix(_SAYS))
    if code < 0:
        raise RecorderDiedError(f"a run was killed by signal {-code}; the data written so far is kept in {folder}")
    if "Traceback" in said:
        raise RuntimeError(f"a run failed:\n{said}")
    raise BrokenOffError(f"{workload} ended its process with exit code {code} before it was measured")


def _is_complete(folder: Path) -> bool:
    try:
        return load_header(folder).complete
    except BadInputError:
        return False


def _child() -> int:
    task = json.load(sys.stdin)
    try:
        profile_workload(task["workload"], ProfileSettings(**task["settings"]), folder=Path(task["folder"]))
    except JouletraceError as error:
        print(_SAYS + hidden(" ".join(str(error).split())), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(_SAYS + "interrupted", file=sys.stderr)
        return _INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(_child())
