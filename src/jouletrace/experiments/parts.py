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
GAPS_NAME = "launch and gaps"
"""Name of the unit for what is left of a step without any of its parts."""


@dataclass(frozen=True)
class Part:
    """Units that are changed together.

    Attributes:
        id: Its id in the ``units`` and ``windows`` tables.
        units: The step's units, at least one; opaque keys of ``variant``.
        op: Operator; ``POOLED_OP`` of a pool.
        shapes: Input shapes and types; "" of a pool.
        module: Qualified name of the module, with "*" for the number of a layer; "" of a pool.
        count: Launches in an iteration.
        members: The parts in a pool, each below what could be resolved; empty if it is none.
    """

    id: int
    units: tuple[Any, ...]
    op: str
    shapes: str
    module: str
    count: int
    members: tuple[Part, ...] = ()

    def changes(self, multiplicity: int) -> dict[Any, int]:
        """What to hand to ``variant``."""
        return dict.fromkeys(self.units, multiplicity)

    def rows(self, parent: int | None = None) -> list[dict[str, object]]:
        """Its rows of the ``units`` table: one, and one for each of a pool's members."""
        row: dict[str, object] = {
            "id": self.id,
            "parent": parent,
            "level": "op",
            "name": f"{self.op} ({len(self.members)})" if self.members else self.op,
            "op": None if self.members else self.op,
            "shapes": self.shapes or None,
            "module": self.module or None,
            "count": self.count,
        }
        return [row, *(inner for member in self.members for inner in member.rows(self.id))]


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


def pool_small(parts: Sequence[Part], share: Mapping[int, float], below: float, most: int) -> list[Part]:
    """The same parts, with the smallest of them pooled into one.

    Args:
        parts: All parts.
        share: Rough share of the step of each that may be pooled, by id; a negative one counts by its size.
        below: Parts whose share is smaller than this are pooled.
        most: The smallest are pooled until no more parts than this remain, as far as they may be.

    Returns:
        The parts that remain, in order, the pool last. A single small part is left as it is.
    """
    ranked = sorted((part for part in parts if part.id in share), key=lambda part: abs(share[part.id]))
    small = sum(abs(share[part.id]) < below for part in ranked)
    if len(parts) > most:
        small = min(max(small, len(parts) - most + 1), len(ranked))
    if small < 2:
        return list(parts)
    out = {part.id for part in ranked[:small]}
    members = tuple(part for part in parts if part.id in out)
    units = tuple(unit for part in members for unit in part.units)
    pool = Part(max(part.id for part in parts) + 1, units, POOLED_OP, "", "", sum(p.count for p in members), members)
    return [*(part for part in parts if part.id not in out), pool]
