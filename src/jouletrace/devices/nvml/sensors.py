"""The sensors that respond on a GPU, the choice of its power record, and the sources made of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jouletrace.devices.base import Clock, Samples, Source
from jouletrace.devices.nvml.api import Nvml, Unavailable, text
from jouletrace.devices.nvml.identity import compute_capability
from jouletrace.devices.nvml.readings import PolledSource, Reading, power_readings, state_readings
from jouletrace.devices.nvml.record import RingCheck, RingRecord, check_ring, sampling_s
from jouletrace.devices.samples import one_sample
from jouletrace.run import ChannelInfo
from jouletrace.run.channels import GAIN_PCT, POWER

POLLED_POWER_S = 0.005
"""A read takes microseconds, and the accuracy of its time limits which short blocks can be resolved."""

STATE_S = 0.1


@dataclass
class Sensors:
    """The sensors that respond on a GPU.

    Attributes:
        ring: Check of the driver's own power record.
        sampling_s: Seconds between the samples behind its readings; None where that is unknown.
        power: The reading that replaces the record where that isn't usable.
        readings: Quantities read at 10 Hz, one per channel.
        counter: None if the energy counter responds, else the reason.
        absent: The readings that don't respond, with the reason.
    """

    ring: RingCheck
    sampling_s: float | None = None
    power: Reading | None = None
    readings: list[Reading] = field(default_factory=list)
    counter: str | None = None
    absent: list[tuple[Reading, str]] = field(default_factory=list)

    @property
    def has_power(self) -> bool:
        """Whether the GPU reports its power in any way."""
        return self.ring.usable or self.power is not None

    def sources(self, nvml: Nvml, handle: Any, device: str, clock: Clock) -> list[Source]:
        """New sources of all sensors that respond, the power record first."""
        sources: list[Source] = []
        if self.ring.usable:
            sources.append(RingRecord(nvml, handle, device, self.ring.period_s, self.sampling_s))
        elif self.power is not None:
            sources.append(PolledSource(device, [self.power], POLLED_POWER_S, clock))
        if self.readings:
            sources.append(PolledSource(device, self.readings, STATE_S, clock))
        if self.counter is None:
            sources.append(EnergyCounter(nvml, handle, device, clock))
        return sources


def find_sensors(nvml: Nvml, handle: Any, clock: Clock) -> Sensors:
    """Read every sensor once.

    Raises:
        NotPossibleError: If the GPU is gone.
    """
    board = text(nvml.get("nvmlDeviceGetName", handle)) or ""
    sensors = Sensors(check_ring(nvml, handle, clock), sampling_s(board))
    for reading in power_readings(nvml, handle, compute_capability(nvml, handle)):
        reason = _refusal(reading)
        if reason is None and any(r.channel == reading.channel for r in sensors.readings):
            continue  # a better source of the same quantity responds already
        _sort(sensors, reading, reason)
    if not sensors.ring.usable:
        by_channel = {r.channel: r for r in sensors.readings}
        best = by_channel.get("power_instant_w") or by_channel.get("power_average_w")
        if best is not None:
            sensors.power = best.renamed(POWER)
            sensors.readings.remove(best)
    for reading in state_readings(nvml, handle):
        _sort(sensors, reading, _refusal(reading))
    try:
        read_counter(nvml, handle)
    except Unavailable as error:
        sensors.counter = str(error)
    return sensors


def _sort(sensors: Sensors, reading: Reading, reason: str | None) -> None:
    if reason is None:
        sensors.readings.append(reading)
    else:
        sensors.absent.append((reading, reason))


def _refusal(reading: Reading) -> str | None:
    try:
        value = reading.read()
    except Unavailable as error:
        return str(error)
    # A live GPU always draws power: a reading of zero means that the sensor is missing.
    return "it reads 0 W" if reading.channel.startswith("power_") and value <= 0 else None


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
