"""The quantities of a GPU that are read singly, with their nominal properties.

Two tables hold them: the power readings of ``POWER_INSTANT`` and the like, and the state of the GPU.
Nominal periods and windows come from documentation and published measurements of each generation;
``calibrate`` replaces them by measured values of the GPU at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jouletrace.devices.base import Clock, Samples
from jouletrace.devices.nvml.api import Nvml, Unavailable
from jouletrace.devices.samples import one_sample
from jouletrace.run import ChannelInfo
from jouletrace.run.channels import CHANNEL_UNITS, GAIN_PCT, POWER

_POWER_AVERAGE, _POWER_INSTANT, _MEMORY_TEMPERATURE = 185, 186, 82
_SCOPE_GPU, _SCOPE_MEMORY = 0, 2
_CLOCK_SM, _CLOCK_MEMORY, _TEMPERATURE_GPU = 1, 2, 0

LONG_AVERAGE_FROM = (8, 6)
"""Compute capability from which ``nvmlDeviceGetPowerUsage`` is a mean over one second.

GA100 (8.0) and older report a short window there.
"""


@dataclass(frozen=True)
class Reading:
    """One quantity that one vendor call yields.

    Attributes:
        channel: Its name in the ``samples`` table.
        source: The vendor call behind it.
        read: Reads it in the channel's unit; raises ``Unavailable``.
        period_s, window_s: Nominal update period and averaging window in seconds, if known.
        gain_pct: Gain error that software can't detect.
    """

    channel: str
    source: str
    read: Callable[[], float]
    period_s: float | None = None
    window_s: float | None = None
    gain_pct: float | None = None

    def renamed(self, channel: str) -> Reading:
        """The same reading under another channel."""
        return Reading(channel, self.source, self.read, self.period_s, self.window_s, self.gain_pct)

    def info(self, device: str, polled_s: float | None = None) -> ChannelInfo:
        """Its description; the source states ``polled_s`` where polling limits the time resolution."""
        return ChannelInfo(
            device=device,
            name=self.channel,
            unit=CHANNEL_UNITS[self.channel][0],
            source=self.source + (f", polled every {polled_s * 1e3:g} ms" if polled_s else ""),
            period_s=self.period_s,
            window_s=self.window_s,
            gapless=False if self.channel == POWER else None,
            gain_pct=self.gain_pct,
        )


class PolledSource:
    """Readings taken together; each is stamped in the middle of its own call."""

    def __init__(self, device: str, readings: Sequence[Reading], interval_s: float, clock: Clock) -> None:
        self.interval_s = interval_s
        self.channels = tuple(r.info(device, interval_s if r.channel == POWER else None) for r in readings)
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


def power_readings(nvml: Nvml, handle: Any, capability: tuple[int, int] | None) -> list[Reading]:
    """Power readings that the driver offers besides its record: instant, usage, memory."""
    usage_averages = capability is None or capability >= LONG_AVERAGE_FROM
    fast_sensor = capability is not None and (6, 0) <= capability < (7, 5)
    return [
        Reading(
            "power_instant_w",
            "nvmlDeviceGetFieldValues(NVML_FI_DEV_POWER_INSTANT)",
            lambda: nvml.field(handle, _POWER_INSTANT) / 1e3,
            period_s=0.1,
            gain_pct=GAIN_PCT,
        ),
        Reading(
            "power_average_w" if usage_averages else "power_instant_w",
            "nvmlDeviceGetPowerUsage",
            lambda: float(nvml.call("nvmlDeviceGetPowerUsage", handle)) / 1e3,
            period_s=0.02 if fast_sensor else 0.1,
            window_s=(1.0 if capability else None) if usage_averages else (0.025 if capability == (8, 0) else None),
            gain_pct=GAIN_PCT,
        ),
        Reading(
            "power_memory_w",
            "nvmlDeviceGetFieldValues(NVML_FI_DEV_POWER_AVERAGE, scope memory)",
            lambda: nvml.field(handle, _POWER_AVERAGE, _SCOPE_MEMORY) / 1e3,
            period_s=0.1,
        ),
    ]


def state_readings(nvml: Nvml, handle: Any) -> list[Reading]:
    """Clocks, temperatures, throttle reasons, performance state, memory and utilisation."""

    def call(function: str, *args: Any) -> Callable[[], float]:
        return lambda: float(nvml.call(function, handle, *args))

    def part(function: str, member: str, *args: Any) -> Callable[[], float]:
        return lambda: float(getattr(nvml.call(function, handle, *args), member))

    throttle = "nvmlDeviceGetCurrentClocksEventReasons"
    if nvml.get(throttle, handle) is None:
        throttle = "nvmlDeviceGetCurrentClocksThrottleReasons"  # its name before driver 535
    # The second version excludes the memory that the driver reserves.
    version = nvml.constant("nvmlMemory_v2")
    memory_args = (version,) if version and nvml.get("nvmlDeviceGetMemoryInfo", handle, version) else ()
    utilization = "nvmlDeviceGetUtilizationRates"
    return [
        Reading("clock_sm_mhz", "nvmlDeviceGetClockInfo(SM)", call("nvmlDeviceGetClockInfo", _CLOCK_SM)),
        Reading("clock_memory_mhz", "nvmlDeviceGetClockInfo(MEM)", call("nvmlDeviceGetClockInfo", _CLOCK_MEMORY)),
        Reading("temperature_c", "nvmlDeviceGetTemperature", call("nvmlDeviceGetTemperature", _TEMPERATURE_GPU)),
        Reading(
            "temperature_memory_c",
            "nvmlDeviceGetFieldValues(NVML_FI_DEV_MEMORY_TEMP)",
            lambda: nvml.field(handle, _MEMORY_TEMPERATURE),
        ),
        Reading("throttle_bits", throttle, call(throttle)),
        Reading("pstate", "nvmlDeviceGetPerformanceState", call("nvmlDeviceGetPerformanceState")),
        Reading(
            "memory_used_bytes",
            "nvmlDeviceGetMemoryInfo",
            part("nvmlDeviceGetMemoryInfo", "used", *memory_args),
        ),
        Reading("utilization_gpu_pct", f"{utilization}.gpu", part(utilization, "gpu")),
        Reading("utilization_memory_pct", f"{utilization}.memory", part(utilization, "memory")),
    ]
