"""Stretches of time in which the board was one and the same.

An H100 has a second state: for two to seven seconds all that runs takes 0.6 % less time at 2 to 3 % more power,
variants and references alike, at the same reported clock; then all is as before. One board did so twice in 120 s,
another ten times in 80 s. No drift follows such steps. References tell: where two neighbours differ, something changed
between them, and it isn't known before or after which window. So each stretch has an offset of its own in the model,
and each of those windows too: they count for little, and what has no others has a wide interval and is measured again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.energy.quantiles import normal
from jouletrace.experiments.arms import REFERENCE, Arm

Floats = NDArray[np.float64]

_LEAST = 0.003
_SPREADS = 4.0
"""How far apart neighbouring references must be: relative, and in standard deviations of their usual differences."""

_USUAL = 0.35
_SD_OVER_USUAL = 1 / normal((1 + _USUAL) / 2)
"""Of a normal distribution, over that quantile of its absolute values: half of the differences may be changes."""

_FEWEST = 5
"""Differences that tell what is usual."""


@dataclass(frozen=True)
class Stretches:
    """Which stretch each window belongs to.

    Attributes:
        number: Of each window, shape (n,): a block is one, or several, and a window between two is one by itself.
        between: Which are, shape (n,).
    """

    number: NDArray[np.intp]
    between: NDArray[np.bool_]


def stretches(
    arm: Sequence[Arm], block: NDArray[np.int64], middle_s: Floats, time_s: Floats, energy_j: Floats
) -> Stretches:
    """Find them.

    Args:
        arm: Arm of each window, length n.
        block: Block of each, shape (n,).
        middle_s: Middle of each, shape (n,).
        time_s: Of an iteration in each, shape (n,).
        energy_j: The same, NaN where it isn't known.
    """
    number = np.unique(block, return_inverse=True)[1].astype(np.intp) * (len(arm) + 1)
    between = np.zeros(len(arm), bool)
    paced = np.array([a.spin_ns > 0 for a in arm], bool)
    reference = np.array([a.kind == REFERENCE for a in arm], bool)
    for alike in (paced, ~paced):
        # Where a cap acts, windows without a pause run at the power that its loop allows, which wanders, and an H100's
        # time goes with the square root of it.
        capped = alike is not paced and bool((paced & reference).any())
        costs = (np.sqrt(np.maximum(time_s * energy_j, 0.0)),) if capped else (time_s, energy_j)
        references = np.flatnonzero(alike & reference)
        references = references[np.lexsort((middle_s[references], block[references]))]
        before, after = references[:-1], references[1:]
        neighbours = block[before] == block[after]
        before, after = before[neighbours], after[neighbours]
        changed = np.zeros(len(before), bool)
        for cost in costs:
            known = np.log(np.where(cost > 0, cost, np.nan))
            changed |= _far(known[after] - known[before])
        for first, last in zip(before[changed], after[changed], strict=True):
            here = alike & (block == block[first])
            number += here & (middle_s >= middle_s[last])
            between |= here & (middle_s > middle_s[first]) & (middle_s < middle_s[last])
    number[between] = number.max(initial=0) + 1 + np.arange(np.count_nonzero(between))
    return Stretches(number, between)


def _far(difference: Floats) -> NDArray[np.bool_]:
    """Which differences between neighbours are no chance; none where they aren't known."""
    known = np.abs(difference[np.isfinite(difference)])
    if len(known) < _FEWEST:
        return np.zeros(len(difference), bool)
    limit = max(_LEAST, _SPREADS * _SD_OVER_USUAL * float(np.quantile(known, _USUAL)))
    return np.asarray(np.abs(np.nan_to_num(difference)) > limit)
