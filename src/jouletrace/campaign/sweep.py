"""``sweep``: a grid of profiles, each in a fresh process, that can be resumed."""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple, cast

from jouletrace.analysis.conditions import not_taken, read_back
from jouletrace.campaign.cluster import Cluster, cluster, fill_on
from jouletrace.campaign.limits import Limit, judged, parse_limits, timed
from jouletrace.campaign.loop import (
    RESULT,
    Note,
    PointObserver,
    PointOutcome,
    Tally,
    carry_out,
    claimed,
    folder_of,
    keep,
)
from jouletrace.campaign.repeats import gathered, is_measured, numbered, places_of
from jouletrace.campaign.worker import last_line, profile_in_child, reason_of
from jouletrace.devices import open_device
from jouletrace.errors import BadInputError, JouletraceError
from jouletrace.option import named
from jouletrace.profiler.gpu_settings import CLOCK, POWER_LIMIT, GpuSettings
from jouletrace.profiler.progress import Progress, reported
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.report.sweep import AXES, DONE, Entry, Point, Sweep, render
from jouletrace.run import load
from jouletrace.run.files import safe_name
from jouletrace.workloads import resolve

SETTINGS = "sweep.json"
POINTS = "points"

_OF_A_POINT = (JouletraceError, TimeoutError, RuntimeError)
"""Failures of a run, after which others go on; the last carries a child's traceback."""

Runner = Callable[[str, ProfileSettings, Path, float | None], None]
"""Profiles in a separate process: ``worker.profile_in_child``, or a substitute."""


class Repeat(NamedTuple):
    """A run of a point, by the name of its folder; from 1."""

    slug: str
    number: int

    def __str__(self) -> str:
        return self.slug if self.number == 1 else f"{self.slug}, repeat {self.number}"


@dataclass(frozen=True)
class SweepGrid:
    """The varied options; an empty axis keeps the option's value. Power limits are in watts, clocks in MHz."""

    workloads: tuple[str, ...]
    batch: tuple[int, ...] = ()
    seq_len: tuple[int, ...] = ()
    dtype: tuple[str, ...] = ()
    mode: tuple[str, ...] = ()
    power_limit_w: tuple[float, ...] = ()
    clock_mhz: tuple[float, ...] = ()
    config: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check what no profile checks.

        Raises:
            BadInputError: If a power limit or a clock is no number.
        """
        for flag, unit, values in (("power-limit", "watts", self.power_limit_w), ("clock", "MHz", self.clock_mhz)):
            if wrong := [value for value in values if not isinstance(value, Real)]:
                raise BadInputError(f"--{flag} {wrong[0]!r}: must be a number of {unit}")

    def of_gpu(self) -> dict[str, tuple[float, ...]]:
        """Settings of the GPU, as ``GpuSettings`` names them."""
        return {POWER_LIMIT: self.power_limit_w, CLOCK: self.clock_mhz}

    def points(self) -> list[Point]:
        """All combinations; settings of the GPU change least often."""
        axes = {"power_limit_w": self.power_limit_w, "clock_mhz": self.clock_mhz, "workload": self.workloads}
        axes |= {name: getattr(self, name) for name in ("config", "dtype", "mode", "seq_len", "batch")}
        used = {name: values for name, values in axes.items() if values}
        found = [dict(zip(used, values, strict=True)) for values in itertools.product(*used.values())]
        return [cast(Point, {name: point[name] for name in AXES if name in point}) for point in found]


def parse_part(text: str | None) -> tuple[int, int]:
    """A part of a grid by its number, from 1, and the number of parts: "2/4"; None is the whole.

    Raises:
        BadInputError: If it is no part.
    """
    if text is None:
        return 1, 1
    with suppress(ValueError):
        number, parts = map(int, text.split("/"))
        if 1 <= number <= parts:
            return number, parts
    raise BadInputError(f"--part {text}: write K/N, such as 2/4: the second of four parts")


def varied(config: Mapping[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Values of a configuration that are the same for all points, and the combinations of others: ("size=512", ...).

    Several values of a key are a text with commas, or a list.
    """
    listed = {key: text.split(",") if isinstance(text, str) else list(_listed(text)) for key, text in config.items()}
    several = {key: values for key, values in listed.items() if len(values) > 1}
    combined = itertools.product(*several.values()) if several else ()
    pairs = (zip(several, map(str, values), strict=True) for values in combined)
    fixed = {key: str(values[0]) for key, values in listed.items() if key not in several and values}
    return fixed, tuple(",".join(f"{key}={value.strip()}" for key, value in one) for one in pairs)


def run_sweep(
    grid: SweepGrid,
    settings: ProfileSettings,
    folder: Path,
    *,
    limits: Sequence[Limit] = (),
    repeats: int = 1,
    limit_s: float = 600.0,
    permitted: bool = False,
    progress: Progress | None = None,
    runner: Runner = profile_in_child,
    on: Cluster | None = None,
    part: tuple[int, int] = (1, 1),
) -> tuple[list[Entry], Tally[Repeat]]:
    """Profile every point of a grid whose Run isn't there yet; one entry per point, in the grid's order, and a tally.

    ``folder`` holds the settings in ``sweep.json``, one Run per point under ``points/``, and the result. ``limits``
    judge points; one on a percentile has iterations timed for longer (``limits.timed``). ``repeats`` go through
    the grid, one after the other, so that drift is the same for all points; a point that failed is not repeated. A run
    that takes longer than ``limit_s`` seconds is ended. The GPU's settings are changed only if that is ``permitted``.
    ``on`` a cluster each point is a task on any GPU, once, and no settings of GPUs are changed.
    A ``part`` (k, n) is every n-th point from the k-th; several write into a folder at the same time. It has no result
    file and isn't judged: limits may be relative to a point of another part.

    Raises:
        BadInputError: If a point is invalid, the folder holds something else, or the GPU would be changed without
            permission.
        NotPossibleError: If no point could be measured, the GPU's settings can't be changed, or another sweep is
            writing into the folder.
    """
    settings = timed(settings, limits)
    if on is not None and any(grid.of_gpu().values()):
        raise BadInputError("sweep: --power-limit and --clock change a GPU of this host: leave out --on")
    _check_numbers(repeats, limit_s, on)
    _check(grid.points(), settings, on)
    folder, points = folder.absolute(), {_slug(point): point for point in grid.points()}
    runs = [Repeat(slug, number) for number in range(1, repeats + 1) for slug in points]
    points = dict(list(points.items())[part[0] - 1 :: part[1]])
    if not points:
        raise BadInputError(f"--part {part[0]}/{part[1]}: the grid has only {len(grid.points())} points")
    of_all = part[1] == 1
    failed: dict[str, Exception] = {}

    def place_of(run: Repeat) -> Path:
        return places_of(folder / POINTS / run.slug, repeats)[run.number - 1]

    def is_there(run: Repeat) -> bool:
        point = points[run.slug]
        return is_measured(place_of(run), point["workload"], _settings_of(point, settings))

    claim = {**settings.to_dict(), "repeats": repeats}
    with GpuSettings(settings.device, grid.of_gpu()) as gpu:
        gpu.check_permitted(permitted)

        def settings_of(run: Repeat) -> ProfileSettings:
            return numbered(_settings_of(points[run.slug], settings), runs.index(run) + 1)

        def measure(group: Sequence[Repeat], note: Note[Repeat]) -> None:
            (run,) = group
            point, place = points[run.slug], place_of(run)
            try:
                if run.slug in failed:
                    raise failed[run.slug]
                shutil.rmtree(place, ignore_errors=True)
                gpu.set({POWER_LIMIT: point.get("power_limit_w"), CLOCK: point.get("clock_mhz")})
                runner(point["workload"], settings_of(run), place, limit_s)
                gpu.record(place)
                note(PointOutcome(run))
            except _OF_A_POINT as error:
                failed[run.slug] = error
                note(_outcome(run, error))

        def measure_on(there: Cluster, group: Sequence[Repeat], note: Note[Repeat]) -> None:
            for run in group:
                shutil.rmtree(place_of(run), ignore_errors=True)
            asked = ((points[run.slug]["workload"], settings_of(run)) for run in group)
            fills = [partial(profile_in_child, *of_run, limit_s=limit_s) for of_run in asked]
            for number, error in fill_on(there, fills, list(map(place_of, group)), settings.device):
                note(_outcome(group[number], error))

        what = "points" if repeats == 1 else "runs"
        watch = PointObserver[Repeat](progress, what[:-1])
        lock = "" if of_all else "-{}-of-{}".format(*part)
        with claimed(folder / SETTINGS, "sweep", claim, part=lock), gpu.changing():
            how = measure if on is None else partial(measure_on, on)
            groups = [[run] for run in runs if run.slug in points]
            tally = carry_out(groups, is_there, how, watch, what, at_once=on is not None)
        found = [_entry(tally, point, folder / POINTS / slug, settings, repeats) for slug, point in points.items()]
        if of_all:
            found = judged(found, limits)
            keep(folder / RESULT, render(found, "json"))
    return found, tally


def _check_numbers(repeats: Any, limit_s: Any, on: object) -> None:
    if on is not None and repeats != 1:
        raise BadInputError("sweep: --repeats with --on would mix GPUs, whose sensors differ: leave out one of them")
    if not isinstance(repeats, int) or repeats < 1:
        raise BadInputError(f"--repeats {repeats}: must be a whole number of at least 1")
    if not isinstance(limit_s, Real) or not float(limit_s) > 0:
        raise BadInputError(f"--point-limit {limit_s}: must be more than 0 s")


def sweep(
    *workloads: str,
    batch: int | Sequence[int] = (),
    seq_len: int | Sequence[int] = (),
    dtype: str | Sequence[str] = (),
    mode: str | Sequence[str] = (),
    power_limit: float | Sequence[float] = (),
    clock: float | Sequence[float] = (),
    limit: str | None = None,
    repeats: int = 1,
    folder: str | Path | None = None,
    point_limit: float = 600.0,
    yes: bool = False,
    on: str | None = None,
    progress: bool | Progress = True,
    **options: Any,
) -> Sweep:
    """Profile a grid of workloads and options, each point in a process of its own, as ``jouletrace sweep`` does.

    A point that fails is in the result with its reason; the others are measured nevertheless.

    Args:
        *workloads: Names of built-in workloads, or "file.py:make" of your own.
        batch: Samples per iteration, one number or several, as of all axes; none keeps the workload's.
        seq_len: Tokens per sample.
        dtype: Data types.
        mode: "eager", "graph", "compile".
        power_limit: Power limits of the GPU in watts; needs ``yes`` and root.
        clock: SM clocks in MHz to which the GPU is locked; as ``power_limit``.
        limit: What a point must meet to be recommended: "p99<20ms", "time<+3%" above the first point, "ttft<200ms".
        repeats: Runs of each point, in turns, which show their spread.
        folder: Where the Runs are saved; a folder with this sweep is resumed. None makes one under ``runs/``.
        point_limit: Seconds after which a run is ended as timed out.
        yes: Permit changing the GPU's power limit and clock; they are restored.
        on: An engine whose cluster measures the points, each on any GPU: "ray".
        progress: Whether lines on stderr report each point; ``JOULETRACE_PROGRESS=0`` prints none.
        **options: Further options of ``jouletrace profile``, the same for all points, as of ``jt.profile``; a value of
            ``config`` may be a list, which is an axis: ``config={"size": [1024, 4096]}``.

    Returns:
        The points with their Runs; print it, or read ``runs`` or ``to_pandas()``.

    Raises:
        BadInputError: If an option or a point is invalid, or the folder holds something else.
        NotPossibleError: If no point could be measured, or the GPU's settings can't be changed.
    """
    if unnamed := [workload for workload in workloads if not isinstance(workload, str)]:
        raise BadInputError(f"sweep: {unnamed[0]!r}: name what each process builds, such as file.py:NAME")
    limits = parse_limits(limit, "limit")
    axes = [_listed(one) for one in (batch, seq_len, dtype, mode, power_limit, clock)]
    given = named(ProfileSettings, options, "sweep")
    fixed, config = varied(given.get("config", {}))
    settings = ProfileSettings(**{**given, "config": fixed})
    with folder_of(Path(folder) if folder is not None else None, "sweep") as place, reported(progress) as receiver:
        found, tally = run_sweep(
            replace(SweepGrid(workloads, *axes), config=config),
            settings,
            place,
            limits=limits,
            repeats=repeats,
            limit_s=point_limit,
            permitted=yes,
            progress=receiver,
            on=cluster(on, settings.device),
        )
    if tally.ended_by is not None:
        raise tally.ended_by
    return Sweep(found, place)


def _listed(values: Any) -> tuple[Any, ...]:
    """The values of an axis, of which one needs no list."""
    return tuple(values) if isinstance(values, Iterable) and not isinstance(values, str) else (values,)


def _outcome(run: Repeat, error: Exception | None) -> PointOutcome[Repeat]:
    """The outcome of a run that has ended, by an error or without one.

    Raises:
        Exception: If it is no failure of a run.
    """
    if error is None:
        return PointOutcome(run)
    if not isinstance(error, _OF_A_POINT):
        raise error
    return PointOutcome(run, reason_of(error), last_line(error))


def _entry(tally: Tally[Repeat], point: Point, place: Path, settings: ProfileSettings, repeats: int) -> Entry:
    """The entry of a point: the first of its runs that is missing says why; its Run holds those that are there."""
    missing = next((found for found in tally.missing if found.point.slug == place.name), None)
    if repeats > 1:
        run = gathered(place, repeats, _settings_of(point, settings), interrupted=tally.ended_by is not None)
    else:
        run = load(place) if missing is None else None
    entry = Entry(point, missing.reason if missing else DONE, missing.text if missing else "", str(place), run)
    return entry if run is None else replace(entry, read=read_back(run), not_taken=not_taken(run))


def _settings_of(point: Point, settings: ProfileSettings) -> ProfileSettings:
    """The settings of a point, without those of the GPU."""
    options: dict[str, Any] = {
        name: value for name, value in point.items() if name not in ("workload", "power_limit_w", "clock_mhz", "config")
    }
    pairs = (pair.partition("=") for pair in point.get("config", "").split(",") if pair)
    options["config"] = {**settings.config, **{key: value for key, _, value in pairs}}
    return replace(settings, **options)


def _check(points: Sequence[Point], settings: ProfileSettings, on: Cluster | None) -> None:
    """Refuse invalid points, and devices that aren't there, before anything is measured."""
    if not points or "workload" not in points[0]:
        raise BadInputError("sweep: no workload is named")
    if on is None:
        open_device(settings.device).close()
    else:
        on.nodes(settings.device)
    for workload in dict.fromkeys(point["workload"] for point in points):
        resolve(workload)
    slugs = [_slug(point) for point in points]
    for point, slug in zip(points, slugs, strict=True):
        _settings_of(point, settings)
        if slugs.count(slug) > 1:
            raise BadInputError(f"sweep: {slug} occurs twice")


def _slug(point: Point) -> str:
    """A folder name that describes the point."""
    words = {"batch": "b{}", "seq_len": "t{}", "power_limit_w": "{:g}W", "clock_mhz": "{:g}MHz"}
    parts = [words.get(name, "{}").format(value) for name, value in point.items()]
    whole, name = "-".join(parts), safe_name("-".join(parts))
    cut = len(whole.encode()) > len(name.encode()) + 2  # else names that begin alike would be one
    return f"{name}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}" if cut else name
