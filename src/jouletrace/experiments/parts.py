"""What an experiment changes at a time: units that belong together.

The twelve equal layers of a model have the same operators on the same shapes. Changed all at
once they are one part with a signal twelve times as large, measured in a twelfth of the time; what one
layer's operator costs is a twelfth of it. Units too small to be resolved one by one are pooled in
the same way, so that the sum of the parts stays complete.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")

POOLED_OP = "other operators"
JOINED_OP = "operators together"
"""Of operators that can't be changed one by one."""

GAPS_NAME = "launch and gaps"
"""Name of the unit for what is left of a step without any of its parts."""


@dataclass(frozen=True)
class Part:
    """Units that are changed together.

    Attributes:
        id: Its id in the ``units`` and ``windows`` tables.
        units: The step's units, at least one; opaque keys of ``variant``.
        op: Operator; ``POOLED_OP`` of a pool, ``JOINED_OP`` of parts that can only be changed together, of a phase as a
            whole its name.
        shapes: Input shapes and types; "" of a pool.
        module: Qualified name of the module, with "*" for the number of a layer; of a pool of the one around all of it.
        count: Launches in an iteration.
        members: The parts in it, if it is made of several: each below what could be resolved, or not to be had alone.
    """

    id: int
    units: tuple[Any, ...]
    op: str
    shapes: str
    module: str
    count: int
    members: tuple[Part, ...] = ()

    @property
    def phase(self) -> str | None:
        """What of an iteration it belongs to; None if its units differ in that."""
        phases = {unit.phase for unit in self.units}
        return phases.pop() if len(phases) == 1 else None

    @property
    def name(self) -> str:
        """Its operator; of one made of several, how many and where."""
        if not self.members:
            return self.op
        return f"{self.op} ({len(self.members)})" + (f" in {self.module}" if self.module else "")

    def changes(self, multiplicity: int) -> dict[Any, int]:
        """What to hand to ``variant``."""
        return dict.fromkeys(self.units, multiplicity)

    def row(self, parent: int | None = None) -> dict[str, object]:
        """Its row of the ``units`` table."""
        return {
            "id": self.id,
            "parent": parent,
            "level": "op",
            "name": self.name,
            "op": None if self.members else self.op,
            "shapes": self.shapes or None,
            "module": self.module or None,
            "count": self.count,
            "phase": self.phase,
        }


def unit_rows(parts: Sequence[Part], groups: Sequence[Part], parent: int) -> list[dict[str, object]]:
    """Rows of the ``units`` table: parts, members of pools, the modules in which each runs, launch and gaps.

    A row of level "site" is a part in one call of one of its modules; a part has at least one, and all are in
    the order of their first launch. A row of level "group" is a module removed as a whole.
    """
    rows = [row for part in parts for row in (part.row(parent), *(member.row(part.id) for member in part.members))]
    rows += [{**group.row(parent), "level": "group", "name": group.module, "op": None} for group in groups]
    next_id = 1 + max(part.id for part in (*parts, *groups, *(member for part in parts for member in part.members)))
    gaps = dict.fromkeys(("op", "shapes", "module", "phase"))
    rows.append({"id": next_id, "parent": parent, "level": "op", "name": GAPS_NAME, **gaps, "count": 1})
    placed = [(unit, inner) for part in parts for inner in part.members or (part,) for unit in inner.units]
    for unit, inner in sorted(placed, key=lambda pair: pair[0].place):
        for call, count in unit.sites or (("", unit.count),):
            next_id += 1
            site = {"id": next_id, "parent": inner.id, "level": "site", "module": unit.module, "count": count}
            rows.append({**inner.row(), **site, "phase": unit.phase, "call": call or None})
    return rows


def make_parts(units: Sequence[Any], first_id: int = 1, *, together: bool = True) -> list[Part]:
    """The parts of a step, in the order of their first launch.

    Args:
        units: The step's units.
        first_id: Id of the first part; the others follow.
        together: Whether the same operator on the same shapes in equal layers is one part.
    """
    groups: dict[tuple[str, str, str, bool], list[Any]] = {}
    for unit in units:
        module = _NUMBER.sub("*", unit.module) if together else unit.module
        groups.setdefault((unit.op, unit.shapes, module, unit.backward), []).append(unit)
    return [
        Part(
            first_id + i,
            tuple(group),
            op,
            shapes,
            module if len({unit.module for unit in group}) > 1 else group[0].module,
            sum(unit.count for unit in group),
        )
        for i, ((op, shapes, module, _), group) in enumerate(groups.items())
    ]


def module_groups(parts: Sequence[Part], share: Mapping[int, float], most: int, first_id: int) -> list[Part]:
    """Modules to be removed as a whole, to hold the sum of their parts against.

    The largest modules that hold several parts, and leave enough of the step to be a step.

    Args:
        parts: All parts, none of them pooled.
        share: Rough share of each of the step's time, by id.
        most: How many at most.
        first_id: Id of the first.
    """
    within: dict[str, list[Part]] = {}
    for part in parts:
        path = part.module.split(".") if part.module else []
        for depth in range(1, len(path) + 1):
            within.setdefault(".".join(path[:depth]), []).append(part)
    sizes = {module: sum(share.get(part.id, 0.0) for part in inside) for module, inside in within.items()}
    fit = [m for m, inside in within.items() if len(inside) > 1 and _LEAST_GROUP <= sizes[m] <= _MOST_GROUP]
    distinct = {tuple(part.id for part in within[module]): module for module in fit}  # of equal ones the innermost
    chosen = sorted(distinct.values(), key=lambda module: -sizes[module])[:most]
    return [
        Part(
            first_id + i,
            tuple(unit for part in within[module] for unit in part.units),
            "",
            "",
            module,
            sum(part.count for part in within[module]),
        )
        for i, module in enumerate(chosen)
    ]


_LEAST_GROUP, _MOST_GROUP = 0.05, 0.6
