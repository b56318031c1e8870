"""Powers of kinds of kernels by a fit, with their covariance; and what the readings can't distinguish."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from jouletrace.attribution.activity import Kind
from jouletrace.attribution.fit import Fit
from jouletrace.run.division import Powers

Array = NDArray[np.float64]

PRIOR_SHARE = 0.25
"""Largest standard deviation of a row with figures over the prior's: readings determine it, not the prior."""

SMALL = 0.01
"""Largest share of busy time without figures."""

_LEAST = 1e-12
"""Least eigenvalue of a correlation of powers, which kinds that always run at once would make 0."""


def powers_of_kinds(fit: Fit, total_s: Array, most_w: float) -> tuple[Powers, dict[int, int]]:
    """Powers of kinds of kernels but repeats, and the place of each kind in them; idle is last.

    A kernel's energy is the power of its kind times its time, corrected for the clock; kernels that run at the same
    time share the power equally. So the rows of any grouping add up to the whole, less the energy of repeats.

    Args:
        fit: The regression.
        total_s: Time that the kernels of each kind took, shape (kinds,); energies are of times in proportion to it.
        most_w: None of them draws more.
    """
    activity = fit.activity
    length = activity.end_s - activity.start_s
    above = (fit.power_w[:-1] - fit.power_w[-1])[activity.column]
    slow = np.bincount(activity.column, above * activity.slowness * length, len(activity.members))
    weights = np.zeros((len(activity.kinds) + 1, len(activity.members) + 2))
    weights[-1, -2] = 1.0
    overlapped = np.zeros(len(weights))
    for k, members in enumerate(activity.members):
        for member in members:
            weights[member, k] += activity.seconds[k] / len(members)
            weights[member, -1] += slow[k] / len(members)
            overlapped[member] += activity.seconds[k] / len(members) * (len(members) > 1)
    ran = weights[:-1, :-1].any(axis=1) & (total_s > 0)
    kinds = [i for i, kind in enumerate(activity.kinds) if ran[i] and not kind.repeat]
    weights = weights[[*kinds, -1]] / np.append(total_s[kinds], 1.0)[:, None]

    def of_kinds(covariance: Array) -> Array:
        return np.asarray(weights @ covariance @ weights.T)

    prior, root = of_kinds(fit.prior_covariance), _root(of_kinds(fit.covariance))
    prior_w, white = np.sqrt(np.diag(prior)), np.linalg.inv(root)
    powers = Powers(
        watts=weights @ np.append(fit.power_w, fit.clock_exponent),
        own=weights[:, :-1].sum(axis=1),
        overlapped=np.append(overlapped[kinds] / total_s[kinds], 0.0),
        most_w=np.full(len(weights), most_w),
        prior_w=prior_w,
        tracing_w=np.zeros(len(weights)),
        readings=len(fit.watts),
        coverage=fit.errors95,
        root=root,
        causes={name: white @ of_kinds(one) @ white.T for name, one in fit.covariances.items()},
        gained=(PRIOR_SHARE**2 * prior - of_kinds(fit.design_covariance)) / np.outer(prior_w, prior_w),
    )
    return powers, {kind: place for place, kind in enumerate(kinds)}


def _root(covariance: Array) -> Array:
    """A lower triangle whose product with its transpose is this covariance."""
    scale = np.sqrt(np.diag(covariance))
    scale[scale == 0] = 1.0
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    triangle = np.asarray(np.linalg.qr((vectors * np.sqrt(np.maximum(values, _LEAST))).T, mode="r"))
    return np.asarray(scale[:, None] * triangle.T)


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
