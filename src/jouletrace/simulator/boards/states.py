"""The states of its own that a GPU jumps between, whatever runs: seconds in one, seconds in the other.

Seen on several H100s: from two seconds to half a minute all that runs takes 0.35 to 0.7 % less time at 1 to 3 % more
power, and the SMs' cycle counters show a clock 0.67 % higher (1974.2 or 1987.4 MHz), while the driver reports 1980 MHz
throughout. Why isn't known. Here two states have a real clock and a voltage each, over those that belong to the
governor's clock; time and power follow by the physics of any clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np


@dataclass(frozen=True, slots=True)
class State:
    """How a GPU runs.

    Attributes:
        clock: Its real clock over the governor's, which is what the driver reports.
        voltage_squared: Square of the core's voltage over that at the governor's clock.
    """

    clock: float = 1.0
    voltage_squared: float = 1.0


STATES = (State(), State(1.0067, 1.009**2))
"""The lower and the upper one; in proportion to its clock the voltage would make for less power than was seen."""


class States:
    """Which state a GPU is in.

    Args:
        mean_s: Mean time that it stays in one, distributed exponentially; None for a GPU that stays in the lower.
        start_ns: From when on, in nanoseconds since the Unix epoch; it begins in either.
        rng: Source of its times.
    """

    def __init__(self, mean_s: float | None, start_ns: int, rng: np.random.Generator) -> None:
        self._mean_s = mean_s
        self._rng = rng
        self._index = 0 if mean_s is None else int(rng.integers(len(STATES)))
        self._until_ns = start_ns + self._stay_ns()

    def at(self, time_ns: int) -> int:
        """Index in ``STATES`` of the state at a time, not before that of the last call."""
        while time_ns >= self._until_ns:
            self._index = 1 - self._index
            self._until_ns += self._stay_ns()
        return self._index

    def _stay_ns(self) -> float:
        return inf if self._mean_s is None else round(self._rng.exponential(self._mean_s) * 1e9)
