"""States that a GPU switches between by itself every few seconds, whatever runs.

Several H100s show them: for two seconds to half a minute everything takes 0.35 to 0.7 % less time at 1 to 3 % more
power, and the SMs' cycle counters show a clock 0.67 % higher (1974.2 or 1987.4 MHz), while the driver reports 1980 MHz
throughout. The cause is unknown. Each of the two states here has a real clock and a voltage, relative to those of the
governor's clock; time and power follow from them as from any clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np


@dataclass(frozen=True, slots=True)
class State:
    """A state of a GPU.

    Attributes:
        clock: Its real clock over the governor's clock, which the driver reports.
        voltage_squared: Square of the core's voltage over that at the governor's clock.
    """

    clock: float = 1.0
    voltage_squared: float = 1.0


STATES = (State(), State(1.0067, 1.009**2))
"""The lower and the upper state; a voltage in proportion to the clock would give less power than was measured."""


class States:
    """The state of a GPU over time.

    Args:
        mean_s: Mean of the exponentially distributed time in a state; None for a GPU that stays in the lower one.
        start_ns: Start in nanoseconds since the Unix epoch; the first state is drawn at random.
        rng: Source of its times.
    """

    def __init__(self, mean_s: float | None, start_ns: int, rng: np.random.Generator) -> None:
        self._mean_s = mean_s
        self._rng = rng
        self._index = 0 if mean_s is None else int(rng.integers(len(STATES)))
        self._until_ns = start_ns + self._stay_ns()

    def at(self, time_ns: int) -> int:
        """Index in ``STATES`` of the state at a time, which must not lie before that of the last call."""
        while time_ns >= self._until_ns:
            self._index = 1 - self._index
            self._until_ns += self._stay_ns()
        return self._index

    def _stay_ns(self) -> float:
        return inf if self._mean_s is None else round(self._rng.exponential(self._mean_s) * 1e9)
