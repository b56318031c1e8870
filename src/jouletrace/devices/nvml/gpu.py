"""A whole NVIDIA GPU."""

from __future__ import annotations

import os
from typing import Any

from jouletrace.devices.base import Capability, Clock, Process, Source
from jouletrace.devices.clock import RealClock
from jouletrace.devices.nvml.api import Nvml
from jouletrace.devices.nvml.capabilities import list_capabilities
from jouletrace.devices.nvml.gpm import gpm_sources
from jouletrace.devices.nvml.identity import describe, uuid_of
from jouletrace.devices.nvml.processes import list_processes
from jouletrace.devices.nvml.sensors import Sensors, find_sensors
from jouletrace.errors import BadInputError
from jouletrace.run import DeviceInfo

GPM_SWITCH = "JOULETRACE_GPM"
"""Environment variable: 0 excludes the GPM counters of whole GPUs from recordings. They are recorded by default:
reading them five times per second slowed none of the measured steps (docs/results/mig-h100.md)."""


class NvmlGpu:
    """A whole GPU with its power sensor; implements ``devices.base.Gpu``.

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
        if not self.sensors.has_power:
            self.info.details["no_power"] = "no_power_sensor"
            self.info.details["no_power_note"] = f"this GPU doesn't report its power: {self.sensors.ring.reason}"

    def sources(self) -> list[Source]:
        """The power record first, then state at 10 Hz, the energy counter, and activity where the GPU has GPM."""
        sources = self.sensors.sources(self._nvml, self._handle, self.info.id, self.clock)
        if os.environ.get(GPM_SWITCH) == "0" or self._in_slices():
            return sources
        return [*sources, *gpm_sources(self._nvml, self._handle, self.info.id, self.clock)]

    def _in_slices(self) -> bool:
        """Whether MIG is on: GPM then counts per instance, not for the GPU."""
        mode = self._nvml.get("nvmlDeviceGetMigMode", self._handle)
        return mode is not None and bool(mode[0])

    def capabilities(self) -> list[Capability]:
        """Every sensor, read and timed now; takes about a second."""
        return list_capabilities(self._nvml, self._handle, self.sensors, self.clock)

    def processes(self) -> list[Process]:
        """Compute and graphics processes on this GPU."""
        return list_processes(self._nvml, self._handle)

    def close(self) -> None:
        """Release NVML. Safe to call twice."""
        self._nvml.close()


def find_board(nvml: Nvml, uuid: str) -> Any:
    """The handle of the GPU with this UUID.

    Raises:
        BadInputError: If the GPU doesn't exist.
    """
    for handle in nvml.handles():
        if uuid_of(nvml, handle) == uuid:
            return handle
    lost = f" (out of reach: {'; '.join(nvml.unreachable)})" if nvml.unreachable else ""
    raise BadInputError(f"there is no GPU {uuid} here{lost}")
