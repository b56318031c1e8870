"""The runs of a side: reads them, distinguishes them, and checks that they are runs of one thing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from jouletrace.analysis import analyse
from jouletrace.analysis.facts import of_devices
from jouletrace.analysis.iterations import per_iteration
from jouletrace.analysis.latency import latencies_s
from jouletrace.comparing.pairs import LOAD, REPEATED, SAME_RUN, SHARED_RUN, Note
from jouletrace.comparing.source import Side, SourceRun
from jouletrace.errors import SIMULATED_TWICE, BadInputError
from jouletrace.run import Estimate, Run, load
from jouletrace.run.channels import ENERGY_COUNTER, POWER
from jouletrace.run.files import RUN_JSON
from jouletrace.run.loading import REPEATS
from jouletrace.run.metrics import EACH
from jouletrace.run.model import derived, held
from jouletrace.run.names import with_article
from jouletrace.run.parts import Part, Parts
from jouletrace.sensor.gain import gain_between, gain_of
from jouletrace.stats.interval import mean_estimate

MODEL_METRICS = (
    "latency_s",
    "iteration_time_s",
    "time_to_first_token_s",
    "power_w",
    "energy_total_j",
    "energy_work_j",
    "energy_per_token_j",
)
WATCHED_METRICS = ("energy_total_j", "power_w", "time_s")
"""Of a record of devices without iterations, such as a log of a night: of all its devices together."""
_PART_METRICS = ("time_s", "power_w", "energy_total_j")
_METRICS = {
    "model": ("time_s", *MODEL_METRICS),
    LOAD: (
        *("energy_per_output_token_j", "energy_per_request_j"),
        *(f"{name}_{p}_s" for name in ("ttft", "tpot", "e2e") for p in ("p50", "p95")),
    ),
}
"""By level, in place of those of a part."""

_MARKED = EACH["time_s"]
"""The metric that marked ranges have: how often they run is another matter than what each takes."""

_ONE_THING = ("name", "task", "batch", "seq_len", "new_tokens", "cache", "dtype", "mode", "parameters")
_BLOCK = ", run "
"""Separates the place of a Run of several processes from the number of a process."""


def metrics_of(level: str, part: Part | None = None) -> tuple[str, ...]:
    """The metrics that are compared of the parts of a level, and of the whole; of marked ranges, those of each."""
    metrics = _METRICS.get(level, _PART_METRICS)
    return tuple(EACH.get(name, name) for name in metrics) if part and _MARKED in part.figures else metrics


RunOrPath = Run | str | Path | tuple[Run, str]
"""A Run, its path, or a Run with the name that a comparison gives it."""

Runs = RunOrPath | Sequence[RunOrPath]
"""Those of a side."""


def open_runs(side: Runs) -> list[tuple[Run, str]]:
    """The Runs of a side, one or several in a list, each with its origin: its path, or else the name of its workload.

    A Run of several processes opens as the Run of each process, where those are kept beside it.

    Raises:
        BadInputError: If one is neither a Run nor a path, or a Run is missing or damaged.
    """
    opened: list[tuple[Run, str]] = []
    several = side if isinstance(side, list | tuple) else [side]
    for number, given in enumerate(several, 1):
        if isinstance(given, tuple):
            opened.append(given)
        elif isinstance(given, Run):
            name = str(given.workload.get("name") or given.kind)
            opened.append((given, f"{name} ({number})" if len(several) > 1 else name))
        elif isinstance(given, str | Path):
            path = Path(given).parent if Path(given).name == RUN_JSON else Path(given)
            inside = sorted((path / REPEATS).glob(f"*/{RUN_JSON}"), key=_number)
            opened += [(load(each), str(each)) for each in [file.parent for file in inside] or [path]]
        else:
            raise BadInputError(f"compare: {given!r} is neither a Run nor the path of one")
    if not opened:
        raise BadInputError("compare: no Run is given for one side")
    return opened


def side_of(name: str, runs: Sequence[tuple[Run, str]]) -> tuple[Side, list[Note]]:
    """The side of this name with its independent runs, and notes on those that are incomplete or left out.

    Args:
        name: "A" or "B".
        runs: Runs and their origins.

    Raises:
        BadInputError: If they aren't runs of one thing, one is given twice, or none has figures.
    """
    sources: list[SourceRun] = []
    notes: list[Note] = []
    for run, path in runs:
        if run.kind in ("profile", "monitor", "record") and not len(run.results):
            analyse(run)
        if not len(run.results):
            notes.append(Note("no_figures", (path, name)))
            continue
        if not run.complete:
            notes.append(Note("incomplete", (path,)))
        sources += _independent(run, path)
    if not sources:
        raise BadInputError(f"{name}: none of its Runs holds figures ({', '.join(path for _, path in runs)})")
    _check_one_thing(sources, name)
    _check_no_doubles(sources, name)
    return Side(name, tuple(sources)), notes


def sensor_gain(a: Side, b: Side) -> float | None:
    """Relative gain error between the sensors of two sides; 0 on the same GPUs, whose sensors err alike.

    They don't where a GPU was calibrated against a meter for some Runs only, or more than once.
    None where a log doesn't say what read it: nothing says either that both sides have one meter.
    """
    gains = [[gain_of(source.run) for source in side.sources] for side in (a, b)]
    stated = [[gain for gain in side if gain is not None] for side in gains]
    if stated != gains:
        return None
    channels = [channel for side in (a, b) for source in side.sources for channel in source.run.channels]
    scales = {(each.device, each.gain, each.offset_w) for each in channels if each.name in (POWER, ENERGY_COUNTER)}
    alike = set(a.boards) == set(b.boards) and len(scales) == len({device for device, *_ in scales})
    return 0.0 if alike else gain_between(*map(max, stated))


def _number(path: Path) -> tuple[int, str]:
    name = path.parent.name
    return (int(name) if name.isdecimal() else 0, name)


def _independent(run: Run, path: str) -> list[SourceRun]:
    """The independent runs in a Run: its blocks, if it contains several processes that are kept nowhere else."""
    parts = Parts(run)
    figures = {name: figure for name, figure in parts.whole.figures.items() if name in MODEL_METRICS}
    whole = replace(parts.whole, name=run.workload.get("name") or run.kind, figures=figures)
    if not figures and parts.units("device"):
        figures = {name: of_devices(run, parts, name) for name in WATCHED_METRICS}
        return [SourceRun(run, path, replace(whole, figures=figures), watched=True)]
    if (run.settings.get("repeats") or 1) < 2:
        return [SourceRun(run, path, whole)]
    energy, block = per_iteration(run, "energy_j")
    time, time_block = per_iteration(run, "time_s")
    sources = []
    for number in sorted({*block.tolist(), *time_block.tolist()}):
        joules, seconds = energy[block == number], time[time_block == number]
        latencies = latencies_s(run, process=number)
        each = {
            "latency_s": _mean([np.median(latencies)] if len(latencies) else []),
            "iteration_time_s": _mean(seconds),
            "power_w": _mean(joules / seconds if len(joules) == len(seconds) else []),
            "energy_total_j": _mean(joules),
        }
        # Parts belong to the first process only.
        device_run = run if number == 0 else derived(run, units=run.units.slice(0, 0))
        sources.append(SourceRun(device_run, f"{path}{_BLOCK}{number + 1}", replace(whole, figures=each)))
    return sources or [SourceRun(run, path, whole)]


def _mean(values: Any) -> Estimate:
    """Mean with its interval; a single value without one; null without values."""
    if len(values) > 1:
        return mean_estimate(values)
    return Estimate(float(values[0]), n=1, method="windows") if len(values) else Estimate.null("not_measured")


def _check_one_thing(sources: Sequence[SourceRun], name: str) -> None:
    """Refuse runs of different workloads, dtypes, ... as one side, with the first difference and its place."""
    first = sources[0]
    for other in sources[1:]:
        refused = f"{name} is not several runs of one thing:"
        if other.run.kind != first.run.kind:
            kinds = f"{first.place} is {with_article(first.run.kind)}, {other.place} {with_article(other.run.kind)}"
            raise BadInputError(f"{refused} {kinds}")
        if key := _difference(first.run, other.run):
            value, other_value = first.run.workload.get(key), other.run.workload.get(key)
            raise BadInputError(f"{refused} {key} is {value} in {first.place}, {other_value} in {other.place}")


def _difference(a: Run, b: Run) -> str | None:
    """The first fact by which two Runs aren't of one thing."""
    return next((key for key in _ONE_THING if a.workload.get(key) != b.workload.get(key)), None)


def same_thing(a: Run, b: Run) -> bool:
    """True if two Runs have the same workload, run in the same way on the same GPUs."""
    ids = [{device.id for device in run.devices} for run in (a, b)]
    return a.kind == b.kind and ids[0] == ids[1] and _difference(a, b) is None


def in_common(a: Side, b: Side) -> list[Note]:
    """Notes where a Run is compared with itself under any names, or with one that a simulation repeated."""
    pairs = list(product(a.sources, b.sources))
    same = [(first, second) for first, second in pairs if same_record(first.run, second.run)]
    repeated = [(first.place, second.place) for first, second in pairs if _repeats(first.run, second.run)]
    shared = []
    if same:
        is_all = all(len({id(pair[n]) for pair in same}) == side.count for n, side in enumerate((a, b)))
        names = dict.fromkeys(
            tuple(dict.fromkeys(source.place.partition(_BLOCK)[0] for source in pair)) for pair in same
        )
        shared.append(Note(SAME_RUN if is_all else SHARED_RUN, (tuple(names),)))
    return [*shared, *(Note(REPEATED, places) for places in repeated[:1])]


def _repeats(a: Run, b: Run) -> bool:
    """True if two measurements are one simulation, run twice."""
    rows = [len(held(run, "samples")) for run in (a, b)]  # those of a long recording are read only if they may be equal
    if not (a.simulated and b.simulated) or same_record(a, b) or not rows[0] or rows[0] != rows[1]:
        return False
    return _equal(a.samples.select(["value"]), b.samples.select(["value"]))


def _check_no_doubles(sources: Sequence[SourceRun], name: str) -> None:
    """Refuse a Run given twice, which would seem to have no spread."""
    for first, second in combinations(sources, 2):
        if first.whole.figures == second.whole.figures and same_record(first.run, second.run):
            raise BadInputError(f"{name}: {first.place} and {second.place} are the same Run, given twice")
        if _repeats(first.run, second.run):
            raise BadInputError(f"{name}: {first.place} and {second.place} {SIMULATED_TWICE}")


def same_record(a: Run, b: Run) -> bool:
    """True if two Runs are one measurement, even if analysed at different times or in different ways: by their ids.

    Runs of older versions have no id, and each import of another tool's file assigns a new one. Such Runs are one
    measurement if they hold the same readings, spans and windows.
    """
    if a is b or (a.id and a.id == b.id):
        return True
    if a.id and b.id and not a.kind == b.kind == "import":
        return False
    pairs = [(a.table(name), b.table(name)) for name in ("samples", "spans")]
    pairs.append(tuple(run.windows.select(["start_ns", "end_ns"]) for run in (a, b)))
    return any(len(mine) for mine, _ in pairs) and all(_equal(*pair) for pair in pairs)


def _equal(a: pa.Table, b: pa.Table) -> bool:
    """True if two tables of the same columns hold equal values; NaN equals NaN."""
    if len(a) != len(b):
        return False
    return all(
        np.array_equal(a[f.name].to_numpy(), b[f.name].to_numpy(), equal_nan=True)
        if pa.types.is_floating(f.type)
        else a[f.name].equals(b[f.name])
        for f in a.schema
    )
