"""Values that can be read of a GPU singly, with nominal properties; which of them respond; the sources made of them.

Nominal periods and windows of power are those of ``sensor.kinds``, by the GPU's compute capability and name;
``calibrate`` replaces them by measured values of the GPU at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jouletrace.devices.base import Clock, Samples, Source, one_sample
from jouletrace.devices.nvml.api import Nvml, Unavailable, text
from jouletrace.devices.nvml.record import EnergyCounter, RingCheck, RingRecord, check_ring, read_counter
from jouletrace.run import ChannelInfo
from jouletrace.run.channels import CHANNEL_UNITS, POWER
from jouletrace.sensor.kinds import INSTANT, RECORD, USAGE, Capability, PowerField, sensor_behind

_POWER_AVERAGE, _POWER_INSTANT, _MEMORY_TEMPERATURE = 185, 186, 82
_SCOPE_MEMORY = 2
_CLOCK_SM, _CLOCK_MEMORY, _TEMPERATURE_GPU = 1, 2, 0

LONG_AVERAGE_S = 0.5
"""Readings of the usage that are means over at least this long are a channel of their own, ``power_average_w``."""

POLLED_POWER_S = 0.005
"""A read takes microseconds, and the accuracy of its time limits which short blocks can be resolved."""

STATE_S = 0.1


@dataclass(frozen=True)
class Quantity:
    """One quantity that one vendor call yields.

    Attributes:
        channel: Its name in the ``samples`` table.
        source: The vendor call behind it.
        read: Reads it in the channel's unit; raises ``Unavailable``.
        period_s, window_s: Nominal update period and averaging window in seconds, if known.
        gain_pct: Gain error that software can't detect.
        sensor: Kind of the power sensor; "" if unknown.
    """

    channel: str
    source: str
    read: Callable[[], float]
    period_s: float | None = None
    window_s: float | None = None
    gain_pct: float | None = None
    sensor: str = ""

    def info(self, device: str, polled_s: float) -> ChannelInfo:
        """Its description; the source of polled power states ``polled_s``, which limits its time resolution."""
        power = self.channel == POWER
        return ChannelInfo(
            device=device,
            name=self.channel,
            unit=CHANNEL_UNITS[self.channel][0],
            source=self.source + (f", polled every {polled_s * 1e3:g} ms" if power else ""),
            sensor=self.sensor,
            period_s=self.period_s,
            window_s=self.window_s,
            gapless=False if power else None,
            gain_pct=self.gain_pct,
        )


class PolledSource:
    """Readings taken together; each is stamped in the middle of its own call."""

    def __init__(self, device: str, readings: Sequence[Quantity], interval_s: float, clock: Clock) -> None:
        self.interval_s = interval_s
        self.channels = tuple(reading.info(device, interval_s) for reading in readings)
        self._readings = readings
        self._clock = clock

    def poll(self) -> list[Samples]:
        """One sample per channel; a reading that fails leaves a hole in its channel.

        Raises:
            NotPossibleError: If the GPU is gone.
        """
        samples = []
        for reading in self._readings:
            before = self._clock.time_ns()
            try:
                value = reading.read()
            except Unavailable:
                continue
            samples.append(one_sample(reading.channel, (before + self._clock.time_ns()) // 2, value))
        return samples


def compute_capability(nvml: Nvml, handle: Any) -> Capability | None:
    """CUDA compute capability, which distinguishes the generations of power sensors."""
    pair = nvml.get("nvmlDeviceGetCudaComputeCapability", handle)
    return None if pair is None else (int(pair[0]), int(pair[1]))


def power_readings(nvml: Nvml, handle: Any, board: str, capability: Capability | None) -> list[Quantity]:
    """Power readings that the driver offers besides its record: instant, usage, memory."""
    usage = sensor_behind(USAGE, board, capability)
    averages = capability is None or (usage[1].window_s or 0.0) >= LONG_AVERAGE_S
    return [
        _power_reading(
            "power_instant_w",
            "nvmlDeviceGetFieldValues(NVML_FI_DEV_POWER_INSTANT)",
            lambda: nvml.field(handle, _POWER_INSTANT) / 1e3,
            sensor_behind(INSTANT, board, capability),
        ),
        _power_reading(
            "power_average_w" if averages else "power_instant_w",
            "nvmlDeviceGetPowerUsage",
            lambda: float(nvml.call("nvmlDeviceGetPowerUsage", handle)) / 1e3,
            usage,
        ),
        Quantity(
            "power_memory_w",
            "nvmlDeviceGetFieldValues(NVML_FI_DEV_POWER_AVERAGE, scope memory)",
            lambda: nvml.field(handle, _POWER_AVERAGE, _SCOPE_MEMORY) / 1e3,
            period_s=0.1,
        ),
    ]


def _power_reading(channel: str, source: str, read: Callable[[], float], behind: tuple[str, PowerField]) -> Quantity:
    sensor, kind = behind
    return Quantity(channel, source, read, kind.period_s, kind.window_s, kind.gain_pct, sensor)


def state_readings(nvml: Nvml, handle: Any) -> list[Quantity]:
    """Clocks, temperatures, throttle reasons, performance state, memory and utilisation."""

    def call(function: str, *args: Any, part: str = "") -> Callable[[], float]:
        def read() -> float:
            value = nvml.call(function, handle, *args)
            return float(getattr(value, part) if part else value)

        return read

    throttle = "nvmlDeviceGetCurrentClocksEventReasons"
    if nvml.get(throttle, handle) is None:
        throttle = "nvmlDeviceGetCurrentClocksThrottleReasons"  # its name before driver 535
    memory, utilization = "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates"
    # The second version excludes the memory that the driver reserves.
    version = nvml.constant("nvmlMemory_v2")
    memory_args = (version,) if version and nvml.get(memory, handle, version) else ()
    return [
        Quantity("clock_sm_mhz", "nvmlDeviceGetClockInfo(SM)", call("nvmlDeviceGetClockInfo", _CLOCK_SM)),
        Quantity("clock_memory_mhz", "nvmlDeviceGetClockInfo(MEM)", call("nvmlDeviceGetClockInfo", _CLOCK_MEMORY)),
        Quantity("temperature_c", "nvmlDeviceGetTemperature", call("nvmlDeviceGetTemperature", _TEMPERATURE_GPU)),
        Quantity(
            "temperature_memory_c",
            "nvmlDeviceGetFieldValues(NVML_FI_DEV_MEMORY_TEMP)",
            lambda: nvml.field(handle, _MEMORY_TEMPERATURE),
        ),
        Quantity("throttle_bits", throttle, call(throttle)),
        Quantity("pstate", "nvmlDeviceGetPerformanceState", call("nvmlDeviceGetPerformanceState")),
        Quantity("memory_used_bytes", memory, call(memory, *memory_args, part="used")),
        Quantity("utilization_gpu_pct", f"{utilization}.gpu", call(utilization, part="gpu")),
        Quantity("utilization_memory_pct", f"{utilization}.memory", call(utilization, part="memory")),
    ]


@dataclass
class Sensors:
    """The sensors that respond on a GPU.

    Attributes:
        ring: Check of the driver's own power record.
        record: Kind of the sensor behind that record, and timing of its readings.
        power: The reading that replaces the record where that isn't usable.
        readings: Quantities read at 10 Hz, one per channel.
        counter: None if the energy counter responds, else the reason.
        absent: The readings that don't respond, with the reason.
    """

    ring: RingCheck
    record: tuple[str, PowerField]
    power: Quantity | None = None
    readings: list[Quantity] = field(default_factory=list)
    counter: str | None = None
    absent: list[tuple[Quantity, str]] = field(default_factory=list)

    def sources(self, nvml: Nvml, handle: Any, device: str, clock: Clock) -> list[Source]:
        """New sources of all sensors that respond, the power record first."""
        sources: list[Source] = []
        if self.ring.usable:
            sources.append(RingRecord(nvml, handle, device, self.ring.period_s, self.record, clock))
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
    capability = compute_capability(nvml, handle)
    sensors = Sensors(check_ring(nvml, handle, clock), sensor_behind(RECORD, board, capability))
    responding: dict[str, Quantity] = {}
    for reading in [*power_readings(nvml, handle, board, capability), *state_readings(nvml, handle)]:
        reason = _refusal(reading)
        if reason is not None:
            sensors.absent.append((reading, reason))
        else:  # the first of a channel is the better source
            responding.setdefault(reading.channel, reading)
    if not sensors.ring.usable:
        best = responding.pop("power_instant_w", None) or responding.pop("power_average_w", None)
        sensors.power = best and replace(best, channel=POWER)
    sensors.readings = list(responding.values())
    try:
        read_counter(nvml, handle)
    except Unavailable as error:
        sensors.counter = str(error)
    return sensors


def _refusal(reading: Quantity) -> str | None:
    try:
        value = reading.read()
    except Unavailable as error:
        return str(error)
    # A live GPU always draws power: a reading of zero means that the sensor is missing.
    return "it reads 0 W" if reading.channel.startswith("power_") and value <= 0 else None
