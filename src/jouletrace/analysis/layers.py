"""Figures of modules: sums of the operators in them, held against modules removed as a whole."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jouletrace.analysis.rows import Figures
from jouletrace.analysis.shared_out import SharedOut
from jouletrace.analysis.sites import Site, shares_of
from jouletrace.energy.interval import difference
from jouletrace.experiments.estimate import Cost, Estimator, holds_zero
from jouletrace.run import MODEL_UNIT

Row = dict[str, Any]

OUTSIDE = "(outside of modules)"
"""Name of the row for operators that no submodule calls."""

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


_GENERATING = ("prefill", "decode")

MOST_CALLS = 16
"""A module called more often than this in an iteration has its total alone: a row a token helps nobody."""


@dataclass
class Layer:
    """A module, or one of its calls.

    Attributes:
        name: Qualified name; of a call with its number.
        called: Sites of operators that it calls itself.
        inside: The same with those of all modules inside it.
        flags: "grouped" (equal layers share an experiment), "pooled" (some of it is too small to be told apart),
            "split" (calls that are alike share an experiment).
        calls: Its calls by number, all of them together what it is; 0 is what others call in it while it doesn't run.
            Where tokens are generated, 1 is prefill and 2 is decode.
        weighed: How often each call of an experiment counts, where that isn't once.
    """

    name: str
    called: list[Site] = field(default_factory=list)
    inside: list[Site] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)
    calls: dict[int, Layer] = field(default_factory=dict)
    weighed: dict[str, float] = field(default_factory=dict)

    @property
    def own(self) -> dict[int, float]:
        """Shares of parts that it calls itself, by id of the part."""
        return shares_of(self.called)

    @property
    def total(self) -> dict[int, float]:
        """The same with those of all modules inside it."""
        return shares_of(self.inside)

    @property
    def parent(self) -> str:
        """Qualified name of the module around it; "" at the top."""
        return self.name.rpartition(".")[0]

    @property
    def count(self) -> int:
        """How often it is called in an iteration; 1 for a container that is never called itself."""
        if self.weighed:
            return max(1, round(sum(self.weighed.values())))
        return max(1, sum(number > 0 for number in self.calls))

    def add(self, site: Site, *, own: bool) -> None:
        """Add what runs at a site."""
        self.inside.append(site)
        if own:
            self.called.append(site)

    def call(self, number: int) -> Layer:
        """One of its calls."""
        name = f"{self.name} (call {number})" if number else f"{self.name} (called by others)"
        return self.calls.setdefault(number, Layer(name))

    def in_phase(self, phase: str) -> Layer:
        """Its calls in one phase of generating tokens."""
        return self.calls.setdefault(_GENERATING.index(phase) + 1, Layer(f"{self.name} ({phase})"))

    def listed(self) -> list[Layer]:
        """Its calls in order, where they are worth rows of their own."""
        if not 1 < len(self.calls) <= MOST_CALLS:
            return []
        return [call for _, call in sorted(self.calls.items(), key=lambda item: (item[0] == 0, item[0]))]


def layers_of(rows: list[Row], sites: Sequence[Site]) -> dict[str, Layer]:
    """All modules by qualified name from the units of an experiment.

    They are in the order of their first launch, outer ones first.

    Args:
        rows: The ``units`` table.
        sites: Of that table.
    """
    ops = {row["id"]: row for row in rows if row["level"] == "op"}
    found: dict[str, Layer] = {}
    for site in sites:
        name = site.row["module"] or OUTSIDE
        path = _path(name)
        numbers = [int(word) for word in (site.row["call"] or "").split(".") if word]
        for depth, inner in enumerate(path):
            layer = found.setdefault(inner, Layer(inner))
            layer.add(site, own=inner == name)
            if site.row.get("weight") is not None and site.row["phase"] in _GENERATING:
                layer.weighed[".".join(map(str, numbers[: depth + 1]))] = site.row["weight"]
                layer.in_phase(site.row["phase"]).add(site, own=inner == name)
            elif len(numbers) == len(path):
                layer.call(numbers[depth]).add(site, own=inner == name)
    pools = {row["parent"] for row in ops.values() if row["parent"] in ops}
    for layer in found.values():
        # A layer that holds all of a part knows it by itself, whoever else is like it.
        total = layer.total
        shared = {part for part, share in total.items() if share < 1 - 1e-9}
        layer.flags = ({"pooled"} if shared & pools else set()) | ({"grouped"} if shared - pools else set())
        for call in layer.calls.values():
            alike = any(share < total[part] - 1e-9 for part, share in call.total.items())
            call.flags = layer.flags | ({"split"} if alike else set())
    return found


def _path(name: str) -> list[str]:
    if name == OUTSIDE:
        return [name]
    words = name.split(".")
    return [".".join(words[:depth]) for depth in range(1, len(words) + 1)]


def add_layers(
    figures: Figures, rows: list[Row], estimator: Estimator, sites: Sequence[Site], add: Any, first_id: int
) -> None:
    """Add every module, and how far modules removed as a whole are from the sum of their operators.

    Args:
        figures: Where to.
        rows: The ``units`` table.
        estimator: Of the experiment's windows.
        sites: Of that table.
        add: Adds a cost's figures to a unit: ``add(unit, cost, flags, cost at equal clocks)``.
        first_id: Id of the first layer's unit.
    """
    layers = layers_of(rows, sites)
    ids = {name: first_id + i for i, name in enumerate(layers)}
    next_id = first_id + len(layers)
    shared = SharedOut(estimator, sites)
    removed = {row["module"]: row["id"] for row in rows if row["level"] == "group"}
    disagreeing = {
        pattern for pattern, unit in removed.items() if _add_group(figures, unit, estimator, shared, layers, pattern)
    }
    for name, layer in layers.items():
        figures.unit(ids[name], "layer", name, ids.get(layer.parent, MODEL_UNIT), module=name, count=layer.count)
        flags = ["module_disagrees"] if {name, _pattern(name)} & disagreeing else []
        contains = layer.own != layer.total
        _add_layer(figures, ids[name], layer, contains, flags, shared, add)
        for call in layer.listed():
            figures.unit(next_id, "layer", call.name, ids[name], module=name, count=1)
            _add_layer(figures, next_id, call, contains, flags, shared, add)
            next_id += 1


def _add_layer(
    figures: Figures,
    unit: int,
    layer: Layer,
    contains: bool,
    flags: list[str],
    shared: SharedOut,
    add: Any,
) -> None:
    """Add the figures of a module, or of one of its calls; what it runs itself where it contains others."""
    flags = [*sorted(layer.flags), *flags]
    matched = shared.at_equal_clocks(layer.inside)
    add(unit, shared.sum(layer.inside), flags, matched)
    if matched is not None:
        figures.add(unit, "time_matched_s", matched.time_s, flags)
        figures.add(unit, "energy_matched_j", matched.energy_j, flags)
    if layer.called and contains:
        own = shared.sum(layer.called)
        figures.add(unit, "energy_own_j", own.energy_j, flags)
        figures.add(unit, "time_own_s", own.time_s, flags)


def _pattern(name: str) -> str:
    return _NUMBER.sub("*", name)


def _add_group(
    figures: Figures, unit: int, estimator: Estimator, shared: SharedOut, layers: Mapping[str, Layer], pattern: str
) -> bool:
    """Add a module removed as a whole and the sum of its operators; whether they disagree."""
    whole = estimator.removed(unit)
    if whole.time_s.value is None:
        return False
    inside = [site for name, layer in layers.items() if pattern in (name, _pattern(name)) for site in layer.inside]
    parts = shared.sum(inside)
    apart = Cost(difference(whole.energy_j, parts.energy_j), difference(whole.time_s, parts.time_s))
    clear = holds_zero(apart.energy_j if apart.energy_j.value is not None else apart.time_s) is False
    flags = ["module_disagrees"] if clear else []
    for name, one in (("removed", whole), ("summed", parts)):
        figures.add(unit, f"energy_{name}_j", one.energy_j, flags)
        figures.add(unit, f"time_{name}_s", one.time_s, flags)
    return clear
