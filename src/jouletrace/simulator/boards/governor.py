"""The control loop that keeps a GPU under its power cap by lowering its clock."""

from __future__ import annotations

from collections import deque
from math import exp, sqrt

from jouletrace.simulator.boards.parameters import Parameters

CLOCK_STEP_MHZ = 15.0
_WINDOW_TICKS = 3
_DELAY_TICKS = 2


class Governor:
    """Integrates its delayed estimate of the excess power into a lower clock.

    Because of the delay a load that starts overshoots the cap for about 50 ms. Because of the error
    of its estimate power under a cap wanders by several per cent while the mean stays at the cap.

    Args:
        parameters: The GPU's.
        cap_w: The power limit; None for none.
        clock_max_mhz: Clock without a limit.
        clock_min_mhz: Lowest clock that it may set.
        noise: Scale of the error of its estimate.
    """

    def __init__(
        self, parameters: Parameters, cap_w: float | None, clock_max_mhz: float, clock_min_mhz: float, noise: float
    ) -> None:
        self.clock_mhz = clock_max_mhz
        self.tick_s = parameters.governor_s
        self._gain = parameters.governor_gain
        self._cap_w = cap_w
        self._clock_max_mhz = clock_max_mhz
        self._lowest = clock_min_mhz / clock_max_mhz
        self._target = 1.0
        self._seen: deque[float] = deque([0.0] * (_WINDOW_TICKS + _DELAY_TICKS), maxlen=_WINDOW_TICKS + _DELAY_TICKS)
        self._error = 0.0
        self._keep = exp(-self.tick_s / parameters.governor_noise_s)
        self._dither = parameters.governor_dither * noise
        self._fresh = parameters.governor_noise * noise * sqrt(1 - self._keep**2)

    @property
    def ratio(self) -> float:
        """The clock over the highest one."""
        return self.clock_mhz / self._clock_max_mhz

    @property
    def holding(self) -> bool:
        """Whether the cap lowers the clock."""
        return self.clock_mhz < self._clock_max_mhz

    def tick(self, mean_w: float, normal: float, other_normal: float) -> None:
        """Set the clock after a tick of mean power ``mean_w``; the other arguments are standard normal draws."""
        if self._cap_w is None:
            return
        self._error = self._error * self._keep + self._fresh * normal
        self._seen.append(mean_w)
        believed = sum(list(self._seen)[:_WINDOW_TICKS]) / _WINDOW_TICKS / self._cap_w + self._error
        self._target = min(max(self._target + self._gain * (1 - believed), self._lowest), 1.0)
        if self._target < 1.0:
            ratio = min(max(self._target + self._dither * other_normal, self._lowest), 1.0)
            self.clock_mhz = round(ratio * self._clock_max_mhz / CLOCK_STEP_MHZ) * CLOCK_STEP_MHZ
        else:
            self.clock_mhz = self._clock_max_mhz
