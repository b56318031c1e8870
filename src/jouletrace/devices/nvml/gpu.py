"""A whole NVIDIA GPU."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from jouletrace.devices.base import Capability, Clock, Process, RealClock, Source
from jouletrace.devices.nvml.api import Nvml, Unavailable
from jouletrace.devices.nvml.gpm import gpm_sources
from jouletrace.devices.nvml.identity import CLOCK_SM, describe, find_board, list_processes
from jouletrace.devices.nvml.record import COUNTER_CALL, RING_CALL, read_counter
from jouletrace.devices.nvml.sensors import Quantity, Sensors, find_sensors
from jouletrace.errors import NotPossibleError
from jouletrace.run import DeviceInfo

GPM_SWITCH = "JOULETRACE_GPM"
"""Environment variable: 0 excludes the GPM counters of whole GPUs from recordings. They are recorded by default:
reading them five times per second slowed none of the measured steps (docs/results/mig-h100.md)."""


_LIMIT = "nvmlDeviceGetPowerManagementLimit"
_NO_PERMISSION = 4


class NvmlGpu:
    """A whole GPU with its power sensor; implements ``devices.base.Device``.

    If the GPU doesn't report its power, ``info.details`` has "no_power" (a reason code) and "no_power_note".

    Args:
        uuid: UUID as the driver reports it ("GPU-...").
        nvml: The library; this object closes it. None opens it.
        clock: Source of time; None is the real clock.

    Attributes:
        sensors: The sensors that respond.

    Raises:
        BadInputError: If the GPU doesn't exist.
        NotPossibleError: If nvidia-ml-py or the driver is missing, or the GPU is lost.
    """

    def __init__(self, uuid: str, nvml: Nvml | None = None, clock: Clock | None = None) -> None:
        self._nvml = nvml if nvml is not None else Nvml()
        self.clock: Clock = clock if clock is not None else RealClock()
        self.spec = uuid
        try:
            self._handle = find_board(self._nvml, uuid)
            self.info: DeviceInfo = describe(self._nvml, self._handle)
            self.sensors: Sensors = find_sensors(self._nvml, self._handle, self.clock)
        except BaseException:
            self._nvml.close()
            raise
        if not self.sensors.ring.usable and self.sensors.power is None:
            self.info.details["no_power"] = "no_power_sensor"
            self.info.details["no_power_note"] = f"this GPU doesn't report its power: {self.sensors.ring.reason}"

    def sources(self) -> list[Source]:
        """The power record first, then state at 10 Hz, the energy counter, and activity where the GPU has GPM."""
        sources = self.sensors.sources(self._nvml, self._handle, self.info.id, self.clock)
        mig = self._nvml.get("nvmlDeviceGetMigMode", self._handle)
        if os.environ.get(GPM_SWITCH) == "0" or (mig and mig[0]):  # under MIG, GPM counts per instance
            return sources
        return [*sources, *gpm_sources(self._nvml, self._handle, self.info.id, self.clock)]

    def capabilities(self) -> list[Capability]:
        """Every sensor, read and timed now; takes about a second."""
        return list_capabilities(self._nvml, self._handle, self.sensors, self.clock)

    def processes(self) -> list[Process]:
        """Compute and graphics processes on this GPU."""
        return list_processes(self._nvml, self._handle)

    def limit_w(self) -> float:
        """The power limit that was set (``nvmlDeviceGetPowerManagementLimit``), in watts.

        Raises:
            NotPossibleError: If the GPU doesn't report it.
        """
        return self._get("power limit", _LIMIT) / 1e3

    def set_limit(self, watts: float) -> None:
        """Set the power limit for all users of the GPU (``nvmlDeviceSetPowerManagementLimit``), as ``nvidia-smi -pl``.

        Raises:
            NotPossibleError: If the driver refuses; it says why.
        """
        self._set("power limit", "nvmlDeviceSetPowerManagementLimit", round(watts * 1e3))

    def clock_mhz(self) -> float:
        """The SM clock at this moment (``nvmlDeviceGetClockInfo``), in MHz.

        Raises:
            NotPossibleError: If the GPU doesn't report it.
        """
        return self._get("SM clock", "nvmlDeviceGetClockInfo", CLOCK_SM)

    def clocks_mhz(self) -> list[float]:
        """The SM clocks that can be locked at the highest memory clock, in MHz, ascending; empty if there are none."""
        memory = self._nvml.get("nvmlDeviceGetSupportedMemoryClocks", self._handle) or []
        clocks = self._nvml.get("nvmlDeviceGetSupportedGraphicsClocks", self._handle, max(memory)) if memory else []
        return sorted(map(float, clocks or []))

    def lock_clock(self, mhz: float | None) -> None:
        """Lock the SM clock for all users of the GPU (``nvmlDeviceSetGpuLockedClocks``); None unlocks it.

        As ``nvidia-smi -lgc`` and ``-rgc``. NVML has no call that reads a lock.

        Raises:
            NotPossibleError: If the driver refuses; it says why.
        """
        if mhz is None:
            self._set("SM clock", "nvmlDeviceResetGpuLockedClocks")
        else:
            self._set("SM clock", "nvmlDeviceSetGpuLockedClocks", round(mhz), round(mhz))

    def _get(self, what: str, function: str, *which: int) -> float:
        try:
            return float(self._nvml.call(function, self._handle, *which))
        except Unavailable as error:
            raise NotPossibleError(f"{self.info.name} doesn't report its {what}: {error}") from None

    def _set(self, what: str, function: str, *values: int) -> None:
        try:
            self._nvml.call(function, self._handle, *values)
        except Unavailable as error:
            why = "this needs root (sudo)" if error.code == _NO_PERMISSION else str(error)
            raise NotPossibleError(f"{self.info.name}: the {what} can't be set: {why}") from None

    def close(self) -> None:
        """Release NVML. Safe to call twice."""
        self._nvml.close()


WATCH_S = 0.7
_LOOK_EVERY_S = 0.005

NAMES = {
    "power_w": "power, polled",
    "power_instant_w": "power, short window",
    "power_average_w": "power, long average",
    "power_memory_w": "power of the memory",
    "clock_sm_mhz": "SM clock",
    "clock_memory_mhz": "memory clock",
    "temperature_c": "temperature",
    "temperature_memory_c": "temperature of the memory",
    "throttle_bits": "throttle reasons",
    "pstate": "performance state",
    "memory_used_bytes": "memory in use",
    "utilization_gpu_pct": "utilisation",
    "utilization_memory_pct": "utilisation of the memory",
}


def list_capabilities(nvml: Nvml, handle: Any, sensors: Sensors, clock: Clock) -> list[Capability]:
    """Every sensor of a GPU, read and timed now; takes about a second.

    Raises:
        NotPossibleError: If the GPU is gone.
    """
    capabilities = [_ring(nvml, handle, sensors)]
    watched = [r for r in [sensors.power, *sensors.readings] if r is not None and r.channel.startswith("power_")]
    periods = _watch([r.read for r in watched], clock)
    observed = dict(zip((r.channel for r in watched), periods, strict=True))
    for reading in [sensors.power, *sensors.readings]:
        if reading is not None:
            capabilities.append(_answering(reading, observed.get(reading.channel)))
    capabilities += [Capability(NAMES[r.channel], False, r.source, note=reason) for r, reason in sensors.absent]
    return [*capabilities, _counter(nvml, handle, sensors), *_functions(nvml, handle)]


def _ring(nvml: Nvml, handle: Any, sensors: Sensors) -> Capability:
    name, ring = "power, record of the driver", sensors.ring
    if not ring.usable:
        return Capability(name, False, RING_CALL, ring.period_s, note=ring.reason)
    cost = _cost(lambda: nvml.samples(handle, 0, 0))
    note = f"the driver keeps the last {ring.span_s:.1f} s; energy is computed from this"
    return Capability(name, True, RING_CALL, ring.period_s, cost, note)


def _answering(reading: Quantity, period_s: float | None) -> Capability:
    notes = []
    if reading.channel == "power_w":
        notes.append("energy is computed from this: best here, but it is not gapless")
    if reading.window_s:
        notes.append(f"each reading is the mean of the last {reading.window_s:g} s (nominal)")
    return Capability(
        NAMES[reading.channel],
        True,
        reading.source,
        period_s if period_s is not None else reading.period_s,
        _cost(reading.read),
        "; ".join(notes),
    )


def _counter(nvml: Nvml, handle: Any, sensors: Sensors) -> Capability:
    name = "energy counter"
    if sensors.counter is not None:
        return Capability(name, False, COUNTER_CALL, note=sensors.counter)
    cost = _cost(lambda: read_counter(nvml, handle))
    return Capability(name, True, COUNTER_CALL, 0.1, cost, "cross-check of the record; its period is nominal")


_FUNCTIONS: tuple[tuple[str, str, Callable[[Any], tuple[bool, str]]], ...] = (
    ("power limit", _LIMIT, lambda milliwatts: (True, f"{milliwatts / 1e3:g} W")),
    (
        "activity counters (GPM)",
        "nvmlGpmQueryDeviceSupport",
        lambda said: (True, "") if said.isSupportedDevice else (False, "needs a Hopper GPU or later"),
    ),
    (
        "partitioning (MIG)",
        "nvmlDeviceGetMigMode",
        lambda modes: (True, "enabled" if modes[0] else "possible, not enabled"),
    ),
)
"""Abilities of a GPU besides readings: the name, the call that asks for it, and the meaning of an answer."""


def _functions(nvml: Nvml, handle: Any) -> Iterator[Capability]:
    for name, function, meaning in _FUNCTIONS:
        try:
            there, note = meaning(nvml.call(function, handle))
        except Unavailable as error:
            yield Capability(name, False, function, note=str(error))
            continue
        cost = _cost(lambda: nvml.call(_LIMIT, handle)) if function == _LIMIT else None
        yield Capability(name, there, function, None, cost, note)


def _cost(read: Callable[[], object]) -> float | None:
    """Seconds that one read takes: the median of three, since the first may be slower."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        try:
            read()
        except Unavailable:
            return None
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _watch(reads: list[Callable[[], float]], clock: Clock) -> list[float | None]:
    """Update periods in seconds: the median time between changes of the value; None if it hardly changed."""
    last: list[float | None] = [None] * len(reads)
    changes: list[list[int]] = [[] for _ in reads]
    end_ns = clock.monotonic_ns() + int(WATCH_S * 1e9)
    while reads and clock.monotonic_ns() < end_ns:
        for i, read in enumerate(reads):
            try:
                value = read()
            except Unavailable:
                continue
            if last[i] is not None and value != last[i]:
                changes[i].append(clock.monotonic_ns())
            last[i] = value
        clock.sleep(_LOOK_EVERY_S)
    return [
        round(statistics.median(b - a for a, b in itertools.pairwise(times)) / 1e9, 3) if len(times) >= 3 else None
        for times in changes
    ]
