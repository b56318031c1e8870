"""``sweep``: a grid of profiles, each in a fresh process, that can be resumed."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, cast

from jouletrace.devices import open_device
from jouletrace.devices.power_limit import PowerLimiter, check_limit
from jouletrace.errors import BadInputError, BrokenOffError, JouletraceError, NotPossibleError
from jouletrace.processes.locks import LOCK, alone_in
from jouletrace.profiler.power_limits import changing, open_limiter, restore
from jouletrace.profiler.prepare import resolve
from jouletrace.profiler.progress import Progress, Silent
from jouletrace.profiler.repeats import in_fresh_process, numbered
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.report.comparison.sweep import AXES, DONE, Entry, Point
from jouletrace.run import load
from jouletrace.run.files import safe_name, shown, write_whole

RECORD = "sweep.json"
POINTS = "points"

OUT_OF_MEMORY, FAILED, TIMED_OUT = "out_of_memory", "failed", "timed_out"
SETTLED = (DONE, OUT_OF_MEMORY)
"""Outcomes that a resumed sweep keeps; all others are tried again."""

Runner = Callable[[str, ProfileSettings, Path, float | None], None]
"""Profiles in a separate process: ``repeats.in_fresh_process``, or a substitute."""


@dataclass(frozen=True)
class Grid:
    """The varied options; an empty axis keeps the option's value.

    Attributes:
        workloads: Names or paths.
        batch, seq_len: Numbers.
        dtype, mode: As for ``profile``.
        power_limit_w: Power limits in watts.
    """

    workloads: tuple[str, ...]
    batch: tuple[int, ...] = ()
    seq_len: tuple[int, ...] = ()
    dtype: tuple[str, ...] = ()
    mode: tuple[str, ...] = ()
    power_limit_w: tuple[float, ...] = ()

    def points(self) -> list[Point]:
        """All combinations; the power limit changes least often."""
        axes = {"power_limit_w": self.power_limit_w, "workload": self.workloads}
        axes |= {name: getattr(self, name) for name in ("dtype", "mode", "seq_len", "batch")}
        used = {name: values for name, values in axes.items() if values}
        found = [dict(zip(used, values, strict=True)) for values in itertools.product(*used.values())]
        return [cast(Point, {name: point[name] for name in AXES if name in point}) for point in found]


def run_sweep(
    grid: Grid,
    settings: ProfileSettings,
    folder: Path,
    *,
    limit_s: float = 600.0,
    permitted: bool = False,
    command: str = "",
    progress: Progress | None = None,
    runner: Runner = in_fresh_process,
) -> list[Entry]:
    """Profile every point of a grid; existing results are kept.

    Args:
        grid: The varied options.
        settings: All other options.
        folder: Folder of the sweep: ``sweep.json``, and one Run per point under ``points/``.
        limit_s: A point that takes longer is ended and recorded as timed out.
        permitted: Whether power limits may be changed.
        command: Command line for the record.
        progress: Receives the current point.
        runner: Profiles a point.

    Returns:
        One entry per point, in the grid's order.

    Raises:
        BadInputError: If a point is invalid, the folder holds another sweep, or power limits would
            be changed without permission.
        NotPossibleError: If no point could be measured, the power limit can't be set, or another sweep is
            writing into the folder.
    """
    progress, folder = progress or Silent(), folder.absolute()
    points = grid.points()
    _check(points, settings)
    if not limit_s > 0:
        raise BadInputError(f"--point-limit {limit_s:g}: must be more than 0 s")
    with alone_in(folder, "running a sweep"):
        record = _Record(folder, settings, command)
        _measure(points, settings, record, grid, permitted, limit_s, progress, runner)
    of_grid = [entry for entry in entries(folder) if entry.point in points]
    if not any(entry.outcome == DONE for entry in of_grid):
        reasons = dict.fromkeys(entry.reason for entry in of_grid)
        raise NotPossibleError(f"none of {len(points)} points could be measured: {'; '.join(reasons)}")
    return of_grid


def _measure(
    points: Sequence[Point],
    settings: ProfileSettings,
    record: _Record,
    grid: Grid,
    permitted: bool,
    limit_s: float,
    progress: Progress,
    runner: Runner,
) -> None:
    """Measure the points that are missing in the record."""
    with ExitStack() as stack:
        limiter = stack.enter_context(_limiter(grid, settings.device, permitted))
        record.add(points)  # before the GPU is changed, so that the sweep can be resumed after any interruption
        if limiter is not None:
            stack.enter_context(changing(limiter, settings.device))
        for number, point in enumerate(points, start=1):
            if record.outcome(point) in SETTLED:
                continue
            progress.begin(f"point {number} of {len(points)}", 0)
            place = record.clear(point)
            own = _settings_of(point, settings)
            if limiter is not None:
                limiter.set_limit(point["power_limit_w"])
                own = replace(own, device=limiter.spec(own.device))
            record.note(point, *_outcome(runner, point["workload"], numbered(own, number), place, limit_s))


def entries(folder: Path) -> list[Entry]:
    """The results of a sweep so far, with its Runs loaded.

    Raises:
        BadInputError: If there is no sweep, or its record can't be read.
    """
    record = _read_record(folder)
    if record is None:
        raise BadInputError(f"no sweep in {shown(folder)}: it holds no {RECORD}")
    found = []
    for row in record["points"]:
        place = _place_of(folder, row)
        run = load(place) if row["outcome"] == DONE else None
        found.append(Entry(row["point"], row["outcome"], row["reason"], str(place), run))
    return found


def restore_limit(device: str) -> float | None:
    """Restore the power limit that a killed sweep has left changed; None if none was left."""
    limiter = open_limiter(device)
    try:
        return restore(limiter)
    finally:
        limiter.close()


def _outcome(runner: Runner, workload: str, settings: ProfileSettings, place: Path, limit_s: float) -> tuple[str, str]:
    """Outcome of a point, and the reason if it failed; Ctrl-C ends the sweep."""
    try:
        runner(workload, settings, place, limit_s)
        return DONE, ""
    except (TimeoutError, subprocess.TimeoutExpired):
        return TIMED_OUT, f"it did not end within {limit_s:g} s"
    except (JouletraceError, BrokenOffError) as error:
        return (OUT_OF_MEMORY if "out of memory" in str(error) else FAILED), str(error)
    except RuntimeError as error:  # an unexpected exception: the grid continues, the message is kept
        return FAILED, (str(error).strip().splitlines() or ["it failed without a message"])[-1]


def _settings_of(point: Point, settings: ProfileSettings) -> ProfileSettings:
    options: dict[str, Any] = {
        name: value for name, value in point.items() if name not in ("workload", "power_limit_w")
    }
    return replace(settings, **options)


def _check(points: Sequence[Point], settings: ProfileSettings) -> None:
    """Refuse invalid points before anything is measured."""
    if not points or "workload" not in points[0]:
        raise BadInputError("sweep: no workload is named")
    open_device(settings.device).close()
    for workload in dict.fromkeys(point["workload"] for point in points):
        resolve(workload)
    for point in points:
        _settings_of(point, settings)
    doubled = next((point for i, point in enumerate(points) if point in points[:i]), None)
    if doubled is not None:
        raise BadInputError(f"sweep: {_slug(doubled)} occurs twice")


@contextmanager
def _limiter(grid: Grid, device: str, permitted: bool) -> Iterator[PowerLimiter | None]:
    """The GPU's power limit if the sweep changes it; else None."""
    if not grid.power_limit_w:
        yield None
        return
    with closing(open_limiter(device)) as limiter:
        for watts in grid.power_limit_w:
            check_limit(limiter.info, watts)
        if not permitted:
            said = ", ".join(f"{watts:g}" for watts in grid.power_limit_w)
            name = f"{limiter.info.name} ({limiter.info.id})"
            raise BadInputError(f"this would set the power limit of {name} to {said} W in turn: add --yes to permit it")
        yield limiter


class _Row(TypedDict):
    point: Point
    folder: str
    outcome: str
    reason: str


class _Content(TypedDict):
    schema: int
    settings: Mapping[str, object]
    points: list[_Row]
    command: str


class _Record:
    """``sweep.json``: the points and their outcomes; on disk after every point."""

    def __init__(self, folder: Path, settings: ProfileSettings, command: str) -> None:
        self._folder = folder
        there = _read_record(folder)
        if there is None:
            if any(other.suffix != LOCK for other in folder.iterdir()):
                raise BadInputError(f"{shown(folder)} is not empty and holds no sweep")
            self._data: _Content = {"schema": 1, "settings": settings.to_dict(), "points": [], "command": command}
        else:
            self._data = there
            differing = [key for key, value in settings.to_dict().items() if there["settings"].get(key) != value]
            if differing:
                option = "--" + differing[0].removesuffix("_s").replace("_", "-")
                raise BadInputError(
                    f"{shown(folder)} is a sweep with another {option}: resume with the same value, or use a new folder"
                )
        self._data["command"] = command

    def add(self, points: Sequence[Point]) -> None:
        """Add points that the record lacks."""
        known = [row["point"] for row in self._data["points"]]
        taken = {row["folder"] for row in self._data["points"]}
        for point in points:
            if point not in known:
                slug = _slug(point)
                name = next(
                    n for n in itertools.chain([slug], (f"{slug}-{i}" for i in itertools.count(2))) if n not in taken
                )
                taken.add(name)
                self._data["points"].append({"point": point, "folder": name, "outcome": "pending", "reason": ""})
        self._write()

    def outcome(self, point: Point) -> str:
        """Outcome of a point; a point whose Run is missing is measured again."""
        row = self._row(point)
        if row["outcome"] == DONE and not _place_of(self._folder, row).exists():
            return "pending"
        return row["outcome"]

    def clear(self, point: Point) -> Path:
        """The folder of a point's Run, after removing the files of an earlier attempt."""
        place = _place_of(self._folder, self._row(point))
        shutil.rmtree(place, ignore_errors=True)
        return place

    def note(self, point: Point, outcome: str, reason: str) -> None:
        """Record the outcome of a point."""
        row = self._row(point)
        row["outcome"], row["reason"] = outcome, reason
        self._write()

    def _row(self, point: Point) -> _Row:
        return next(row for row in self._data["points"] if row["point"] == point)

    def _write(self) -> None:
        path = self._folder / RECORD
        try:
            write_whole(path, json.dumps(self._data, indent=1).encode())
        except OSError as error:
            raise BadInputError(f"cannot write {shown(path)}: {error.strerror or error}") from None


def _read_record(folder: Path) -> _Content | None:
    path = folder / RECORD
    try:
        data = json.loads(path.read_text())
        for row in data["points"]:
            row["point"]["workload"], row["outcome"], row["reason"], _place_of(folder, row)
        if len({row["folder"] for row in data["points"]}) < len(data["points"]):
            raise ValueError("two points have one folder")
        dict(data["settings"])
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise BadInputError(f"cannot write {shown(folder)}: it, or a parent folder of it, is a file") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{shown(path)} can't be read as the record of a sweep: {error!r}") from None
    return cast(_Content, data)


def _place_of(folder: Path, row: _Row) -> Path:
    """The folder of a point's Run, which is removed before the point is measured again.

    Raises:
        BadInputError: If it lies outside the sweep's folder: nothing else may be removed.
    """
    name, home = row["folder"], folder / POINTS
    place = Path(os.path.realpath(home / str(name)))
    own = isinstance(name, str) and name != "" and Path(name).name == name
    if not own or place != Path(os.path.realpath(folder)) / POINTS / name:
        raise BadInputError(f"{shown(folder / RECORD)}: the folder {name!r} of a point lies outside {shown(home)}")
    return home / str(name)


def _slug(point: Point) -> str:
    """A folder name that describes the point."""
    words = {"batch": "b{}", "seq_len": "t{}", "power_limit_w": "{:g}W"}
    parts = [words.get(name, "{}").format(value) for name, value in point.items()]
    return safe_name("-".join(parts))
