"""Windows in which the board itself ran at another speed.

On an H100 all that ran within two or three seconds took 0.7 % less time at 3 % more power, variants and references
alike, at the same reported clock, twice in 120 s; then all was as before. No drift follows such a step.
References tell: where one is off, so may be all up to the nearest references that aren't.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from jouletrace.energy.quantiles import SD_OVER_MAD
from jouletrace.experiments.arms import NULL, REFERENCE, STEP, Arm

Floats = NDArray[np.float64]

_LEAST = 0.003
_SPREADS = 6.0
"""How far off a reference's time must be: relative, and in robust standard deviations of all of them."""

_FEWEST = 3
"""References in a block that tell what is usual in it: captures may be slower as a whole in one than in another."""


def unsteady(arm: Sequence[Arm], block: NDArray[np.int64], middle_s: Floats, time_s: Floats) -> NDArray[np.bool_]:
    """Which windows to leave out.

    Args:
        arm: Arm of each window, length n.
        block: Block of each, shape (n,).
        middle_s: Middle of each, shape (n,).
        time_s: Seconds of an iteration in each, shape (n,).
    """
    paced = np.array([a.spin_ns > 0 for a in arm], bool)
    unchanged = np.array([a.kind in (REFERENCE, NULL, STEP) for a in arm], bool) & (time_s > 0)
    out = np.zeros(len(arm), bool)
    # Where a cap acts, windows without a pause run at the speed that its loop allows, which wanders.
    for alike in (paced,) if paced.any() else (~paced,):
        blocks = [np.flatnonzero(alike & (block == number)) for number in np.unique(block[alike])]
        told = [rows for rows in blocks if np.count_nonzero(unchanged[rows]) >= _FEWEST]
        off = [_off(time_s[rows[unchanged[rows]]]) for rows in told]
        limit = max(_LEAST, _SPREADS * SD_OVER_MAD * float(np.median(np.abs(np.concatenate(off))))) if off else np.inf
        for rows, by in zip(told, off, strict=True):
            out[rows] = _beside(middle_s[rows], middle_s[rows[unchanged[rows]]], np.abs(by) > limit)
    return out


def _off(time_s: Floats) -> Floats:
    """By how much the references of a block miss what is usual in it, relative."""
    return np.asarray(np.log(time_s / np.median(time_s)), np.float64)


def _beside(middle_s: Floats, reference_s: Floats, bad: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which windows lie between the good references next to a bad one."""
    order = np.argsort(reference_s)
    edges = np.concatenate([[-np.inf], reference_s[order], [np.inf]])
    out = np.zeros(len(middle_s), bool)
    for i in np.flatnonzero(bad[order]):
        out |= (middle_s > edges[i]) & (middle_s < edges[i + 2])
    return out
