"""Layers for people: equal ones as one row, and what no module calls by operator."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from typing import Any

import numpy as np

from jouletrace.arrays import Floats
from jouletrace.run.estimate import Estimate
from jouletrace.run.model import MODEL_UNIT, Run
from jouletrace.run.names import short_names
from jouletrace.run.parts import OF_ROWS, Part, Parts
from jouletrace.run.recording_names import OUTSIDE
from jouletrace.run.sums import ENERGY, NOT_RESOLVED, TIME, Sums, others_of
from jouletrace.run.tables import UnitRow

Calls = Sequence[tuple[str, str | None, str | None]]
"""Modules around a site, outer ones first, each with the number and the name of its call; None if unknown."""

_BY_OTHERS = "called by others"

_ALIKE = 0.1
"""Largest distance of a time from the mean of those of equal layers, as a share of it. Blocks of DeiT-B and SegFormer
on H200s are within 1 %, their kernels within 12 %; each energy of a kernel is known to 3 % and worse."""

OWN = {"energy_own_j": "energy_total_j", "time_own_s": "time_s"}
"""Metrics of what a module with others in it runs itself, and those under which it is a row among theirs."""

OWN_NAME = "(own operators)"

_OWN = 10**9
"""Beyond all numbers of parts: what a part runs itself has its own below the negative of this."""

_WIDE = 40
"""Characters of a kernel's name."""

_SMALL = 0.01
"""Share of a layer by which times of its kernels may differ anyhow."""


def calls_of(site: UnitRow, by_phase: bool) -> Calls:
    """The calls around a site; ``by_phase`` names them by phases in place of numbers."""
    words = (site["module"] or OUTSIDE).split(".")
    names = [".".join(words[:depth]) for depth in range(1, len(words) + 1)]
    numbers = [word for word in (site["call"] or "").split(".") if word]
    if len(numbers) != len(names):
        return [(name, None, None) for name in names]
    labels = [
        site["phase"] or "" if by_phase else f"call {number}" if int(number) else _BY_OTHERS for number in numbers
    ]
    return list(zip(names, numbers, labels, strict=True))


def layers_of(calls: Calls) -> Iterator[tuple[str, str | None, bool]]:
    """Modules of a site, and their calls: all that runs in each, and what the innermost one calls itself."""
    for depth, (name, _, label) in enumerate(calls, start=1):
        for call in dict.fromkeys((None, label)):
            yield name, call, False
            if depth == len(calls):
                yield name, call, True


def folded(run: Run, parts: Parts, sums: Sums | None = None, *, each: bool = False) -> list[Part]:
    """The layers of a Run for people, outer ones first: equal ones of one parent are one, as are those below them.

    Layers are equal if they are numbered, and the same operators launch the same kernels equally often at the same
    places in them, in times that are alike. Sums have the covariance of all powers. A Run without a stored division has
    all its layers.

    Args:
        run: The Run.
        parts: Its parts.
        sums: Those of the Run, which learn the seconds of each row and of what it runs itself (``own_of``).
        each: List layers one by one.
    """
    layers, listing = parts.units("layer"), _Listed(run, parts, Sums(run, parts) if sums is None else sums)
    tops = {layer.parent or MODEL_UNIT for layer in layers} - {layer.id for layer in layers}
    if each or not listing.sums.divisions:
        for layer in layers:
            listing.figures(layer, [layer])
        return layers
    return [row for top in sorted(tops) for row in listing.rows([Part(top, None, "model", "")])]


def own_of(part: Part, sums: Sums) -> Part | None:
    """A part for the operators that a module with others in it runs itself; None where these aren't stated."""
    figures = {metric: part.figures[name] for name, metric in OWN.items() if name in part.figures}
    if not figures:
        return None
    id, of_seconds = -_OWN - part.id, dict[str, Estimate]()
    if (seconds := sums.seconds.get(id)) is not None:
        of_seconds = sums.of(part, seconds)
    elif len(figures) == len(OWN):
        of_seconds = sums.about(figures[TIME], figures[ENERGY], figures[TIME].value)
    return replace(part, id=id, parent=part.id, name=OWN_NAME, figures=of_seconds | figures)


def tree(
    run: Run, parts: Parts, sums: Sums, floors: Sequence[float], most: int | None, *, cause: float, brief: bool
) -> tuple[list[tuple[Part, int, str]], float]:
    """Layers as rows, each with its depth and its name there, and the share of the whole from which on they are listed.

    Outer modules come first, then what no operator accounts for, by GPU. Below each stands what it runs itself, and
    what isn't listed of it, so that rows make up the one above them.

    Args:
        run: The Run.
        parts: Its parts.
        sums: Those of the Run.
        floors: Shares from which on parts are listed, the first that leaves at most ``most`` rows, else the last.
        most: Rows; None for any number.
        cause: Share of the whole from which on a cause of idle has a row.
        brief: Equal layers are one row, and what has no energy is one with others; a list ("layer1.*") that is all that
            its module holds has no row.
    """
    layers = folded(run, parts, sums, each=not brief)
    for floor in floors:
        rows = _tree(parts, sums, layers, floor, cause, brief)
        if most is None or len(rows) <= most:
            break
    return rows, floor


def _tree(
    parts: Parts, sums: Sums, layers: Sequence[Part], least: float, cause: float, brief: bool
) -> list[tuple[Part, int, str]]:
    """The rows of ``tree`` from one share on."""
    ids, inside = {part.id for part in layers}, defaultdict[int | None, list[Part]](list)
    for part in layers:
        inside[part.parent if part.parent in ids else None].append(part)
    energies = any(part.get(ENERGY).value is not None for part in layers)
    whole = (parts.get(ENERGY) if energies else parts.time).value or math.inf
    floor = least * whole if least else -math.inf

    def is_listed(part: Part) -> bool:
        value = part.get(ENERGY if energies else TIME).value
        return (value or 0.0) >= floor and (value is not None or not brief)

    def below(part: Part) -> list[Part]:
        """Parts in a part: that which it runs itself, and the modules in it; its calls where it has none."""
        modules = [child for child in inside[part.id] if child.module != part.module] or inside[part.id]
        itself = own_of(part, sums) if modules else None
        return ([] if itself is None else [itself]) + modules

    def opened(some: Sequence[Part]) -> list[Part]:
        """The same with what lies in a part in its place, where that has an energy and the part itself has none."""
        closed = energies and (least or brief)
        inner = {part.id: opened(below(part)) for part in some if closed and part.get(ENERGY).value is None}
        with_energy = {
            id for id, within in inner.items() if any(child.get(ENERGY).value is not None for child in within)
        }
        return [row for part in some for row in (inner[part.id] if part.id in with_energy else [part])]

    def within(part: Part) -> list[Part]:
        """The rows below that of a part, with what these leave of it."""
        there = opened(below(part)) if part.id in ids else []
        listed, others = ([child for child in there if is_listed(child) is wanted] for wanted in (True, False))
        lacking = any(child.get(ENERGY).reason for child in listed)
        name = others_of(others) if others else NOT_RESOLVED if lacking else OWN_NAME
        rest = sums.rest(part, listed, name) if listed else None
        if brief and rest is None and len(listed) == 1 and listed[0].name.endswith(".*"):
            return within(listed[0])
        return [*listed, *([] if rest is None else [rest])]

    outer = opened(inside[None])
    tops, left = ([top for top in outer if is_listed(top) is wanted] for wanted in (True, False))
    outside = parts.outside() if layers else []
    rows: list[tuple[Part, int, str]] = []
    for row in sums.closed([*tops, *outside], left, cause):
        waiting = [(row, int(row.level == "cause"))]
        while waiting:
            part, depth = waiting.pop()
            rows.append((part, depth, part.within(depth)))
            waiting += [(child, depth + 1) for child in reversed(within(part))]
    return sorted(rows, key=lambda row: parts.order(row[0].gpu))


class _Listed:
    """Layers by what they lie in, and by GPU and layer, seconds of each kind by what is launched."""

    def __init__(self, run: Run, parts: Parts, sums: Sums) -> None:
        self.parts, self.sums = parts, sums
        self.inside, self.launched = defaultdict[int, list[Part]](list), defaultdict[Any, dict[Any, Floats]](dict)
        for module in parts.units("layer"):
            self.inside[module.parent or MODEL_UNIT].append(module)
        units = {row["id"]: row for row in run.units.to_pylist()}
        places = partial(_places, units, run.workload.get("task") == "generate")
        for gpu, division in sums.divisions.items():
            for (layer, what), seconds in division.grouped(
                map(places, division.column("unit"), division.column("site"))
            ).items():
                self.launched[gpu, *layer][what] = seconds

    def rows(self, around: Sequence[Part]) -> Iterator[Part]:
        """The rows inside of a layer, or of equal ones, each before those inside of it."""
        for group in self._groups(around):
            ones = [*chain(*group)]
            figures, below, name, inside = self.figures(ones[0], ones), self._groups(ones), ones[0].name, ones
            if len(group) > 1:
                name = f"{_numbers(group)} ×{len(group)}"
            elif len(below) == 1 < len(below[0]) and "time_own_s" not in figures:  # it is a list of equal ones
                name, inside = f"{name.rpartition('.')[2]}.* ×{len(below[0])}", [*chain(*below[0])]
                of_each = self.figures(inside[0], inside)  # what each of these runs itself
                figures = figures | {metric: of_each[metric] for metric in OWN if metric in of_each}
            yield replace(inside[0], parent=around[0].id, name=name, figures=figures)
            yield from self._operators(ones[0]) if name == OUTSIDE else self.rows(inside)

    def _groups(self, around: Sequence[Part]) -> list[list[list[Part]]]:
        """The layers inside of one or of equal ones, by their names in these; equal numbered siblings in one group."""
        siblings = defaultdict[str, list[Part]](list)
        for outer in around:
            for part in self.inside[outer.id]:
                siblings[part.name.removeprefix(outer.name)].append(part)
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

    def _launched(self, ones: Sequence[Part], *, by_itself: bool = False) -> list[tuple[Any, Floats]]:
        """Launches of some layers, with the seconds of each kind; ``by_itself`` are those that they make themselves."""
        names = [(layer.gpu, layer.module or layer.name, layer.name) for layer in ones]
        keys = [(gpu, module, name.removeprefix(module).strip(" ()") or None, by_itself) for gpu, module, name in names]
        return [launched for key in keys for launched in self.launched[key].items()]

    def figures(self, first: Part, ones: Sequence[Part]) -> dict[str, Estimate]:
        """Figures of the sum of some layers of one device, which are listed as the first."""
        of_sum, several = dict[str, Estimate](), len(ones) > 1
        for by_itself in (False, True) if all("time_own_s" in layer.figures for layer in ones) else (False,):
            if launched := self._launched(ones, by_itself=by_itself):
                id = -_OWN - first.id if by_itself else first.id
                self.sums.seconds[id] = seconds = np.sum([some for _, some in launched], axis=0)
                figures = self.sums.of(ones[0], seconds) if several else {}
                flags = [flag for flag in OF_ROWS if all(flag in part.get(ENERGY).flags for part in ones)]
                if several and flags:
                    figures[ENERGY] = replace(figures[ENERGY], flags=(*figures[ENERGY].flags, *flags))
                of_sum |= {name: figures[metric] for name, metric in OWN.items()} if by_itself and several else figures
        return of_sum if several else ones[0].figures

    def _operators(self, outside: Part) -> Iterator[Part]:
        """A row for each operator that no module calls, or kernel where these aren't known; the longest first."""
        groups = defaultdict[str, Floats](lambda: np.zeros(1))
        for (_, op, _, kernel, *_), seconds in self._launched([outside]):
            name = (op or kernel).removeprefix("aten.")
            groups[name] = groups[name] + seconds
        ranked, short = sorted(groups, key=lambda name: -groups[name].sum()), short_names(groups, _WIDE)
        for number, name in enumerate(ranked if len(ranked) > 1 else (), 1 + len(ranked) * outside.id):
            figures, self.sums.seconds[-number] = self.sums.of(outside, groups[name]), groups[name]
            yield replace(outside, id=-number, parent=outside.id, name=short[name], figures=figures)


def _places(units: Mapping[int, UnitRow], by_phase: bool, unit: int, site: int | None) -> Iterator[tuple[Any, Any]]:
    """The layers of a row, and what it is in each: its place, operator, shapes, kernel, and how often it is called."""
    if site is None:
        return
    kernel, caller = units[unit], units[site]
    for layer in layers_of(calls_of(caller, by_phase)):
        inside = (caller["module"] or OUTSIDE).removeprefix(layer[0])
        yield layer, (inside, kernel["op"], kernel["shapes"], kernel["name"], caller["call"], caller["count"])


def _equal(layers: Sequence[Mapping[object, float]]) -> bool:
    """True if layers have the same launches, each and all together in times that are alike."""
    if any(launches.keys() != layers[0].keys() for launches in layers):
        return False
    times = np.array([[*(launches[key] for key in layers[0]), sum(launches.values())] for launches in layers])
    mean = times.mean(axis=0)
    return bool((abs(times - mean) <= np.maximum(_ALIKE * mean, _SMALL * mean[-1])).all())


def _numbers(group: Sequence[Sequence[Part]]) -> str:
    """The numbers of siblings: "0–2,5"."""
    numbers = enumerate(sorted(int(ones[0].name.rpartition(".")[2]) for ones in group))
    runs = [[n for _, n in run] for _, run in groupby(numbers, lambda pair: pair[1] - pair[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
