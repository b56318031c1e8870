"""Constants of the estimator: what is believed of a load before its readings, with the ground of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from jouletrace.arrays import Floats


@dataclass(frozen=True)
class Prior:
    """Beliefs about power before any reading; sizes of swings are relative to a burst's power above idle."""

    level_w: float = 600.0  # standard deviation of a burst's power above idle: from idle to a GPU's limit
    known_idle_w: tuple[float, float] | None = None  # idle power and its standard deviation, if it was measured
    # The most that a GPU draws at rest: H100s and H200s with a context take 110 to 140 W. What a burst draws beyond it
    # may swing, where no readings show idle power beside it
    idle_w: float = 140.0
    idle_walk: float = 0.5  # W per square root of a second, by which idle power wanders with the die's temperature
    # Idle power after a burst, relative to the burst's height, and for how long: after bursts of 1 s at the limit it is
    # 10 W of 560 lower, -15 to 8, and a third of that 60 ms later (bursts-h200; an H100 alike)
    after: tuple[float, float] = (0.03, 0.1)
    # Swings faster than the readings: half-normal size (standard deviation; a load that is on for half of the time has
    # size 1), log-uniform period, share of loads without. Periods are from those that a sample resolves, from kernel to
    # kernel, to iterations: nine programs on an H100 and an H200 swing by 0.04 to 3.6 (median 0.23; 0.13 as samples see
    # it) below 3 ms, and by 0 to 0.29 (median 0.12) above
    swing: float = 1.0
    periods_s: tuple[float, float] = (0.0001, 0.06)
    steady: float = 0.2
    # Spectral densities of scatter over the squared power above idle, s: from none to a swing of all of it at 60 ms
    densities_s: tuple[float, ...] = (3e-7, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
    # Change of a burst's level: its size over 1 s, or the burst's length if that is shorter, spread evenly; a factor of
    # changes that a first look saw, where it saw them; weight
    slow: tuple[tuple[float, float, float], ...] = (
        (0.01, 0.0, 0.25),
        (0.01, 1.0, 0.25),
        (0.1, 0.0, 0.125),
        (0.1, 1.0, 0.125),
        (0.6, 0.0, 0.25),
    )
    # Programs with a timeline. Powers of kinds of kernels above idle, mean and standard deviation: 464 rows of 14 Runs
    # of H100s and H200s, weighed by energy, have 401 ± 241 W beyond their errors (products and convolutions
    # 511 ± 277 W, others 312 ± 147 W; one prior serves both)
    power_w: tuple[float, float] = (400.0, 250.0)
    # Relative spread of power between kernels of a kind, and the factor by which it is uncertain: ten recordings of
    # H100s and H200s have 0.018 to 0.056, median 0.028
    spread: tuple[float, float] = (0.03, 2.0)
    # Heads and tails of long kernels from the rest, over the mean power: 110 to 140 W in nine of these; repetitions in
    # place from their kernel: 51 pairs of eight recordings differ by 2 to 4 %
    ends: float = 0.33
    repeats: float = 0.035
    # Exponent of power in kernels' durations, which show the clock: 0 ± 5, where that of dynamic power is -2 to -3
    clock: float = 5.0
    # Whether power changes anywhere between readings: kernels show when it does, spans that someone named don't
    between: bool = False
    # Standard deviation of what idle power has more between iterations than in a pause. Six processes of one encoder on
    # an H100, with pauses of several lengths, show 0.2 W root mean square, each to ± 0.2 to 0.6 W; other programs and
    # GPUs may have watts, which no window shows where all wait alike
    excess_w: float = 2.2
    rest_w: float = 6.0  # idle power between kernels from that before and after: -3 to 9 W in recordings

    def base_w(self, values_w: Floats) -> float:
        """Idle power about which a chain is: as it was measured, else that of the first readings."""
        return float(np.median(values_w[:5])) if self.known_idle_w is None else self.known_idle_w[0]


MOVING = replace(
    Prior(),
    slow=((0.1, 0.0, 0.5), (0.6, 0.0, 0.5)),
    densities_s=(*Prior.densities_s[2:], 1e-2, 3e-2),
)
"""Of a load of many requests, whose power is many times its mean for some tens of ms and moves all the time. If changes
were placed where readings show them, readings at peaks would weigh more than those beside them: energies of 15 to 20 s
of a server (serving-rates-a-h200) were 0.2 to 1.9 % above the sum of their readings."""


class KnownSegments(NamedTuple):
    """Segments whose energies are those of their readings: no edge of a span or a burst is near."""

    segments_s: Floats  # starts and ends, disjoint, shape (m, 2)
    energies_j: Floats  # shape (m,)
    variance: Floats  # of each, J², shape (m,)
