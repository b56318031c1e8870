"""Energy of the ranges and steps that a program marked itself: mean time and energy of each, by name.

Which way fits depends on how long one lasts against the sensor (all three are ``energy``'s):

- steps follow one another without a gap, so that blocks of many of them are windows;
- a range of ten readings or more is a window by itself;
- the energy of a shorter range that occurs often follows from regression over all of them, with its siblings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.analysis.aliasing import of_paths
from jouletrace.analysis.figures import Figures
from jouletrace.analysis.power import no_power_reason, power_record
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.readings import ALIASED, Readings
from jouletrace.run.spans import Path, PathSpans, Spans, spans_of
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.windows.energy import T95, WindowEnergies, window_energy
from jouletrace.sensor.windows.repeated import MIN_WINDOWS, repeated_energy
from jouletrace.stats.interval import mean_estimate, total

OF_RANKS = "ranks"
"""Method of figures of all ranks of a program together."""

STEP = "step"
"""Name of a span of kind "iteration" among ranges."""

_MARKED = ("range", "iteration")

_LONG = 10.0
"""Readings in a window that can stand for itself."""

_MOST_NAMES = 300
"""Paths of ranges with an energy, those with the most time: each takes its own fit, some tenths of a second."""

MOST_REPEATED = 100_000
"""Spans in one regression."""

_SHORTEST = 1 / 400
"""Of a reading: a shorter range is as much its marks as what it does, and a regression would take minutes."""

FEWEST = 3
"""Occurrences from which on their mean has the interval of how they differ. Of two, Student's t with one degree of
freedom is nine times as wide as they are apart from their mean: wider than the energy itself. Those get what the
sensor leaves open of both together, as a single one does."""

TOGETHER = "together"
"""Method of the mean of so few: their sum, divided by their number."""

_DEEPEST = 100
"""Ranges around a range that has figures of its own."""


Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RangeUnit:
    """A unit of ranges: its id, and how many there were."""

    id: int
    count: int


def add_ranges(run: Run, figures: Figures) -> dict[Path, RangeUnit]:
    """Add a unit for each path of ranges, with the mean time and energy of one, all its devices together.

    Returns:
        The units by path: names from the outermost range inwards.
    """
    marked = _marked(run)
    host = set(run.settings.get("not_synchronised", ()))
    first = len(run.devices) + 1
    units = {spans.path: first + i for i, spans in enumerate(marked)}
    short: dict[tuple[str, Path], dict[Path, Estimate]] = {}
    records = {device.id: power_record(run, device.id) for device in run.devices}
    longest = sorted(marked, key=lambda spans: -float(spans.seconds.sum()))
    aliased = of_paths(run, marked, lambda path: devices_of(run, path))
    left_out = {spans.path for spans in longest[_MOST_NAMES:]}
    for spans in marked:
        path = spans.path
        parent = next((units[path[:i]] for i in range(len(path) - 1, 0, -1) if path[:i] in units), MODEL_UNIT)
        unit = figures.unit(units[path], "range", "/".join(path), parent, count=len(spans))
        flags = ["host_time"] if spans.path[-1] in host else []
        flags += ["ranges_crossed"] if spans.crossed else []
        figures.add(unit, "time_s", _time(spans), flags)
        parts: list[tuple[Estimate, list[str]]] = []
        for device in devices_of(run, spans.path):
            found = records.get(device)
            if found is None:
                parts.append((Estimate.null(no_power_reason(run, device), "record"), []))
            elif spans.path in left_out:
                parts.append((Estimate.null("too_many_names", "record"), []))
            else:
                parts.append(_energy(device, *found, spans, marked, short))
        energy = parts[0][0] if len(parts) == 1 else total([part for part, _ in parts])
        more = [flag for _, some in parts for flag in some]
        more += [ALIASED] if spans.path in aliased and energy.value is not None else []
        figures.add(unit, "energy_total_j", energy, [*flags, *more])
    return {spans.path: RangeUnit(units[spans.path], len(spans)) for spans in marked}


def devices_of(run: Run, path: Path) -> list[str]:
    """The devices that spans of a path are about: all of the Run's, or those of the rank that it begins with."""
    for member in run.settings.get("ranks", ()):
        if member["name"] == path[0]:
            return member["devices"]
    return [device.id for device in run.devices]


def _marked(run: Run) -> list[PathSpans]:
    """The marked spans by path, in order of their first start."""
    marked = Spans.of(run.spans.filter(pc.is_valid(run.spans["id"])), _MARKED)
    # Ids are given at the beginning: a parent's is lower than its children's.
    marked = marked.take(np.argsort(marked.id, kind="stable"))
    if len(marked) == 0:
        return []
    start, end = marked.edges_ns
    paths, which, above = _paths(run, marked)
    steps, crossed = np.zeros(len(paths), bool), np.zeros(len(paths), bool)
    steps[which[which >= 0]] = marked.those("kind", ("iteration",))[which >= 0]
    beyond = (above >= 0) & (which >= 0) & (end > end[above])
    crossed[which[beyond]] = crossed[which[above[beyond]]] = True
    undisturbed = ~_traced(run, start, end)
    # By path, and in each by start.
    order = np.lexsort((start, which))
    edges = np.searchsorted(which[order], np.arange(len(paths) + 1))
    found = []
    for number, path in enumerate(paths):
        rows = order[edges[number] : edges[number + 1]]
        rows = rows[undisturbed[rows]] if undisturbed[rows].any() else rows
        own = vars(marked.take(rows))
        found.append(PathSpans(**own, path=path, steps=bool(steps[number]), crossed=bool(crossed[number])))
    ranks = {member["name"]: place for place, member in enumerate(run.settings.get("ranks", ()))}
    return sorted(found, key=lambda spans: (ranks.get(spans.path[0], -1), int(spans.start_ns[0])))


def _paths(run: Run, marked: Spans) -> tuple[list[Path], Ints, NDArray[np.intp]]:
    """The paths, the number of each span's, and the span around it; -1 for none, or nested too deeply."""
    names = marked.texts["name"]
    label = np.where(marked.those("kind", ("iteration",)), len(names), marked.name)
    labels = [*names, STEP, "None"]  # the last, which -1 stands for, is of ranges without a name
    ids, parent = marked.id, marked.parent
    place = np.minimum(np.searchsorted(ids, parent), len(ids) - 1)
    above = np.where((ids[place] == parent) & (place < np.arange(len(ids))), place, -1)
    paths: list[Path] = []
    which = np.full(len(ids), -1, np.int64)
    here = np.flatnonzero(above < 0)
    inner = np.argsort(above, kind="stable")[len(here) :]  # by the span around them
    for _ in range(_DEEPEST):
        outer = np.where(above[here] < 0, -1, which[above[here]])
        distinct, number = np.unique((outer + 1) * len(labels) + label[here] % len(labels), return_inverse=True)
        which[here] = len(paths) + number.reshape(-1)
        for around, own in zip(*(part.tolist() for part in np.divmod(distinct, len(labels))), strict=True):
            paths.append((*(paths[around - 1] if around else ()), labels[own]))
        first = np.searchsorted(above[inner], here, side="left")
        last = np.searchsorted(above[inner], here, side="right")
        here = inner[_ranges_of(first, last)]
        if not len(here):
            return paths, which, above
    run.warn("ranges_too_deep", f"ranges within more than {_DEEPEST} others have no figures")
    return paths, which, above


def _ranges_of(first: NDArray[np.intp], last: NDArray[np.intp]) -> NDArray[np.intp]:
    """All numbers from each first to before its last, one after the other."""
    count = last - first
    begin = np.cumsum(count) - count
    return np.asarray(np.arange(int(count.sum())) + np.repeat(first - begin, count), np.intp)


def _traced(run: Run, start: Ints, end: Ints) -> NDArray[np.bool_]:
    """Mask of spans that the tracing of kernels disturbed, shape (n,). A range around all of it isn't one of them."""
    since, until = spans_of(run, "phase").named("tracing").edges_ns
    disturbed = np.zeros(len(start), bool)
    for a, b in zip(since, until, strict=True):
        disturbed |= (start < b) & (end > a) & ~((start <= a) & (end >= b) & (end - start > 2 * (b - a)))
    return disturbed


def _time(spans: PathSpans) -> Estimate:
    seconds = spans.seconds
    if len(spans) >= FEWEST:
        return mean_estimate(seconds, correlated=True, method="clock")
    mean = float(seconds.mean())  # of those that ran, which the clock knows
    return Estimate(mean, mean, mean, 1, "clock")


def _energy(
    device: str,
    record: Readings,
    response: StepResponse,
    spans: PathSpans,
    marked: Sequence[PathSpans],
    short: dict[tuple[str, Path], dict[Path, Estimate]],
) -> tuple[Estimate, list[str]]:
    """Energy of one span of a path on one device, with flags; ``short`` remembers regressions by device and parent."""
    length = float(np.median(spans.seconds)) / response.period_s
    if spans.steps and len(spans) > 1 and _follow(spans).any():
        return _of_blocks(record, response, spans)
    if length >= _LONG or len(spans) < MIN_WINDOWS:
        return _of_windows(record, response, spans)
    if length < _SHORTEST:
        return Estimate.null("sensor_too_slow", "repeated"), []
    key = device, spans.path[:-1]
    if key not in short:
        siblings = [k for k in marked if k is spans or (k.path[:-1] == spans.path[:-1] and not k.steps)]
        shortest = _SHORTEST * response.period_s
        siblings = [k for k in siblings if float(np.median(k.seconds)) >= shortest]
        short[key] = _of_repetitions(record, response, siblings)
    return short[key].get(spans.path, Estimate.null("too_few_windows", "repeated")), record.flags


def _follow(spans: PathSpans) -> NDArray[np.bool_]:
    """True for each span that begins where the one before it ended, shape (n - 1,)."""
    gap = spans.start_ns[1:] - spans.end_ns[:-1]
    # within 2 % of a step's time they are one after the other
    near = np.abs(gap) <= 0.02 * float(np.median(spans.end_ns - spans.start_ns))
    return np.asarray(near & (spans.lane[1:] == spans.lane[:-1]))


def _of_blocks(record: Readings, response: StepResponse, spans: PathSpans) -> tuple[Estimate, list[str]]:
    """Many steps in a row as one window, divided by how many they are."""
    if np.any(spans.end_ns[:-1] > spans.start_ns[1:]):  # of several threads: what was drawn was for all of them
        return Estimate.null("ranges_overlap", "windows"), []
    breaks = np.flatnonzero(~_follow(spans)) + 1
    least_s = max(_LONG * response.period_s, float(spans.seconds.sum()) / 40)  # forty blocks are enough
    starts, ends, counts = [], [], []
    for part in np.split(np.arange(len(spans)), breaks):
        elapsed = (spans.end_ns[part] - spans.start_ns[part[0]]) / 1e9
        number = max(int(elapsed[-1] / least_s), 1)
        edges = np.unique(np.searchsorted(elapsed, elapsed[-1] * np.arange(1, number + 1) / number - 1e-9))
        begin = part[0]
        for edge in part[0] + np.minimum(edges, len(part) - 1):
            starts.append(int(spans.start_ns[begin]))
            ends.append(int(spans.end_ns[edge]))
            counts.append(int(edge - begin + 1))
            begin = edge + 1
    chosen = _spread(len(starts))
    energies = window_energy(record, response, np.array(starts)[chosen], np.array(ends)[chosen])
    return _mean(energies, np.array(counts, np.float64)[chosen])


def _of_windows(record: Readings, response: StepResponse, spans: PathSpans) -> tuple[Estimate, list[str]]:
    """Each span as a window; of very many, so many as are enough, evenly spread."""
    chosen = _spread(len(spans))
    # Shorter than an update, whatever the readings around it say, could be lost in one of them.
    seen = spans.seconds[chosen] >= response.period_s
    if not seen.any():
        return Estimate.null("sensor_too_slow", "windows"), []
    energies = window_energy(record, response, spans.start_ns[chosen], spans.end_ns[chosen])
    for i in np.flatnonzero(~seen):
        energies.reason[i] = energies.reason[i] or "sensor_too_slow"
    return _mean(energies, np.ones(len(chosen)))


def _spread(number: int) -> NDArray[np.intp]:
    """Of so many windows those that are looked at: all, or as many as are enough, evenly spread."""
    return np.unique(np.linspace(0, number - 1, min(number, 500)).round().astype(np.intp))


def _mean(energies: WindowEnergies, counts: NDArray[np.float64]) -> tuple[Estimate, list[str]]:
    """Mean energy of one out of windows that hold ``counts`` each."""
    good = np.array([reason is None for reason in energies.reason])
    if not good.any():
        return Estimate.null(str(energies.reason[0]), "windows"), []
    flags = list(dict.fromkeys(flag for some, ok in zip(energies.flags, good, strict=True) if ok for flag in some))
    if not good.all():
        flags.append("windows_left_out")
    each = energies.energy_j[good] / counts[good]
    if len(each) == 1:
        low, high = (float(x[good][0] / counts[good][0]) for x in (energies.low_j, energies.high_j))
        return Estimate(float(each[0]), low, high, 1, "windows"), flags
    weights = counts[good] / counts[good].sum()
    if len(each) < FEWEST:
        return _together(energies, good, counts), flags
    shared = float(weights @ (energies.sd_model_j[good] / counts[good]))
    own = energies.sd_statistical_j[good] / counts[good]
    # Few windows may by chance differ less than their own uncertainty says.
    shared = float(np.hypot(shared, np.sqrt((weights**2) @ own**2)))
    return mean_estimate(each, weights, correlated=True, common_sd=shared), flags


def _together(energies: WindowEnergies, good: NDArray[np.bool_], counts: NDArray[np.float64]) -> Estimate:
    """Mean of few windows with what the sensor leaves open: noise of each, and the response that they share."""
    count = counts[good].sum()
    value = float(energies.energy_j[good].sum() / count)
    noise, shared = energies.sd_statistical_j[good], energies.sd_model_j[good].sum()
    half = T95 * float(np.hypot(np.sqrt((noise**2).sum()), shared) / count)
    return Estimate(value, value - half, value + half, 1, TOGETHER)


def _of_repetitions(record: Readings, response: StepResponse, siblings: Sequence[PathSpans]) -> dict[Path, Estimate]:
    """Regression over all spans with the same parent, which share the readings; of very many, those in the middle."""
    number = np.concatenate([np.full(len(spans), i) for i, spans in enumerate(siblings)])
    start, end = (np.concatenate(some) for some in zip(*(spans.edges_ns for spans in siblings), strict=True))
    order = np.argsort(start, kind="stable")
    spare = max(len(order) - MOST_REPEATED, 0)

    def regress(first: int) -> dict[int, Estimate]:
        chosen = order[first : first + MOST_REPEATED]
        apart = _apart(record, response, start[chosen], end[chosen])
        return _regression(apart, response, start[chosen], end[chosen], number[chosen])

    found = regress(spare // 2)
    for i, spans in enumerate(siblings):
        if spare and (i not in found or found[i].reason == "too_few_windows"):  # it came before or after
            found[i] = regress(int(np.searchsorted(start[order], spans.start_ns[0])))[i]
    return {spans.path: found[i] for i, spans in enumerate(siblings)}


def _apart(record: Readings, response: StepResponse, start: Ints, end: Ints) -> Readings:
    """The record without readings that see what ran outside: before, after, or in a long pause between the spans.

    A regression treats all that as the same rest as lies between spans, of which it may contain little
    else: a few readings of an evaluation would give it a wrong level. It excludes distant ones.
    """
    memory, period, ahead = (
        round(seconds * 1e9) for seconds in (response.memory_s, response.period_s, min(response.lag_s, 0.0))
    )
    gaps = start[1:] - end[:-1]
    usual = float(np.median(gaps)) if len(gaps) else 0.0
    # five times the usual time between short ranges is a pause, in which something else may run
    pauses = np.flatnonzero(gaps > max(5.0 * usual, memory))
    opening = [int(start[0]) - period - memory, *end[:-1][pauses].tolist(), int(end[-1])]
    closing = [int(start[0]), *start[1:][pauses].tolist(), int(end[-1]) + period]
    at = record.time_ns
    zone = np.clip(np.searchsorted(np.array(opening) + ahead, at, side="left") - 1, 0, len(opening) - 1)
    seen = (at > np.array(opening)[zone] + ahead) & (at < np.array(closing)[zone] + memory)
    keep = ~seen
    if len(at):
        keep[[0, -1]] = True  # which say that there is a record around it
    return record.take(keep)


def _regression(record: Readings, response: StepResponse, start: Ints, end: Ints, number: Ints) -> dict[int, Estimate]:
    """Mean energy by number of the kind of spans in order of start."""
    there, kinds = np.unique(number, return_inverse=True)
    if np.any(end[:-1] > start[1:]):
        return dict.fromkeys(there.tolist(), Estimate.null("ranges_overlap", "repeated"))
    found = repeated_energy(record, response, start, end, kinds.reshape(-1))
    return dict(zip(there.tolist(), found, strict=True))


def add_ranks(run: Run, figures: Figures, units: Mapping[Path, RangeUnit]) -> None:
    """Add the whole, and a unit for each path that every rank has: energy of one in each rank, added up."""
    ranks = _last_starts(run)
    names = [name for name in ranks if (name,) in units]
    if not names:
        return
    devices = [device for name in names for device in devices_of(run, (name,))]
    shared = len(set(devices)) < len(devices)
    _add_all_devices(run, figures)
    first = max(unit.id for unit in units.values()) + 1
    paths = list(dict.fromkeys(path[1:] for path in units if path[0] == names[0] and len(path) > 1))
    paths = [path for path in paths if all((name, *path) in units for name in names)]
    ids = {path: first + i for i, path in enumerate(paths)}
    for path, id in ids.items():
        of = [units[name, *path] for name in names]
        parent = next((ids[path[:i]] for i in range(len(path) - 1, 0, -1) if path[:i] in ids), MODEL_UNIT)
        counts = {unit.count for unit in of}
        figures.unit(id, "range", "/".join(["all ranks", *path]), parent, count=max(counts))
        flags = dict.fromkeys(flag for unit in of for flag in figures.get(unit.id, "energy_total_j").flags)
        if len(counts) > 1:
            flags["counts_differ"] = None
        figures.add(id, "time_s", _mean_time([figures.get(unit.id, "time_s") for unit in of]), flags)
        energy = total([figures.get(unit.id, "energy_total_j") for unit in of], method=OF_RANKS)
        figures.add(id, "energy_total_j", Estimate.null("ranks_share_device", OF_RANKS) if shared else energy, flags)


def _last_starts(run: Run) -> list[str]:
    """Names of the ranks, each as it was after its last restart."""
    last: dict[int, tuple[int, str]] = {}
    for member in run.settings.get("ranks", ()):
        restart = member.get("restart", 0)
        if restart >= last.get(member["rank"], (-1, ""))[0]:
            last[member["rank"]] = restart, member["name"]
    return [name for _, (_, name) in sorted(last.items())]


def _add_all_devices(run: Run, figures: Figures) -> None:
    """Energy of all devices of all ranks, each once."""
    numbers = range(1, len(run.devices) + 1)
    parts = [figures.get(number, "energy_total_j") for number in numbers]
    flags = dict.fromkeys(flag for number in numbers for flag in figures.get(number, "energy_total_j").flags)
    figures.add(MODEL_UNIT, "energy_total_j", total(parts, method=OF_RANKS), flags)


def _mean_time(times: list[Estimate]) -> Estimate:
    return total(times, method=OF_RANKS).scaled(1 / len(times))
