"""Keeping all variants of a step below the power cap, so that they run at one clock.

Under a cap the clock follows the work: without an operator all others run faster. A pause in every
iteration lowers the mean power until the cap no longer acts on any variant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.experiments.arms import FRESH, REFERENCE, SLOPE, TOGETHER, Arm
from jouletrace.experiments.levels import Observed

CLOCK_TOLERANCE_MHZ = 15.0
"""How far apart the mean clocks of two arms may be that are compared at equal clocks."""

MARGIN = 1.07
"""By how much less than the cap allows a paced step may draw."""

FRACTIONS = (0.95, 0.91, 0.87, 0.82, 0.76)
"""Mean power over the cap to try, in turn: the loop that holds the cap acts on its own noisy view of power."""

UNTOUCHED_MHZ = 3.0
"""A mean clock this near the highest one is not held down."""

_HOT, _COOL = 1.4, 0.5
"""Power of what is added, and of what is taken away, over the step's: for the hottest variant that may be."""

LADDER = np.array([1.0, 1.08, 1.17, 1.26, 1.36, 1.47])
"""Pauses to choose from, over the least one."""

FURTHER = tuple(np.linspace(near, near + 0.15, 8) for near in (1.3, 1.5, 1.7))
"""Of the references that tell what a pause costs, over the reference's own: several, each from a range.

With three and its own, a straight line through them leaves two over. What they miss it by is what the sensor sees of
pauses with one period or another.
"""

_MOST_TRIED = 200
_HARMLESS = 2e-4

_PAUSE_W_SHARE = 0.5
"""A pause that draws more than this share of the step's power can't pace it."""


@dataclass(frozen=True)
class Trial:
    """A window of the reference with a pause in every iteration.

    Attributes:
        pause_s: The pause.
        energy_j, time_s: Per iteration, the pause included.
        clock_mhz: Mean clock; NaN where unknown.
    """

    pause_s: float
    energy_j: float
    time_s: float
    clock_mhz: float


@dataclass(frozen=True)
class Pace:
    """A step at the highest clock, and what a pause does to it.

    Attributes:
        cap_w: What the step draws while the cap holds it.
        step_j, step_s: Energy and time of an iteration without the cap.
        pause_w: What the pause draws.
        top_mhz: The highest clock.
    """

    cap_w: float
    step_j: float
    step_s: float
    pause_w: float
    top_mhz: float

    def pause_s(self, fraction: float, added: float = 0.0) -> float:
        """The pause that brings a variant's mean power to ``fraction`` of the cap; NaN if none does.

        Args:
            fraction: Mean power over the cap.
            added: Time that the variant adds, over the step's; negative if it takes some away.
        """
        aim_w = fraction * self.cap_w
        if self.pause_w >= aim_w:
            return math.nan
        energy_j = self.step_j * (1 + (_HOT if added > 0 else _COOL) * added)
        time_s = self.step_s * (1 + added)
        return max((energy_j - aim_w * time_s) / (aim_w - self.pause_w), 0.02 * self.step_s)


def cap_acts(plain: Trial, long: Trial) -> bool | None:
    """Whether a cap holds the clock of a step down; None where clocks aren't known.

    Args:
        plain: Without a pause.
        long: With a pause so long that no cap acts.
    """
    if not (math.isfinite(plain.clock_mhz) and math.isfinite(long.clock_mhz)):
        return None
    return plain.clock_mhz < long.clock_mhz - CLOCK_TOLERANCE_MHZ


def pace(plain: Trial, long: Trial, empty: Trial) -> Pace | None:
    """What a pause does; None where it draws so much that it can't lower the step's power.

    Args:
        plain: The step without a pause.
        long: With a pause so long that no cap acts.
        empty: A long pause and nothing else.
    """
    pause_w = empty.energy_j / empty.time_s
    step_s = long.time_s - long.pause_s
    step_j = long.energy_j - pause_w * long.pause_s
    if not 0 < pause_w < _PAUSE_W_SHARE * step_j / step_s:
        return None
    return Pace(plain.energy_j / plain.time_s, step_j, step_s, pause_w, long.clock_mhz)


def off_readings(step_s: float, pauses_s: NDArray[np.float64], window_s: float, period_s: float) -> float:
    """Of several pauses, one that doesn't beat with the sensor.

    A sensor whose readings are means over part of its period, or over somewhat more than it, sees the same
    phase of every iteration if iterations and readings come in step; a pause makes that matter, since power
    then swings by hundreds of watts in every iteration. What is left of the swing's harmonics
    after a window's readings have been averaged is smallest if the sensor's period holds no whole
    number of iterations, nor of halves or thirds of one.

    Args:
        step_s: Seconds of an iteration without the pause.
        pauses_s: What there is to choose from, ascending.
        window_s: Length of a window.
        period_s: Update period of the sensor.
    """
    beats = _beat(step_s + pauses_s, window_s, period_s)
    # The shortest that is nearly as good as the best: pauses dilute what is to be seen.
    return float(pauses_s[np.flatnonzero(beats <= 1.5 * beats.min() + _HARMLESS)[0]])


def _beat(iteration_s: NDArray[np.float64], window_s: float, period_s: float) -> NDArray[np.float64]:
    """How much of a swing in every iteration a window's mean may keep, relative to the swing."""
    readings = max(window_s / period_s, 1.0)
    total = np.zeros_like(iteration_s)
    for harmonic in (1, 2, 3):
        turns = harmonic * period_s / iteration_s
        off = np.abs(turns - np.round(turns))
        # Harmonics of a swing fall as 1/m; a boxcar as long as the period leaves 1/(π turns) of them.
        kept = 1 / harmonic / np.maximum(math.pi * turns, 1.0)
        total += kept / np.maximum(math.pi * readings * off, 1.0)
    return total


def whole_periods(iteration_s: float, window_s: float, period_s: float) -> int:
    """Iterations of a window about as long as wanted, or a little longer, that fills whole sensor periods.

    Over such a window the sensor sees every phase of an iteration equally often.
    """
    least = max(1, round(window_s / iteration_s))
    replays = np.arange(least, max(least, math.floor(1.15 * window_s / iteration_s)) + 1)[:_MOST_TRIED]
    periods = replays * iteration_s / period_s
    return int(replays[np.argmin(np.abs(periods - np.round(periods)))])


def clock_offsets(observed: Observed, paced: bool) -> dict[Arm, float]:
    """How far each variant's mean clock is from the reference's in the same stretches of time, in MHz.

    Those with a pause are meant to run at one clock: by the device's cycle counters where they were read. Others are
    told apart by what the driver tells, which a power cap moves; what a part's own power does to the counted clock is
    in its cost. Without a clock a variant is left out, and so are references with other pauses and parts removed two
    at a time, on which no part's cost rests.
    """
    kinds = [arm.kind in (REFERENCE, *FRESH) and arm.kind not in (SLOPE, TOGETHER) for arm in observed.arm]
    alike = np.array([arm.spin_ns > 0 for arm in observed.arm], bool) == paced
    rows = np.flatnonzero(np.array(kinds, bool) & alike)
    counted = paced and bool(np.isfinite(observed.counted_mhz[rows]).all())
    clock = observed.counted_mhz if counted else observed.clock_mhz
    found: dict[Arm, list[float]] = {}
    reference = np.array([arm.kind == REFERENCE for arm in observed.arm], bool)
    for stretch in np.unique(observed.stretches.number[rows]):
        mine = rows[(observed.stretches.number[rows] == stretch) & np.isfinite(clock[rows])]
        if reference[mine].any():
            usual = float(clock[mine[reference[mine]]].mean())
            for row in mine.tolist():
                found.setdefault(observed.arm[row], []).append(float(clock[row]) - usual)
    return {arm: float(np.mean(offsets)) for arm, offsets in found.items()}
