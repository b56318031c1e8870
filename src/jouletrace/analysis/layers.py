"""Figures of modules: sums of the operators in them, held against modules removed as a whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jouletrace.analysis.rows import Figures
from jouletrace.energy.interval import difference
from jouletrace.experiments.estimate import Cost, Estimator, holds_zero
from jouletrace.run import MODEL_UNIT

Row = dict[str, Any]

OUTSIDE = "(outside of modules)"
"""Name of the row for operators that no submodule calls."""

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


@dataclass
class Layer:
    """A module.

    Attributes:
        name: Qualified name.
        own: Shares of parts that it calls itself, by id of the part.
        total: The same with those of all modules inside it.
        flags: "grouped" (equal layers share an experiment), "pooled" (some of it is too small to be told apart).
    """

    name: str
    own: dict[int, float] = field(default_factory=dict)
    total: dict[int, float] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)

    @property
    def parent(self) -> str:
        """Qualified name of the module around it; "" at the top."""
        return self.name.rpartition(".")[0]


def layers_of(rows: list[Row], traced: Mapping[int, float]) -> dict[str, Layer]:
    """All modules by qualified name from the units of an experiment.

    They are in the order of their first launch, outer ones first.

    Args:
        rows: The ``units`` table.
        traced: Seconds of an iteration in each part, by id, as far as traced; by which a pool is shared out.
    """
    ops = {row["id"]: row for row in rows if row["level"] == "op"}
    sites = [row for row in rows if row["level"] == "site"]
    weights: dict[int, float] = {}
    for site in sites:
        op = ops[site["parent"]]
        weights[site["id"]] = traced.get(op["id"], 1.0) * site["count"] / op["count"]
    whole: dict[int, float] = {}
    for site in sites:
        whole[_measured(site, ops)] = whole.get(_measured(site, ops), 0.0) + weights[site["id"]]
    found: dict[str, Layer] = {}
    for site in sites:
        part = _measured(site, ops)
        share = weights[site["id"]] / whole[part]
        name = site["module"] or OUTSIDE
        for inner in _path(name):
            layer = found.setdefault(inner, Layer(inner))
            layer.total[part] = layer.total.get(part, 0.0) + share
            if inner == name:
                layer.own[part] = layer.own.get(part, 0.0) + share
    pools = {row["parent"] for row in ops.values() if row["parent"] in ops}
    for layer in found.values():
        # A layer that holds all of a part knows it by itself, whoever else is like it.
        shared = {part for part, share in layer.total.items() if share < 1 - 1e-9}
        layer.flags = ({"pooled"} if shared & pools else set()) | ({"grouped"} if shared - pools else set())
    return found


def _measured(site: Row, ops: Mapping[int, Row]) -> int:
    """The part that was measured for a site: its own, or the pool that this is in."""
    own = ops[site["parent"]]
    return int(own["parent"] if own["parent"] in ops else own["id"])


def _path(name: str) -> list[str]:
    if name == OUTSIDE:
        return [name]
    words = name.split(".")
    return [".".join(words[:depth]) for depth in range(1, len(words) + 1)]


def add_layers(
    figures: Figures, rows: list[Row], estimator: Estimator, traced: Mapping[int, float], add: Any, first_id: int
) -> None:
    """Add every module, and how far modules removed as a whole are from the sum of their operators.

    Args:
        figures: Where to.
        rows: The ``units`` table.
        estimator: Of the experiment's windows.
        traced: As of ``layers_of``.
        add: Adds a cost's figures to a unit: ``add(unit, cost, flags, cost at equal clocks)``.
        first_id: Id of the first layer's unit.
    """
    layers = layers_of(rows, traced)
    ids = {name: first_id + i for i, name in enumerate(layers)}
    removed = {row["module"]: row["id"] for row in rows if row["level"] == "group"}
    disagreeing = {
        pattern for pattern, unit in removed.items() if _add_group(figures, unit, estimator, layers, pattern)
    }
    for name, layer in layers.items():
        figures.unit(ids[name], "layer", name, ids.get(layer.parent, MODEL_UNIT), module=name, count=1)
        flags = sorted(layer.flags)
        if {name, _pattern(name)} & disagreeing:
            flags.append("module_disagrees")
        matched = estimator.sum(layer.total, matched=True) if estimator.paced else None
        add(ids[name], estimator.sum(layer.total), flags, matched)
        if matched is not None:
            figures.add(ids[name], "time_matched_s", matched.time_s, flags)
            figures.add(ids[name], "energy_matched_j", matched.energy_j, flags)
        own = estimator.sum(layer.own)
        if layer.own and layer.own != layer.total:
            figures.add(ids[name], "energy_own_j", own.energy_j, flags)
            figures.add(ids[name], "time_own_s", own.time_s, flags)


def _pattern(name: str) -> str:
    return _NUMBER.sub("*", name)


def _add_group(figures: Figures, unit: int, estimator: Estimator, layers: Mapping[str, Layer], pattern: str) -> bool:
    """Add a module removed as a whole and the sum of its operators; whether they disagree."""
    whole = estimator.removed(unit)
    if whole.time_s.value is None:
        return False
    shares: dict[int, float] = {}
    for name, layer in layers.items():
        if pattern in (name, _pattern(name)):
            for part, share in layer.total.items():
                shares[part] = shares.get(part, 0.0) + share
    parts = estimator.sum(shares)
    apart = Cost(difference(whole.energy_j, parts.energy_j), difference(whole.time_s, parts.time_s))
    clear = holds_zero(apart.energy_j if apart.energy_j.value is not None else apart.time_s) is False
    flags = ["module_disagrees"] if clear else []
    for name, one in (("removed", whole), ("summed", parts)):
        figures.add(unit, f"energy_{name}_j", one.energy_j, flags)
        figures.add(unit, f"time_{name}_s", one.time_s, flags)
    return clear
