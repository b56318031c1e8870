"""``--repeats``: the same profile in N fresh processes, whose Runs become one.

What differs between processes (memory layout, clocks, where the die's temperature stood) can't be
seen from within one; only runs made afresh show it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa

from jouletrace.errors import BadInputError, JouletraceError, NotPossibleError
from jouletrace.profiler.profile import finish, profile_workload
from jouletrace.profiler.progress import Progress, Silent
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import Run, load, tables

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

    Each one's Run is kept in ``folder/repeats/N``; the Run returned, in ``folder``, holds them all,
    its figures' intervals from the spread between them.

    Raises:
        BadInputError, NotPossibleError: What the first process that failed said.
    """
    progress = progress or Silent()
    runs = []
    for number in range(1, repeats + 1):
        progress.begin(f"run {number} of {repeats}", 0)
        runs.append(_in_fresh_process(workload, _numbered(settings, number), folder / FOLDER / str(number)))
    run = merge(runs)
    run.command = command
    run.settings = {**settings.to_dict(), "repeats": repeats}
    return finish(run, folder)


def merge(runs: list[Run]) -> Run:
    """Several Runs of one thing as one; ``windows.block`` tells them apart."""
    merged = replace(runs[0], complete=all(run.complete for run in runs), warnings=[])
    for run in runs:
        for warning in run.warnings:
            merged.warn(warning.code, warning.message, warning.where)
    merged.clock_pairs = [pair for run in runs for pair in run.clock_pairs]
    merged.recorder = {key: sum(run.recorder.get(key, 0.0) for run in runs) for key in runs[0].recorder}
    merged.samples = _concat([run.samples for run in runs], "samples")
    merged.spans = _concat([_renumbered(run.spans, number) for number, run in enumerate(runs)], "spans")
    windows = []
    for number, run in enumerate(runs):
        index = run.windows.schema.get_field_index("block")
        block = pa.array([number] * len(run.windows), pa.int32())
        windows.append(run.windows.set_column(index, run.windows.schema.field(index), block))
    merged.windows = _concat(windows, "windows")
    return merged


def _renumbered(spans: pa.Table, number: int) -> pa.Table:
    """Spans with ids that no other run's spans have."""
    for name in ("id", "parent"):
        index = spans.schema.get_field_index(name)
        shifted = pa.compute.add(spans[name], pa.scalar(number * 1_000_000_000, pa.int64()))
        spans = spans.set_column(index, spans.schema.field(index), shifted)
    return spans


def _concat(parts: list[pa.Table], name: str) -> pa.Table:
    return tables.conform(pa.concat_tables(parts), name)


def _numbered(settings: ProfileSettings, number: int) -> ProfileSettings:
    """Simulated boards differ between runs by the number in their spec; real ones do so by themselves."""
    if not settings.device.startswith("sim:"):
        return settings
    separator = "&" if "?" in settings.device else "?"
    return replace(settings, device=f"{settings.device}{separator}run={number}")


def _in_fresh_process(workload: str, settings: ProfileSettings, folder: Path) -> Run:
    task = {"workload": workload, "settings": asdict(settings), "folder": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-m", "jouletrace.profiler.repeats"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _, said = process.communicate(json.dumps(task))
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if process.returncode:
        last = said.strip().splitlines()[-1] if said.strip() else f"exit code {process.returncode}"
        kind = NotPossibleError if process.returncode == NotPossibleError.exit_code else BadInputError
        raise kind(last.removeprefix("jouletrace: "))
    return load(folder)


def _child() -> int:
    task = json.load(sys.stdin)
    try:
        profile_workload(task["workload"], ProfileSettings(**task["settings"]), folder=Path(task["folder"]))
    except JouletraceError as error:
        print(f"jouletrace: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(_child())
