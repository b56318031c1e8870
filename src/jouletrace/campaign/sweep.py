"""``sweep``: a grid of profiles, each in a fresh process, that can be resumed."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from jouletrace.campaign.repeats import numbered
from jouletrace.campaign.worker import TIMED_OUT, profile_apart
from jouletrace.devices import open_device
from jouletrace.errors import BadInputError, BrokenOffError, JouletraceError, NotPossibleError
from jouletrace.processes.locks import LOCK, alone_in
from jouletrace.profiler.power_limits import PowerLimiter, changing, check_limit, open_limiter
from jouletrace.profiler.progress import Progress
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.report.sweep import AXES, DONE, Entry, Point
from jouletrace.run import load
from jouletrace.run.files import RUN_JSON, safe_name, shown, write_whole
from jouletrace.workloads import resolve

SETTINGS = "sweep.json"
POINTS = "points"
OUT_OF_MEMORY, FAILED = "out_of_memory", "failed"

Runner = Callable[[str, ProfileSettings, Path, float | None], None]
"""Profiles in a separate process: ``worker.profile_apart``, or a substitute."""


@dataclass(frozen=True)
class Grid:
    """The varied options; an empty axis keeps the option's value. Power limits are in watts."""

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
    progress: Progress | None = None,
    runner: Runner = profile_apart,
) -> list[Entry]:
    """Profile every point of a grid whose Run isn't there yet; one entry per point, in the grid's order.

    ``folder`` holds the settings in ``sweep.json``, and one Run per point under ``points/``. A point that takes longer
    than ``limit_s`` seconds is ended. Power limits are changed only if that is ``permitted``.

    Raises:
        BadInputError: If a point is invalid, the folder holds something else, or power limits would be changed without
            permission.
        NotPossibleError: If no point could be measured, the power limit can't be set, or another sweep is writing into
            the folder.
    """
    progress, folder = progress or Progress(), folder.absolute()
    points = grid.points()
    _check(points, settings)
    if not limit_s > 0:
        raise BadInputError(f"--point-limit {limit_s:g}: must be more than 0 s")
    found = []
    with alone_in(folder, "running a sweep"), ExitStack() as stack:
        limiter = stack.enter_context(_limiter(grid, settings.device, permitted))
        _claim(folder, settings)
        if limiter is not None:
            stack.enter_context(changing(limiter, settings.device))
        for number, point in enumerate(points, start=1):
            place = folder / POINTS / _slug(point)
            if _has_figures(place):
                outcome, reason = DONE, ""
            else:
                progress.begin(f"point {number} of {len(points)}", 0)
                shutil.rmtree(place, ignore_errors=True)
                own = numbered(_settings_of(point, settings, limiter), number)
                outcome, reason = _outcome(runner, point["workload"], own, place, limit_s)
            found.append(Entry(point, outcome, reason, str(place), load(place) if outcome == DONE else None))
    if not any(entry.outcome == DONE for entry in found):
        reasons = dict.fromkeys(entry.reason for entry in found)
        raise NotPossibleError(f"none of {len(points)} points could be measured: {'; '.join(reasons)}")
    return found


def _has_figures(place: Path) -> bool:
    """True if a point was measured: a sweep that is interrupted while it computes figures leaves a Run without any."""
    if not (place / RUN_JSON).exists():
        return False
    run = load(place)
    return run.complete and len(run.results) > 0


def _outcome(runner: Runner, workload: str, settings: ProfileSettings, place: Path, limit_s: float) -> tuple[str, str]:
    """Outcome of a point, and the reason if it failed; Ctrl-C ends the sweep."""
    try:
        runner(workload, settings, place, limit_s)
        return DONE, ""
    except TimeoutError:
        return TIMED_OUT, f"it did not end within {limit_s:g} s"
    except (JouletraceError, BrokenOffError) as error:
        return (OUT_OF_MEMORY if "out of memory" in str(error) else FAILED), str(error)
    except RuntimeError as error:  # an unexpected exception: the grid continues, the message is kept
        return FAILED, (str(error).strip().splitlines() or ["it failed without a message"])[-1]


def _settings_of(point: Point, settings: ProfileSettings, limiter: PowerLimiter | None = None) -> ProfileSettings:
    """The settings of a point; with a limiter, its power limit is set first."""
    options: dict[str, Any] = {
        name: value for name, value in point.items() if name not in ("workload", "power_limit_w")
    }
    if limiter is not None:
        limiter.set_limit(point["power_limit_w"])
        options["device"] = limiter.spec(settings.device)
    return replace(settings, **options)


def _check(points: Sequence[Point], settings: ProfileSettings) -> None:
    """Refuse invalid points before anything is measured."""
    if not points or "workload" not in points[0]:
        raise BadInputError("sweep: no workload is named")
    open_device(settings.device).close()
    for workload in dict.fromkeys(point["workload"] for point in points):
        resolve(workload)
    slugs = [_slug(point) for point in points]
    for point, slug in zip(points, slugs, strict=True):
        _settings_of(point, settings)
        if slugs.count(slug) > 1:
            raise BadInputError(f"sweep: {slug} occurs twice")


def _claim(folder: Path, settings: ProfileSettings) -> None:
    """Write the settings into a new folder; refuse the folder of another sweep, or of anything else."""
    path, own = folder / SETTINGS, json.loads(json.dumps(settings.to_dict()))
    if not path.exists():
        if any(other.suffix != LOCK for other in folder.iterdir()):
            raise BadInputError(f"{shown(folder)} is not empty and holds no sweep")
        try:
            write_whole(path, json.dumps({"settings": own}, indent=1).encode())
        except OSError as error:
            raise BadInputError(f"cannot write {shown(path)}: {error.strerror or error}") from None
        return
    try:
        there = dict(json.loads(path.read_text())["settings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{shown(path)} can't be read as the settings of a sweep: {error!r}") from None
    differing = [key for key, value in own.items() if there.get(key) != value]
    if differing:
        option = "--" + differing[0].removesuffix("_s").replace("_", "-")
        raise BadInputError(
            f"{shown(folder)} is a sweep with another {option}: resume with the same value, or use a new folder"
        )


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


def _slug(point: Point) -> str:
    """A folder name that describes the point."""
    words = {"batch": "b{}", "seq_len": "t{}", "power_limit_w": "{:g}W"}
    parts = [words.get(name, "{}").format(value) for name, value in point.items()]
    return safe_name("-".join(parts))
