"""Stretches of time in which the board was one and the same.

An H100 that reports one clock runs at several: from two seconds to half a minute all that runs takes 0.35 to 0.7 %
less time at 1 to 3 % more power, variants and references alike, then all is as before. The SMs' cycle counters tell
such states apart, 12 to 14 MHz within 0.1 MHz or so (docs/results/clocks-h100.md), time and energy alone the larger
ones. No drift follows such steps. References tell: where two neighbours differ, something changed
between them. So each stretch has an offset of its own in the model. Of a window between the two the
counters say in which it lies, or it has an offset to itself: it counts for little then, and what has no others has a
wide interval and is measured again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from jouletrace.energy.quantiles import normal
from jouletrace.experiments.arms import DETACH, NULL, REFERENCE, STEP, Arm

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

_LEAST, _LEAST_COUNTED = 0.003, 0.0005
"""How far apart neighbouring references must be, relative, in cost and by the cycle counters."""

_SPREADS = 4.0
"""The same in standard deviations of their usual differences."""

_USUAL = 0.35
_SD_OVER_USUAL = 1 / normal((1 + _USUAL) / 2)
"""Of a normal distribution, over that quantile of its absolute values: half of the differences may be changes."""

_FEWEST = 5
"""Differences that tell what is usual."""

_ALIKE = (NULL, STEP, DETACH)
"""Kinds of arms that run at the reference's clock, as they do the same work."""

_KNOWN, _UNKNOWN = 2e-4, 2.5e-3
"""How well an arm's clock is known against the reference's: of one seen beside it, and of any other."""

_ASTRAY = 0.0015
"""How far a window's clock may be from what it should be in its stretch; relative."""

_NEAR = 0.25
"""How near a window's clock must be to that before a change, or after it, over the change."""


@dataclass(frozen=True)
class Stretches:
    """Which stretch each window belongs to.

    Attributes:
        number: Of each window, shape (n,): a block is one, or several, and a window between two is one by itself.
        between: Which are, shape (n,).
    """

    number: Indices
    between: NDArray[np.bool_]


def stretches(
    arm: Sequence[Arm],
    block: NDArray[np.int64],
    middle_s: Floats,
    time_s: Floats,
    energy_j: Floats,
    counted_mhz: Floats,
) -> Stretches:
    """Find them.

    Args:
        arm: Arm of each window, length n.
        block: Block of each, shape (n,).
        middle_s: Middle of each, shape (n,).
        time_s: Of an iteration in each, shape (n,).
        energy_j: The same, NaN where it isn't known.
        counted_mhz: Mean clock of each by the cycle counters, NaN where they weren't read, shape (n,).
    """
    seen = _Seen(arm, block, middle_s, _log(counted_mhz))
    number = np.unique(block, return_inverse=True)[1].astype(np.intp) * (len(arm) + 1)
    between = np.zeros(len(arm), bool)
    paced = np.array([a.spin_ns > 0 for a in arm], bool)
    for alike in (paced, ~paced):
        # Where a cap acts, windows without a pause run at the power that its loop allows, which wanders, and an H100's
        # time goes with the square root of it.
        capped = alike is not paced and bool((paced & seen.reference).any())
        counted = not capped and bool(np.isfinite(seen.clock[alike & seen.reference]).all())
        wander = np.sqrt(np.maximum(time_s * energy_j, 0.0))
        costs = [seen.clock] if counted else [_log(wander)] if capped else [_log(time_s), _log(energy_j)]
        changes = _changes(seen, alike, costs, _LEAST_COUNTED if counted else _LEAST)
        for first, last in changes:
            number += alike & (block == block[first]) & (middle_s >= middle_s[last])
            between |= alike & seen.inside(first, last)
        if counted:
            _place(seen, alike, changes, number, between)
    number[between] = number.max(initial=0) + 1 + np.arange(np.count_nonzero(between))
    return Stretches(number, between)


@dataclass(frozen=True)
class _Seen:
    """What is known of windows: arm, block, middle, and logarithm of the counted clock."""

    arm: Sequence[Arm]
    block: NDArray[np.int64]
    middle_s: Floats
    clock: Floats

    @cached_property
    def reference(self) -> NDArray[np.bool_]:
        return np.array([a.kind == REFERENCE for a in self.arm], bool)

    def inside(self, first: int, last: int) -> NDArray[np.bool_]:
        """Windows between two of a block."""
        after, before = self.middle_s > self.middle_s[first], self.middle_s < self.middle_s[last]
        return np.asarray((self.block == self.block[first]) & after & before)


def _changes(seen: _Seen, alike: NDArray[np.bool_], costs: Sequence[Floats], least: float) -> list[tuple[int, int]]:
    """Neighbouring references that differ."""
    references = np.flatnonzero(alike & seen.reference)
    references = references[np.lexsort((seen.middle_s[references], seen.block[references]))]
    before, after = references[:-1], references[1:]
    neighbours = seen.block[before] == seen.block[after]
    before, after = before[neighbours], after[neighbours]
    changed = np.zeros(len(before), bool)
    for cost in costs:
        changed |= _far(cost[after] - cost[before], least)
    return [(int(first), int(last)) for first, last in zip(before[changed], after[changed], strict=True)]


def _far(difference: Floats, least: float) -> NDArray[np.bool_]:
    """Which differences between neighbours are no chance; none where they aren't known."""
    if np.count_nonzero(np.isfinite(difference)) < _FEWEST:
        return np.zeros(len(difference), bool)
    return np.asarray(np.abs(np.nan_to_num(difference)) > _limit(difference, least))


def _limit(difference: Floats, least: float) -> float:
    """From where on one is no chance, by how large most of them are."""
    known = np.abs(difference[np.isfinite(difference)])
    return max(least, _SPREADS * _SD_OVER_USUAL * float(np.quantile(known, _USUAL))) if len(known) else least


def _place(
    seen: _Seen,
    alike: NDArray[np.bool_],
    changes: Sequence[tuple[int, int]],
    number: Indices,
    between: NDArray[np.bool_],
) -> None:
    """Give windows between two stretches to that in which their clock says they lie; in place.

    And take those out of a stretch that ran at another clock: the board may have gone and come back between two
    references that agree.
    """
    rows = np.flatnonzero(alike & ~between & np.isfinite(seen.clock))
    usual, offsets = _offsets(seen, number, rows)
    # Of two that differ the smaller: one of them was run in another state.
    offset = {arm: sorted(some, key=abs)[(len(some) - 1) // 2] for arm, some in offsets.items()}
    for first, last in changes:
        change = seen.clock[last] - seen.clock[first]
        for row in np.flatnonzero(alike & between & seen.inside(first, last)).tolist():
            arm = seen.arm[row]
            # A single window that is far off may have been run in another state.
            alone = len(offsets.get(arm, [])) == 1 and abs(offset[arm]) > abs(change) / 2
            doubt = _KNOWN if (arm in offset and not alone) or arm.kind in _ALIKE else _UNKNOWN
            moved = (seen.clock[row] - offset.get(arm, 0.0) - seen.clock[first]) / change
            if doubt < _NEAR * abs(change) and min(abs(moved), abs(moved - 1)) < _NEAR:
                between[row] = False
                number[row] = number[last] if moved > 0.5 else number[first]
    wander = [seen.clock[row] - usual[number[row]] for row in rows.tolist() if seen.reference[row]]
    limit = _limit(np.array(wander), _ASTRAY)
    for row in rows.tolist():
        arm, stretch = seen.arm[row], number[row]
        if stretch in usual and (arm in offset or arm.kind in _ALIKE):
            between[row] = abs(seen.clock[row] - usual[stretch] - offset.get(arm, 0.0)) > limit


def _offsets(seen: _Seen, number: Indices, rows: Indices) -> tuple[dict[int, float], dict[Arm, list[float]]]:
    """Clock of the references of each stretch, and by how much each window of other arms is off them; logarithms."""
    usual = {
        int(stretch): float(np.median(seen.clock[mine]))
        for stretch in np.unique(number[rows])
        if len(mine := rows[(number[rows] == stretch) & seen.reference[rows]])
    }
    found: dict[Arm, list[float]] = {}
    for row in rows.tolist():
        if number[row] in usual and seen.arm[row].kind not in _ALIKE:
            found.setdefault(seen.arm[row], []).append(float(seen.clock[row]) - usual[number[row]])
    return usual, found


def _log(values: Floats) -> Floats:
    return np.log(np.where(values > 0, values, np.nan))
