"""Kinds of kernels whose energies readings resolve together alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from jouletrace.attribution.activity import Kind
from jouletrace.run.division import Powers

Array = NDArray[np.float64]

SMALL = 0.01
"""Largest share of busy time without figures."""


def pools(
    powers: Powers, groups: Mapping[str, Array], near: Callable[[str], str] = lambda name: ""
) -> list[tuple[str, ...]]:
    """Names of groups whose energy the readings resolve, each alone or pooled with others; largest energy first.

    ``groups`` has the seconds of each kind in the recording, shape (kinds,). Unresolved groups of the same ``near``
    (operator, module; "" for none) become one row. What is still unresolved becomes one row too. If it takes more than
    ``SMALL`` of the time, it joins the shortest row with which it is resolved, or else that with which their sum is
    known best: short kernels in fixed order end in one row, whose energy is well known though theirs isn't. A rest
    below ``SMALL`` is in no row.
    """

    def sum_of(pool: list[str]) -> Array:
        return np.asarray(sum((groups[name] for name in pool), np.zeros(len(powers.watts))))

    def resolved(pool: list[str]) -> bool:
        return powers.resolves(sum_of(pool))

    def own_s(pool: list[str]) -> float:
        return float(sum_of(pool) @ powers.own)

    def relative(pool: list[str]) -> float:
        return powers.relative(sum_of([*pool, *rest]))

    alone = [[name] for name in groups if own_s([name]) > 0]
    good = [pool for pool in alone if resolved(pool)]
    families: dict[str, list[str]] = {}
    for (name,) in (pool for pool in alone if pool not in good):
        families.setdefault(near(name) or name, []).append(name)
    good += [family for family in families.values() if resolved(family)]
    rest = [name for family in families.values() if not resolved(family) for name in family]
    while rest and good and not resolved(rest) and own_s(rest) > SMALL * own_s(list(groups)):
        mine = {near(name) for name in rest} - {""}
        beside = [pool for pool in good if mine & {near(name) for name in pool}]
        near_or_any = beside or good
        enough = [pool for pool in near_or_any if resolved([*pool, *rest])]
        partner = min(enough, key=own_s) if enough else min(near_or_any, key=relative)
        good.remove(partner)
        rest = [*partner, *rest]
    if rest and resolved(rest):
        good.append(rest)
    good.sort(key=lambda pool: -float(sum_of(pool) @ powers.watts))
    return [tuple(name for name in groups if name in pool) for pool in good]


def by_operator(kind: Kind) -> str:
    """Groups kernels by operator, or by name where the operator is unknown."""
    return kind.operator or kind.name
