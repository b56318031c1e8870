"""Time and energy of the ranges and steps that a program marked itself, of all and of each, by path, of all ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from jouletrace.analysis.aliasing import of_paths
from jouletrace.analysis.span_energies import LEAST_OF_MEAN, Energy, energies_by_name
from jouletrace.arrays import Indices, Ints, Mask
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.figures import Figures
from jouletrace.run.metrics import EACH
from jouletrace.run.readings import ALIASED
from jouletrace.run.spans import Path, PathSpans, Spans, spans_of
from jouletrace.stats.interval import mean_estimate, total

OF_RANKS = "ranks"
"""Method of figures of all ranks of a program together."""

STEP = "step"
"""Name of a span of kind "iteration" among ranges."""

_MARKED = ("range", "iteration")

_TIMES, _ENERGIES = EACH.items()
"""Metrics of all of a path together, and of each."""

_DEEPEST = 100
"""Ranges around a range that has figures of its own."""


class RangeUnit(NamedTuple):
    """A unit of ranges: its id, and how many there were."""

    id: int
    spans: int


def add_ranges(run: Run, figures: Figures) -> dict[Path, RangeUnit]:
    """Add a unit for each path of ranges, with time and energy of all together and of each, of all its devices.

    The energy of all is of those that ran, with the uncertainty of their sum. That of each has how they differ.

    Returns:
        The units by path: names from the outermost range inwards.
    """
    marked = _marked(run)
    host = set(run.settings.get("not_synchronised", ()))
    units: dict[Path, RangeUnit] = {}
    aliased = of_paths(run, marked, lambda path: devices_of(run, path))
    energies = _energies(run, marked)
    for spans in marked:
        path = spans.path
        unit = _unit(figures, units, path, len(spans))
        stated = {"host_time": path[-1] in host, "ranges_crossed": spans.crossed}
        flags = [code for code, holds in stated.items() if holds]
        each, seconds = _time(spans), float(spans.seconds.sum())  # the clock knows the sum, however they differ
        of_all = Estimate(seconds, seconds, seconds, each.n, each.method)
        figures.add_each(unit, dict(zip(_TIMES, (of_all, _alike(each)), strict=True)), flags)
        energy = _of_devices(energies.get(path, []))
        is_aliased = path in aliased and energy.each.value is not None
        flags += [*energy.each.flags, *([ALIASED] if is_aliased else [])]
        both = (replace(energy.total, flags=()), _alike(replace(energy.each, flags=())))
        figures.add_each(unit, dict(zip(_ENERGIES, both, strict=True)), flags)
    return units


def _alike(each: Estimate) -> Estimate:
    """The mean of spans; null where they differ by so much that its interval holds 0."""
    holds_none = each.value is not None and (each.half_width or 0.0) >= each.value
    return Estimate.null("spans_differ", each.method) if holds_none else each


def _unit(figures: Figures, units: dict[Path, RangeUnit], path: Path, count: int, *of: str) -> int:
    """Add a unit of ranges below that of the innermost one around it, which is there already; returns its id."""
    parent = next((units[path[:i]].id for i in range(len(path) - 1, 0, -1) if path[:i] in units), MODEL_UNIT)
    units[path] = RangeUnit(figures.units.add("range", "/".join([*of, *path]), parent, count=count), count)
    return units[path].id


def devices_of(run: Run, path: Path) -> list[str]:
    """The devices that spans of a path are about: all of the Run's, or those of the rank that it begins with."""
    for member in run.settings.get("ranks", ()):
        if member["name"] == path[0]:
            return member["devices"]
    return [device.id for device in run.devices]


def _marked(run: Run) -> list[PathSpans]:
    """The marked spans by path, in order of their first start: outer ones before those in them."""
    marked = Spans.from_table(run.spans.filter(pc.is_valid(run.spans["id"])), _MARKED)
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
    ranges, first = [], dict[Path, int]()
    for number, path in enumerate(paths):
        rows = order[edges[number] : edges[number + 1]]
        first[path] = int(start[rows[0]])
        rows = rows[undisturbed[rows]] if undisturbed[rows].any() else rows
        columns = vars(marked.take(rows))
        ranges.append(PathSpans(**columns, path=path, steps=bool(steps[number]), crossed=bool(crossed[number])))
    ranks = {member["name"]: rank for rank, member in enumerate(run.settings.get("ranks", ()))}
    return sorted(ranges, key=lambda spans: (ranks.get(spans.path[0], -1), first[spans.path]))


def _paths(run: Run, marked: Spans) -> tuple[list[Path], Ints, Indices]:
    """The paths, the number of each span's, and the span around it; -1 for none, or nested too deeply."""
    names = marked.texts["name"]
    label = np.where(marked.those("kind", ("iteration",)), len(names), marked.name)
    labels = [*names, STEP, "None"]  # the last, which -1 stands for, is of ranges without a name
    above = np.where(marked.above < np.arange(len(marked)), marked.above, -1)
    paths: list[Path] = []
    which = np.full(len(marked), -1, np.int64)
    here = np.flatnonzero(above < 0)
    inner = np.argsort(above, kind="stable")[len(here) :]  # by the span around them
    for _ in range(_DEEPEST):
        outer = np.where(above[here] < 0, -1, which[above[here]])
        distinct, number = np.unique((outer + 1) * len(labels) + label[here] % len(labels), return_inverse=True)
        which[here] = len(paths) + number.reshape(-1)
        for around, label_of in zip(*(part.tolist() for part in np.divmod(distinct, len(labels))), strict=True):
            paths.append((*(paths[around - 1] if around else ()), labels[label_of]))
        first = np.searchsorted(above[inner], here, side="left")
        last = np.searchsorted(above[inner], here, side="right")
        here = inner[_ranges_of(first, last)]
        if not len(here):
            return paths, which, above
    run.warn("ranges_too_deep", f"ranges within more than {_DEEPEST} others have no figures")
    return paths, which, above


def _ranges_of(first: Indices, last: Indices) -> Indices:
    """All numbers from each first to before its last, one after the other."""
    count = last - first
    begin = np.cumsum(count) - count
    return np.asarray(np.arange(int(count.sum())) + np.repeat(first - begin, count), np.intp)


def _traced(run: Run, start: Ints, end: Ints) -> Mask:
    """Mask of spans that the tracing of kernels disturbed, shape (n,). A range around all of it isn't one of them."""
    since, until = spans_of(run, "phase").named("tracing").edges_ns
    disturbed = np.zeros(len(start), bool)
    for a, b in zip(since, until, strict=True):
        disturbed |= (start < b) & (end > a) & ~((start <= a) & (end >= b) & (end - start > 2 * (b - a)))
    return disturbed


def _time(spans: PathSpans) -> Estimate:
    seconds = spans.seconds
    if len(spans) >= LEAST_OF_MEAN:
        return mean_estimate(seconds, correlated=True, method="clock")
    mean = float(seconds.mean())  # of those that ran, which the clock knows
    return Estimate(mean, mean, mean, 1, "clock")


def _energies(run: Run, marked: Sequence[PathSpans]) -> dict[Path, list[Energy]]:
    """Energies by path, of each of its devices. Where readings lack some, all are as many times the mean of others."""
    of, of_path = {spans.path: devices_of(run, spans.path) for spans in marked}, dict[Path, list[Energy]]()
    for device in dict.fromkeys(device for devices in of.values() for device in devices):
        mine = [spans for spans in marked if device in of[spans.path]]
        steps, around = [spans.steps for spans in mine], [spans.path[:-1] for spans in mine]
        for spans, energy in zip(mine, energies_by_name(run, device, mine, steps, around), strict=True):
            of_all = energy.each.scaled(len(spans)) if energy.total.value is None else energy.total
            of_path.setdefault(spans.path, []).append(energy._replace(total=of_all))
    return of_path


def _of_devices(energies: Sequence[Energy]) -> Energy:
    """The sum over devices."""
    return energies[0] if len(energies) == 1 else Energy(*(total([energy[k] for energy in energies]) for k in range(2)))


def add_ranks(run: Run, figures: Figures, units: Mapping[Path, RangeUnit]) -> None:
    """Add the whole, and a unit for each path that every rank has: energies of each rank added up, and mean times."""
    last: dict[int, tuple[int, str]] = {}  # each rank as it was after its last restart
    for member in run.settings.get("ranks", ()):
        last[member["rank"]] = max(last.get(member["rank"], (-1, "")), (member.get("restart", 0), member["name"]))
    names = [name for _, (_, name) in sorted(last.items()) if (name,) in units]
    if not names:
        return
    devices = [device for name in names for device in devices_of(run, (name,))]
    shared = len(set(devices)) < len(devices)
    each = [figures.get(number, "energy_total_j") for number in range(1, len(run.devices) + 1)]
    figures.add(MODEL_UNIT, "energy_total_j", replace(total(each, method=OF_RANKS), budget={}))
    paths = list(dict.fromkeys(path[1:] for path in units if path[0] == names[0] and len(path) > 1))
    paths = [path for path in paths if all((name, *path) in units for name in names)]
    together: dict[Path, RangeUnit] = {}
    for path in paths:
        of = [units[name, *path] for name in names]
        counts = {range_unit.spans for range_unit in of}
        unit = _unit(figures, together, path, max(counts), "all ranks")
        figures_of = {
            metric: total([figures.get(range_unit.id, metric) for range_unit in of], method=OF_RANKS)
            for metric in (*_TIMES, *_ENERGIES)
        }
        flags = [*figures_of[_ENERGIES[1]].flags, *(["counts_differ"] if len(counts) > 1 else [])]
        figures_of |= {metric: figures_of[metric].scaled(1 / len(of)) for metric in _TIMES}
        figures_of |= dict.fromkeys(_ENERGIES, Estimate.null("ranks_share_device", OF_RANKS)) if shared else {}
        figures.add_each(unit, figures_of, flags)
