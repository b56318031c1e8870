"""Leaves of two sides that do the same, in groups: those that agree in all first, then those that agree in ever less.

A group is many to many: an attention in one kernel is replaced by two products, a softmax and copies. No leaf is left
out: what nothing matches is a group of one side.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from jouletrace.comparing.leaves import Leaf

SAME, SHAPES, OPERATOR, FUSED = "same", "other shapes", "other operator", "fused"
REPLACED, NEW, GONE, IDLE = "replaced", "only in B", "only in A", "idle"
"""How the two sides of a group correspond."""

_WHOLE_ROLES = ("product", "convolution", "attention")
"""Roles whose number format distinguishes them where nothing else does."""


@dataclass(frozen=True, eq=False)
class MatchedLeaves:
    """Leaves of A and of B that do the same, and how they correspond; one side may have none."""

    how: str
    a: Sequence[Leaf]
    b: Sequence[Leaf]


Key = Callable[[Leaf], Hashable | None]
"""What leaves of both sides must share; None for one that isn't matched so."""


def _itself(leaf: Leaf) -> Hashable:
    where = (leaf.op, leaf.shapes) if leaf.op else ("", leaf.kernel)
    return (leaf.phase, leaf.module, *where)


def _operator(leaf: Leaf) -> Hashable | None:
    return (leaf.phase, leaf.module, leaf.op) if leaf.op else None


def _role(leaf: Leaf) -> Hashable | None:
    return (leaf.module, leaf.role) if leaf.module else None


_BY_PLACE: tuple[tuple[str, Key], ...] = (
    (SAME, _itself),
    (SHAPES, _operator),
    (OPERATOR, _role),
    (REPLACED, lambda leaf: leaf.module if "." in leaf.module else None),  # the outermost holds all that is left
)
_BY_NAME: tuple[tuple[str, Key], ...] = (
    (SAME, lambda leaf: leaf.kernel or None),
    (OPERATOR, lambda leaf: (leaf.role, leaf.format)),
    (OPERATOR, lambda leaf: (leaf.role, leaf.format if leaf.role in _WHOLE_ROLES else "")),
)
"""Before wider modules where a side has none, as compiled code, and of what these leave: modules may be renamed."""

_LAST: tuple[tuple[str, Key], ...] = ((OPERATOR, lambda leaf: leaf.role if leaf.role in _WHOLE_ROLES else None),)
"""What is left then does the same in another number format."""


def match(a: Iterable[Leaf], b: Iterable[Leaf]) -> list[MatchedLeaves]:
    """Groups of leaves that correspond, those of one side only, and those without a kernel by name."""
    left = [[leaf for leaf in side if not leaf.idle] for side in (a, b)]
    idle = [[leaf for leaf in side if leaf.idle] for side in (a, b)]
    groups: list[MatchedLeaves] = []

    def take(matches: list[MatchedLeaves]) -> None:
        groups.extend(matches)
        left[0] = _without(left[0], (leaf for group in matches for leaf in group.a))
        left[1] = _without(left[1], (leaf for group in matches for leaf in group.b))

    def by(how: str, key: Key) -> None:
        of_a, of_b = _keyed(left[0], key), _keyed(left[1], key)
        take([MatchedLeaves(how, some, of_b[key]) for key, some in of_a.items() if key in of_b])

    without = any(side and not any("." in leaf.module for leaf in side) for side in left)
    for how, key in (*_BY_PLACE[:3], *(_BY_NAME if without else _BY_PLACE[3:])):
        by(how, key)
    groups = [_with_fused(group, left) for group in groups]
    for depth in range(max((len(leaf.module.split(".")) for side in left for leaf in side), default=0), 0, -1):
        by(REPLACED, partial(_around, depth))
    if without and all(left) and all(some := _in_each_layer(left)):
        take([MatchedLeaves(REPLACED, *some)])
    for how, key in (*_BY_NAME, *_LAST):
        by(how, key)
    for n, how in enumerate((GONE, NEW)):
        alone = _keyed(left[n], lambda leaf: (leaf.module or leaf.role, leaf.op or leaf.kernel))
        groups += [MatchedLeaves(how, [], some) if n else MatchedLeaves(how, some, []) for some in alone.values()]
    names = dict.fromkeys(leaf.op for side in idle for leaf in side)
    return [*groups, *(MatchedLeaves(IDLE, *([x for x in side if x.op == name] for side in idle)) for name in names)]


def _around(depth: int, leaf: Leaf) -> Hashable | None:
    """The module of so many words around a leaf, if it is in one."""
    words = leaf.module.split(".")[:depth]
    return tuple(words) if leaf.module and len(words) == depth else None


def _without(leaves: Iterable[Leaf], taken: Iterable[Leaf]) -> list[Leaf]:
    gone = set(map(id, taken))
    return [leaf for leaf in leaves if id(leaf) not in gone]


def _keyed(leaves: Iterable[Leaf], key: Key) -> dict[Hashable, list[Leaf]]:
    by_key = defaultdict[Hashable, list[Leaf]](list)
    for leaf in leaves:
        if (key_of := key(leaf)) is not None:
            by_key[key_of].append(leaf)
    return by_key


def _with_fused(group: MatchedLeaves, left: list[list[Leaf]]) -> MatchedLeaves:
    """A group with the operators that a fused kernel of its other side holds beside its own; ``left`` loses these."""
    sides = [list(group.a), list(group.b)]
    for n, other in enumerate((group.b, group.a)):
        made = [leaf for leaf in other if leaf.kernel.startswith("triton")]
        stated = {op for leaf in made for op in leaf.op.split("+")}
        names = " ".join(leaf.kernel for leaf in made if not leaf.op)  # as in Runs of older versions
        joined = [leaf for leaf in left[n] if leaf.op and (leaf.op in stated or f"_{leaf.op}_" in names)]
        if joined and sum(leaf.count for leaf in joined) <= 2 * sum(leaf.count for leaf in other):
            sides[n] += joined
            left[n] = _without(left[n], joined)
            group = MatchedLeaves(FUSED, *sides)
    return group


def _in_each_layer(left: Sequence[Sequence[Leaf]]) -> list[list[Leaf]]:
    """What is left on both sides and runs as often as most of that of A, or a multiple of it: once in each layer."""
    often = Counter(round(leaf.count) for leaf in left[0]).most_common(1)[0][0]
    if often < 2:
        return [[], []]
    return [[leaf for leaf in side if round(leaf.count) % often == 0] for side in left]
