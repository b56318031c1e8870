"""The energy counter: a true integral, but slow to read and updated only about every 100 ms."""

from __future__ import annotations

from typing import Any

from jouletrace.devices.base import Clock, Samples
from jouletrace.devices.nvml.api import Nvml, Unavailable
from jouletrace.devices.samples import one_sample
from jouletrace.run import ChannelInfo
from jouletrace.run.channels import GAIN_PCT

SOURCE = "nvmlDeviceGetTotalEnergyConsumption"
CHANNEL = "energy_counter_j"

_REST_S = 5.0
_LOCATE_S = 0.025
_LOCATE_READS = 10


def read_counter(nvml: Nvml, handle: Any) -> float:
    """Joules since the driver was loaded.

    Raises:
        Unavailable, NotPossibleError: As ``Nvml.call``.
    """
    return float(nvml.call(SOURCE, handle)) / 1e3


class EnergyCounter:
    """Reads the counter in short bursts, each until the counter steps, with pauses of seconds in between.

    A reading at an unknown point between two steps is off by up to 100 ms of power. Two readings 25 ms apart on
    both sides of a step bound the time at which the counter took its value. More frequent reads aren't worth their
    cost: a read keeps a core busy for 3 ms. ``interval_s`` contains the pause and changes after each poll. A poll
    before the end of a pause (at the end of a recording) begins a burst too.
    """

    def __init__(self, nvml: Nvml, handle: Any, device: str, clock: Clock) -> None:
        self.interval_s = _LOCATE_S
        self.channels: tuple[ChannelInfo, ...] = (
            ChannelInfo(
                device=device,
                name=CHANNEL,
                unit="J",
                source=SOURCE,
                period_s=0.1,
                window_s=0.0,
                gapless=True,
                gain_pct=GAIN_PCT,
            ),
        )
        self._nvml = nvml
        self._handle = handle
        self._clock = clock
        self._previous: float | None = None
        self._reads = 0

    def poll(self) -> list[Samples]:
        """One reading.

        Raises:
            NotPossibleError: If the GPU is gone.
        """
        before = self._clock.time_ns()
        try:
            value = read_counter(self._nvml, self._handle)
        except Unavailable:
            return []
        stamp = (before + self._clock.time_ns()) // 2
        stepped = self._previous is not None and value != self._previous
        self._reads += 1
        if stepped or self._reads >= _LOCATE_READS:
            self.interval_s, self._previous, self._reads = _REST_S, None, 0
        else:
            self.interval_s, self._previous = _LOCATE_S, value
        return [one_sample(CHANNEL, stamp, value)]
