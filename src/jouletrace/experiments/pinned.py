"""Less noise under a power cap: windows are brought to the cap's own power.

The loop that holds a cap wanders: in one window the board runs a little faster and draws a little more
than in the next, and energy and time per iteration move with it. But on average every step
that is held down draws the same power, the cap. So how far a window's mean power was from that is
noise that can be seen, and a regression on it takes it out: on simulated boards the spread
of half-second windows falls from 0.7 % to 0.1 %. (A classic: analysis of covariance, with a covariate
that the treatment doesn't touch.)

A variant that falls below the cap has a power of its own: its windows are left as they are. If held
variants differ in mean power by more than chance, that difference enters their intervals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from jouletrace.experiments.arms import FRESH, REFERENCE, STEP, Arm

Floats = NDArray[np.float64]

_HELD = 0.95
"""Mean clock over the highest one below which an arm is held by the cap in all of its windows."""

_CHANCE = 0.05


@dataclass(frozen=True)
class Pinned:
    """The covariate of windows under a cap.

    Attributes:
        excess: Logarithm of each window's mean power over that of all held windows; 0 of windows that
            aren't held, shape (windows,).
        arms: The held arms.
        variance: By how much held arms' mean powers differ beyond chance, as a variance of ``excess``.
    """

    excess: Floats
    arms: frozenset[Arm]
    variance: float


def pin(arm: list[Arm], power_w: Floats, clock_mhz: Floats) -> Pinned:
    """The covariate, from windows some of which have a pause that keeps them from the cap.

    Args:
        arm: Arm of each window.
        power_w: Mean power of each, NaN where unknown, shape (windows,).
        clock_mhz: Mean clock of each, NaN where unknown, shape (windows,).
    """
    nothing = Pinned(np.zeros(len(arm)), frozenset(), 0.0)
    free = [clock for a, clock in zip(arm, clock_mhz, strict=True) if a.kind == REFERENCE and a.spin_ns]
    if not free or not np.isfinite(free).any():
        return nothing
    limit_mhz = _HELD * float(np.nanmean(free))
    plain = [a for a in dict.fromkeys(arm) if a.kind in (REFERENCE, STEP, *FRESH) and not a.spin_ns]
    rows = {a: np.flatnonzero([other == a for other in arm]) for a in plain}
    rows = {a: r[np.isfinite(power_w[r]) & (power_w[r] > 0)] for a, r in rows.items()}
    held = {a: r for a, r in rows.items() if len(r) and np.nanmean(clock_mhz[r]) < limit_mhz}
    if len(held) < 2:
        return nothing
    logs = {a: np.log(power_w[r]) for a, r in held.items()}
    means = np.array([values.mean() for values in logs.values()])
    count = np.array([len(values) for values in logs.values()])
    free_windows = int(count.sum()) - len(count)
    if free_windows < 2:
        return nothing
    noise = sum(float(((values - values.mean()) ** 2).sum()) for values in logs.values()) / free_windows
    centre = float(count @ means / count.sum())
    # Analysis of variance: do the arms' means differ by more than chance, and if so, by how much?
    arms = len(count) - 1
    spread = float(count @ (means - centre) ** 2)
    differ = noise > 0 and fdtrc(arms, free_windows, spread / arms / noise) < _CHANCE
    excess = (spread - arms * noise) / float(count.sum() - count @ count / count.sum())
    between = max(excess, 0.0) if differ else 0.0
    covariate = np.zeros(len(arm))
    for a, r in held.items():
        covariate[r] = logs[a] - centre
    return Pinned(covariate, frozenset(held), between)
