"""Parts that are changed together because one by one they are too small, or there are too many.

Small parts are pooled with their neighbours in the tree of modules: two operators of one module
before two of one block, those before two of different blocks. So a short experiment tells larger modules apart, each
removed as a whole, and a longer one smaller ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jouletrace.experiments.parts import JOINED_OP, POOLED_OP, Part

_PHASE_END = ":"


@dataclass(frozen=True)
class _Pool:
    size: float
    path: tuple[str, ...]
    """Everything, the phase, then qualified names of modules around all of it, each with the phase before it."""
    parts: tuple[Part, ...]

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
        _Pool(abs(share[part.id]), _path(part), (part,)) for part in parts if part.id in share and not part.members
    ]
    kept = len(parts) - len(pools)
    while True:
        many = kept + len(pools) > most
        small = [pool for pool in pools if many or pool.size < below or len(pool.parts) > 1]
        wanting = small if many else [pool for pool in small if pool.size < below]
        if not wanting or len(small) < 2:
            break
        one, other = _neighbours(wanting, small)
        pools = [pool for pool in pools if pool is not one and pool is not other]
        pools.append(one.with_(other))
    made = sorted((pool for pool in pools if len(pool.parts) > 1), key=lambda pool: _first(pool.parts))
    inside = {part.id for pool in made for part in pool.parts}
    next_id = 1 + max((part.id for part in parts), default=0)
    return [
        *(part for part in parts if part.id not in inside),
        *(
            _together(pool.parts, next_id + i, POOLED_OP, pool.path[-1].partition(_PHASE_END)[2])
            for i, pool in enumerate(made)
        ),
    ]


def _neighbours(wanting: Sequence[_Pool], small: Sequence[_Pool]) -> tuple[_Pool, _Pool]:
    """The smallest of those that want to be pooled, and whom with.

    Two are pooled that are nearest to each other: what has its like elsewhere waits until that is done, so that a norm
    at a model's end doesn't part the operators of a layer.
    """
    inside = Counter(name for pool in small for name in pool.path)
    family = {id(pool): next(name for name in reversed(pool.path) if inside[name] > 1) for pool in small}
    members = Counter(family.values())
    one = min(wanting, key=lambda pool: (members[family[id(pool)]] < 2, pool.size))
    around = family[id(one)]
    near = [pool for pool in small if pool is not one and around in pool.path]
    return one, min(near, key=lambda pool: (family[id(pool)] != around, len(pool.parts) < 2, pool.size))


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
    words = part.module.split(".") if part.module else []
    phase = (part.phase or "") + _PHASE_END
    return "", phase, *(phase + ".".join(words[:depth]) for depth in range(1, len(words) + 1))


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return one[:same]


def _first(parts: Sequence[Part]) -> int:
    return min(part.id for part in parts)
