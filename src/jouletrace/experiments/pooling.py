"""Parts that are changed together because one by one they are too small, or there are too many.

Small parts are pooled with their neighbours in the tree of modules: two operators of one module
before two of one block, those before two of different blocks. So a short experiment tells larger modules apart, each
removed as a whole, and a longer one smaller ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jouletrace.experiments.parts import JOINED_OP, POOLED_OP, Part


@dataclass(frozen=True)
class _Pool:
    size: float
    path: tuple[str, ...]
    """Phase, then the names of the modules around all of it, from the outermost."""
    parts: tuple[Part, ...]

    def depth(self, other: _Pool) -> int:
        """How much of their paths two have in common."""
        return len(_common(self.path, other.path))

    def preference(self, other: _Pool) -> tuple[int, bool, float]:
        """How gladly it is pooled with another: near ones first, then what is pooled already, then small ones."""
        return self.depth(other), len(other.parts) > 1, -other.size

    def with_(self, other: _Pool) -> _Pool:
        return _Pool(self.size + other.size, _common(self.path, other.path), self.parts + other.parts)


def pool_small(parts: Sequence[Part], share: Mapping[int, float], below: float, most: int) -> list[Part]:
    """The same parts, with small ones pooled with their neighbours.

    Args:
        parts: All parts.
        share: Rough share of the step of each that may be pooled, by id; a negative one counts by its size.
        below: Parts whose share is smaller than this are pooled.
        most: More are pooled, the smallest first, until no more parts than this remain, as far as they may be.

    Returns:
        The parts that remain, in order, pools last. A single small part is left as it is.
    """
    pools = [
        _Pool(abs(share[part.id]), (part.phase or "", *_path(part)), (part,))
        for part in parts
        if part.id in share and not part.members
    ]
    kept = len(parts) - len(pools)
    while True:
        many = kept + len(pools) > most
        small = [pool for pool in pools if many or pool.size < below or len(pool.parts) > 1]
        least = min(small, key=lambda pool: pool.size, default=None)
        if least is None or len(small) < 2 or not (many or least.size < below):
            break
        other = max((pool for pool in small if pool is not least), key=least.preference)
        pools = [pool for pool in pools if pool is not least and pool is not other]
        pools.append(least.with_(other))
    made = sorted((pool for pool in pools if len(pool.parts) > 1), key=lambda pool: _first(pool.parts))
    inside = {part.id for pool in made for part in pool.parts}
    next_id = 1 + max((part.id for part in parts), default=0)
    return [
        *(part for part in parts if part.id not in inside),
        *(
            _together(pool.parts, next_id + i, POOLED_OP, ".".join(name for name in pool.path[1:] if name))
            for i, pool in enumerate(made)
        ),
    ]


def joined(parts: Sequence[Part], id: int) -> Part:
    """One part of several that can only be changed together."""
    modules = {part.module for part in parts}
    return _together(parts, id, JOINED_OP, modules.pop() if len(modules) == 1 else "")


def by_phase(parts: Sequence[Part], first_id: int) -> list[Part]:
    """One part for each phase of an iteration; the parts as they are if some belong to none, or all to one."""
    phases: dict[str | None, list[Part]] = {}
    for part in parts:
        phases.setdefault(part.phase, []).append(part)
    if None in phases or len(phases) < 2:
        return list(parts)
    return [
        _together(inside, first_id + i, f"operators of {phase}", "") for i, (phase, inside) in enumerate(phases.items())
    ]


def _together(parts: Sequence[Part], id: int, op: str, module: str) -> Part:
    members = tuple(sorted(parts, key=lambda part: part.id))
    units = tuple(unit for part in members for unit in part.units)
    return Part(id, units, op, "", module, sum(part.count for part in members), members)


def _path(part: Part) -> tuple[str, ...]:
    return tuple(part.module.split(".")) if part.module else ()


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return one[:same]


def _first(parts: Sequence[Part]) -> int:
    return min(part.id for part in parts)
