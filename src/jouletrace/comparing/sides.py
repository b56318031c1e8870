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
from jouletrace.run.files import RUN_JSON
from jouletrace.run.loading import REPEATS
from jouletrace.run.metrics import EACH
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
    found = _METRICS.get(level, _PART_METRICS)
    return tuple(EACH.get(name, name) for name in found) if part and _MARKED in part.figures else found


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
    found: list[tuple[Run, str]] = []
    several = side if isinstance(side, list | tuple) else [side]
    for number, one in enumerate(several, 1):
        if isinstance(one, tuple):
            found.append(one)
        elif isinstance(one, Run):
            name = str(one.workload.get("name") or one.kind)
            found.append((one, f"{name} ({number})" if len(several) > 1 else name))
        elif isinstance(one, str | Path):
            place = Path(one).parent if Path(one).name == RUN_JSON else Path(one)
            inside = sorted((place / REPEATS).glob(f"*/{RUN_JSON}"), key=_number)
            found += [(load(each), str(each)) for each in [file.parent for file in inside] or [place]]
        else:
            raise BadInputError(f"compare: {one!r} is neither a Run nor the path of one")
    if not found:
        raise BadInputError("compare: no Run is given for one side")
    return found


def side_of(name: str, runs: Sequence[tuple[Run, str]]) -> tuple[Side, list[Note]]:
    """The side of this name with its independent runs, and notes on those that are incomplete or left out.

    Args:
        name: "A" or "B".
        runs: Runs and their origins.

    Raises:
        BadInputError: If they aren't runs of one thing, one is given twice, or none has figures.
    """
    found: list[SourceRun] = []
    notes: list[Note] = []
    for run, place in runs:
        if run.kind in ("profile", "monitor", "record") and not len(run.results):
            analyse(run)
        if not len(run.results):
            notes.append(Note("no_figures", (place, name)))
            continue
        if not run.complete:
            notes.append(Note("incomplete", (place,)))
        found += _independent(run, place)
    if not found:
        raise BadInputError(f"{name}: none of its Runs holds figures ({', '.join(place for _, place in runs)})")
    _check_one_thing(found, name)
    _check_no_doubles(found, name)
    return Side(name, tuple(found)), notes


def sensor_gain(a: Side, b: Side) -> float | None:
    """Relative gain error between the sensors of two sides; 0 on the same GPUs, whose sensors err alike.

    None where a log doesn't say what read it: nothing says either that both sides have one meter.
    """
    gains = [[gain_of(source.run) for source in side.sources] for side in (a, b)]
    known = [[gain for gain in side if gain is not None] for side in gains]
    if known != gains:
        return None
    return 0.0 if set(a.boards) == set(b.boards) else gain_between(*map(max, known))


def _number(path: Path) -> tuple[int, str]:
    name = path.parent.name
    return (int(name) if name.isdecimal() else 0, name)


def _independent(run: Run, place: str) -> list[SourceRun]:
    """The independent runs in a Run: its blocks, if it contains several processes that are kept nowhere else."""
    parts = Parts(run)
    figures = {name: one for name, one in parts.whole.figures.items() if name in MODEL_METRICS}
    whole = replace(parts.whole, name=run.workload.get("name") or run.kind, figures=figures)
    if not figures and parts.units("device"):
        figures = {name: of_devices(run, parts, name) for name in WATCHED_METRICS}
        return [SourceRun(run, place, replace(whole, figures=figures), watched=True)]
    if (run.settings.get("repeats") or 1) < 2:
        return [SourceRun(run, place, whole)]
    energy, block = per_iteration(run, "energy_j")
    time, time_block = per_iteration(run, "time_s")
    found = []
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
        own = run if number == 0 else replace(run, units=run.units.slice(0, 0))
        found.append(SourceRun(own, f"{place}{_BLOCK}{number + 1}", replace(whole, figures=each)))
    return found or [SourceRun(run, place, whole)]


def _mean(values: Any) -> Estimate:
    """Mean with its interval; a single value without one; null without values."""
    if len(values) > 1:
        return mean_estimate(values)
    return Estimate(float(values[0]), n=1, method="windows") if len(values) else Estimate.null("not_measured")


def _check_one_thing(found: Sequence[SourceRun], name: str) -> None:
    """Refuse runs of different workloads, dtypes, ... as one side, with the first difference and its place."""
    first = found[0]
    for other in found[1:]:
        refused = f"{name} is not several runs of one thing:"
        if other.run.kind != first.run.kind:
            kinds = f"{first.place} is {with_article(first.run.kind)}, {other.place} {with_article(other.run.kind)}"
            raise BadInputError(f"{refused} {kinds}")
        if key := _difference(first.run, other.run):
            one, another = first.run.workload.get(key), other.run.workload.get(key)
            raise BadInputError(f"{refused} {key} is {one} in {first.place}, {another} in {other.place}")


def _difference(one: Run, other: Run) -> str | None:
    """The first fact by which two Runs aren't of one thing."""
    return next((key for key in _ONE_THING if one.workload.get(key) != other.workload.get(key)), None)


def same_thing(one: Run, other: Run) -> bool:
    """True if two Runs have the same workload, run in the same way on the same GPUs."""
    ids = [{device.id for device in run.devices} for run in (one, other)]
    return one.kind == other.kind and ids[0] == ids[1] and _difference(one, other) is None


def in_common(a: Side, b: Side) -> list[Note]:
    """Notes where a Run is compared with itself under any names, or with one that a simulation repeated."""
    pairs = list(product(a.sources, b.sources))
    same = [(one, other) for one, other in pairs if same_record(one.run, other.run)]
    repeated = [(one.place, other.place) for one, other in pairs if _repeats(one.run, other.run)]
    found = []
    if same:
        is_all = all(len({id(pair[n]) for pair in same}) == side.count for n, side in enumerate((a, b)))
        names = dict.fromkeys(tuple(dict.fromkeys(one.place.partition(_BLOCK)[0] for one in pair)) for pair in same)
        found.append(Note(SAME_RUN if is_all else SHARED_RUN, (tuple(names),)))
    return [*found, *(Note(REPEATED, places) for places in repeated[:1])]


def _repeats(one: Run, other: Run) -> bool:
    """True if two measurements are one simulation, run twice."""
    if not (one.simulated and other.simulated) or same_record(one, other) or not len(one.samples):
        return False
    return _equal(one.samples.select(["value"]), other.samples.select(["value"]))


def _check_no_doubles(found: Sequence[SourceRun], name: str) -> None:
    """Refuse a Run given twice, which would seem to have no spread."""
    for one, other in combinations(found, 2):
        if one.whole.figures == other.whole.figures and same_record(one.run, other.run):
            raise BadInputError(f"{name}: {one.place} and {other.place} are the same Run, given twice")
        if _repeats(one.run, other.run):
            raise BadInputError(f"{name}: {one.place} and {other.place} {SIMULATED_TWICE}")


def same_record(one: Run, other: Run) -> bool:
    """True if two Runs are one measurement, even if analysed at different times or in different ways: by their ids.

    Runs of older versions have no id, and each import of another tool's file assigns a new one. Such Runs are one
    measurement if they hold the same readings, spans and windows.
    """
    if one is other or (one.id and one.id == other.id):
        return True
    if one.id and other.id and not one.kind == other.kind == "import":
        return False
    pairs = [(one.table(name), other.table(name)) for name in ("samples", "spans")]
    pairs.append(tuple(run.windows.select(["start_ns", "end_ns"]) for run in (one, other)))
    return any(len(mine) for mine, _ in pairs) and all(_equal(*pair) for pair in pairs)


def _equal(one: pa.Table, other: pa.Table) -> bool:
    """True if two tables of the same columns hold equal values; NaN equals NaN."""
    if len(one) != len(other):
        return False
    return all(
        np.array_equal(one[f.name].to_numpy(), other[f.name].to_numpy(), equal_nan=True)
        if pa.types.is_floating(f.type)
        else one[f.name].equals(other[f.name])
        for f in one.schema
    )
