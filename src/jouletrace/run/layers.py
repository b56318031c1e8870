"""Layers for people: equal ones as one row, and what no module calls by operator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from typing import Any

import numpy as np

from jouletrace.arrays import Floats
from jouletrace.run.division import Division, Launched, divisions_of
from jouletrace.run.estimate import Estimate, widened
from jouletrace.run.model import MODEL_UNIT, Run
from jouletrace.run.names import short_names
from jouletrace.run.parts import ABSENT, Part, Parts, of_time
from jouletrace.run.recording_names import OUTSIDE
from jouletrace.run.tables import UnitRow

Calls = Sequence[tuple[str, str | None, str | None]]
"""Modules around a site, outer ones first, each with the number and the name of its call; None if unknown."""

_BY_OTHERS = "called by others"

_ALIKE = 0.1
"""Largest distance of a time from the mean of those of equal layers, as a share of it. Blocks of DeiT-B and SegFormer
on H200s are within 1 %, their kernels within 12 %; each energy of a kernel is known to 3 % and worse."""

_WIDE = 40
"""Characters of a kernel's name."""

_SMALL = 0.01
"""Share of a layer by which times of its kernels may differ anyhow; of the whole, below which layers that the readings
don't resolve are listed together."""


def calls_of(site: UnitRow, by_phase: bool) -> Calls:
    """The calls around a site; ``by_phase`` names them by phases in place of numbers."""
    words = (site["module"] or OUTSIDE).split(".")
    names = [".".join(words[:depth]) for depth in range(1, len(words) + 1)]
    numbers = [word for word in (site["call"] or "").split(".") if word]
    if len(numbers) != len(names):
        return [(name, None, None) for name in names]
    labels = [site["phase"] or "" if by_phase else f"call {one}" if int(one) else _BY_OTHERS for one in numbers]
    return list(zip(names, numbers, labels, strict=True))


def layers_of(calls: Calls) -> Iterator[tuple[str, str | None, bool]]:
    """Modules of a site, and their calls: all that runs in each, and what the innermost one calls itself."""
    for place, (name, _, label) in enumerate(calls, start=1):
        for one in dict.fromkeys((None, label)):
            yield name, one, False
            if place == len(calls):
                yield name, one, True


def folded(run: Run, parts: Parts) -> list[Part]:
    """The layers of a Run for people, outer ones first: equal ones of one parent are one, as are those below them.

    Layers are equal if they are numbered, and the same operators launch the same kernels equally often at the same
    places in them, in times that are alike. Small ones of one parent that the readings don't resolve are one row too.
    Sums have the covariance of all powers. A Run without a stored division has all its layers.
    """
    layers, found = parts.units("layer"), _Listed(run, parts)
    tops = {one.parent or MODEL_UNIT for one in layers} - {one.id for one in layers}
    rows = (row for top in sorted(tops) for row in found.rows([Part(top, None, "model", "")]))
    return list(rows) if found.divisions else layers


class _Listed:
    """Layers by what they lie in, and divisions by GPU; by GPU and layer, seconds of each kind by what is launched."""

    def __init__(self, run: Run, parts: Parts) -> None:
        self.parts, self.divisions = parts, dict[str, Division]()
        self.inside, self.launched = defaultdict[int, list[Part]](list), defaultdict[Any, dict[Any, Floats]](dict)
        for one in parts.units("layer"):
            self.inside[one.parent or MODEL_UNIT].append(one)
        units, names = {row["id"]: row for row in run.units.to_pylist()}, {p.module: n for n, p in parts.gpus.items()}
        places = partial(_places, units, "generation" in run.workload)
        for division in divisions_of(run):
            self.divisions[gpu := names.get(division.device, "")] = division
            for (layer, what), seconds in division.grouped(places).items():
                self.launched[gpu, *layer][what] = seconds

    def rows(self, around: Sequence[Part]) -> Iterator[Part]:
        """The rows inside of a layer, or of equal ones, each before those inside of it."""
        found = [(group, ones := [*chain(*group)], self._figures(ones)) for group in self._groups(around)]
        small = [row for row in found if self._is_small(*row[1:])]
        if len(small) > 1:
            found = [row for row in found if row not in small]
        for group, ones, figures in found:
            name, below, inside = ones[0].name, self._groups(ones), ones
            if len(group) > 1:
                name = f"{_numbers(group)} ×{len(group)}"
            elif len(below) == 1 < len(below[0]) and "time_own_s" not in figures:  # it is a list of equal ones
                name, inside = f"{name.rpartition('.')[2]}.* ×{len(below[0])}", [*chain(*below[0])]
            yield replace(inside[0], parent=around[0].id, name=name, figures=figures)
            yield from self._operators(ones[0]) if name == OUTSIDE else self.rows(inside)
        if len(small) > 1:
            ones = [one for _, some, _ in small for one in some]
            name = f"{sum(len(group) for group, _, _ in small)} more, together"
            yield replace(ones[0], parent=around[0].id, name=name, figures=self._figures(ones))

    def _groups(self, around: Sequence[Part]) -> list[list[list[Part]]]:
        """The layers inside of one or of equal ones, by their names in these; equal numbered siblings in one group."""
        siblings = defaultdict[str, list[Part]](list)
        for one in around:
            for part in self.inside[one.id]:
                siblings[part.name.removeprefix(one.name)].append(part)
        groups: list[tuple[list[list[Part]], list[dict[object, float]]]] = []
        for name, ones in siblings.items():
            times = defaultdict[object, float](float)
            for what, seconds in self._launched(ones) if name.removeprefix(".").isdecimal() else ():
                times[what] += float(seconds.sum())
            same = (group for group in groups if times and _equal([*group[1], times]))
            if (group := next(same, None)) is None:
                groups.append(group := ([], []))
            group[0].append(ones)
            group[1].append(times)
        return [group for group, _ in groups]

    def _launched(self, ones: Sequence[Part], *, own: bool = False) -> list[tuple[Any, Floats]]:
        """Launches of some layers, with the seconds of each kind; ``own`` are those that they make themselves."""
        names = [(one.gpu, one.module or one.name, one.name) for one in ones]
        keys = [(gpu, module, name.removeprefix(module).strip(" ()") or None, own) for gpu, module, name in names]
        return [launched for key in keys for launched in self.launched[key].items()]

    def _figures(self, ones: Sequence[Part]) -> dict[str, Estimate]:
        """Figures of the sum of some layers of one device."""
        if len(ones) == 1:
            return ones[0].figures
        owns = (True, False) if all("time_own_s" in one.figures for one in ones) else (False,)
        total = {own: np.sum([some for _, some in self._launched(ones, own=own)], axis=0) for own in owns}
        found = self._of(ones[0], total[False])
        if True in total:
            own = self._of(ones[0], total[True])
            found |= {"time_own_s": own["time_s"], "energy_own_j": own["energy_total_j"]}
        return found

    def _of(self, first: Part, seconds: Floats) -> dict[str, Estimate]:
        """Figures of seconds of each kind on the device of a layer."""
        get, division = self.parts.get, self.divisions[first.gpu]
        time, energy = replace(first.get("time_s"), value=float(seconds.sum())), division.energy(seconds)
        found = {"time_s": time, "energy_total_j": energy, "power_w": energy.scaled(1 / (time.value or 1.0))}
        share, of = (time, "iteration_time_s") if of_time(first.figures) else (energy, "energy_total_j")
        if whole := get(of).value:
            found["share"] = share.scaled(1 / whole)
        idle_w = get("baseline_context_idle_w")
        if division.powers is not None and energy.value is not None and idle_w.value is not None:
            idle = idle_w.scaled(float(seconds[:-1] @ division.powers.own))
            value, low, high = ((end or 0.0) - (idle.value or 0.0) for end in (energy.value, energy.low, energy.high))
            active = replace(energy, value=value, low=low, high=high, budget={})
            found["energy_active_j"] = widened(active, idle.half_width or 0.0)
        return found

    def _operators(self, outside: Part) -> Iterator[Part]:
        """A row for each operator that no module calls, or kernel where these aren't known; the longest first."""
        groups = defaultdict[str, Floats](lambda: np.zeros(1))
        for (_, op, _, kernel, *_), seconds in self._launched([outside]):
            name = (op or kernel).removeprefix("aten.")
            groups[name] = groups[name] + seconds
        ranked, short = sorted(groups, key=lambda name: -groups[name].sum()), short_names(groups, _WIDE)
        for number, name in enumerate(ranked if len(ranked) > 1 else (), 1 + len(ranked) * outside.id):
            figures = self._of(outside, groups[name])
            yield replace(outside, id=-number, parent=outside.id, name=short[name], figures=figures)

    def _is_small(self, ones: Sequence[Part], figures: Mapping[str, Estimate]) -> bool:
        time, energy = (figures.get(metric, ABSENT) for metric in ("time_s", "energy_total_j"))
        small = (time.value or 0.0) < _SMALL * (self.parts.get("iteration_time_s").value or 0.0)
        return small and energy.reason == "not_resolved" and bool(self._launched(ones))


def _places(units: Mapping[int, UnitRow], by_phase: bool, row: Launched) -> Iterator[tuple[Any, Any]]:
    """The layers of a row, and what it is in each: its place, operator, shapes, kernel, and how often it is called."""
    for layer in layers_of(calls_of(units[row.site], by_phase)) if row.site >= 0 else ():
        unit, site = units[row.unit], units[row.site]
        place = (site["module"] or OUTSIDE).removeprefix(layer[0])
        yield layer, (place, unit["op"], unit["shapes"], unit["name"], site["call"], site["count"])


def _equal(layers: Sequence[Mapping[object, float]]) -> bool:
    """True if layers have the same launches, each and all together in times that are alike."""
    if any(one.keys() != layers[0].keys() for one in layers):
        return False
    times = np.array([[*(one[key] for key in layers[0]), sum(one.values())] for one in layers])
    mean = times.mean(axis=0)
    return bool((abs(times - mean) <= np.maximum(_ALIKE * mean, _SMALL * mean[-1])).all())


def _numbers(group: Sequence[Sequence[Part]]) -> str:
    """The numbers of siblings: "0–2,5"."""
    numbers = enumerate(sorted(int(ones[0].name.rpartition(".")[2]) for ones in group))
    runs = [[n for _, n in run] for _, run in groupby(numbers, lambda one: one[1] - one[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
