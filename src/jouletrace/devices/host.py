"""The host beside GPUs: its CPU packages and memory by RAPL, and all of it by its power meter, where they can be read.

The power meter is that of ACPI, which a server's BMC answers: driver ``power_meter`` of Linux's hwmon.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from jouletrace.devices.base import (
    Capability,
    Clock,
    Device,
    OfAnotherHost,
    Process,
    RealClock,
    Samples,
    Source,
    Vendor,
    one_sample,
)
from jouletrace.devices.rapl import SYSFS, RaplMissingError, RaplSource, find_packages, powercap, sysfs
from jouletrace.errors import NotPossibleError
from jouletrace.run import ChannelInfo, DeviceInfo
from jouletrace.run.channels import ENERGY_COUNTER, HOST
from jouletrace.sensor.kinds import nominal

CPU, MEMORY, SERVER = HOST

_POLLS, _LEAST_S = 4, 0.1
"""Reads of a power meter in each of its averages, which shows when it has a new one; least seconds between two: a BMC
answers slowly."""


class _Beside:
    """The energy of packages, or of their memory; no reading while they can't all be read, which ends no recording.

    Packages that were taken away or added since the start would make the sum another one: there is no reading either.
    """

    def __init__(self, device: str, name: str, part: str, clock: Clock) -> None:
        packages, left_out = find_packages(powercap(), part)
        if left_out:
            raise RaplMissingError("rapl_unreadable", f"no range of {', '.join(left_out)}")
        self._rapl, self._there = RaplSource(device, packages, clock, as_shown=True), _zones()
        self.channels: tuple[ChannelInfo, ...] = (replace(self._rapl.channels[1], name=name),)
        self.interval_s = self._rapl.interval_s

    def poll(self) -> list[Samples]:
        """What all counters show, beyond their ends; from 0 again where one restarted."""
        with suppress(NotPossibleError):
            samples = self._rapl.poll()
            if _zones() == self._there:
                return [
                    replace(sample, channel=self.channels[0].name)
                    for sample in samples
                    if sample.channel == ENERGY_COUNTER
                ]
        return []


def _zones() -> set[str]:
    return {zone.name for zone in powercap().glob("intel-rapl:*")}


@dataclass(frozen=True)
class _Meter:
    """The power meter of a machine: its file with the power in µW, over how long it averages, its stated error."""

    path: Path
    average_s: float
    gain_pct: float | None

    def read_w(self) -> float:
        """The power in W."""
        return int(self.path.read_text()) / 1e6


def _meter() -> _Meter | None:
    """The power meter of this machine; None without one. Which of several is the whole machine's no one states.

    Raises:
        OSError, ValueError: If it can't be read, or doesn't state over how long it averages.
    """
    names = sysfs().glob("class/hwmon/hwmon*/name")
    folders = [path.parent for path in names if path.read_text().strip() == "power_meter"]
    if len(folders) != 1:
        return None
    average = folders[0] / "power1_average"
    path = average if average.exists() else folders[0] / "power1_input"
    average_s = int((folders[0] / "power1_average_interval").read_text()) / 1e3
    gain_pct = None
    with suppress(OSError, ValueError):  # "95.0%" of the true power
        gain_pct = 100 - float((folders[0] / "power1_accuracy").read_text().strip().rstrip("%"))
    meter = _Meter(path, average_s, gain_pct)
    meter.read_w()
    return meter


class _MeterSource:
    """Readings of a power meter, in a thread of its own: a BMC may take longer than other sensors keep readings."""

    def __init__(self, device: str, meter: _Meter, clock: Clock) -> None:
        w = meter.average_s
        # How old a reading is when the BMC has it isn't known: up to an average of its own
        response = nominal(w, w, lag_sd=w / 12**0.5, window_sd=w / 10, lag_s=w / 2)
        self.channels: tuple[ChannelInfo, ...] = (
            ChannelInfo(
                device, SERVER, "W", f"ACPI power meter, {meter.path.name}", period_s=w, window_s=w,
                delay_s=response.delay_s, gain_pct=meter.gain_pct, response=response.to_dict(),
            ),
        )  # fmt: skip
        self.interval_s = max(w / _POLLS, _LEAST_S)
        self._meter, self._clock = meter, clock
        self._read: deque[Samples] = deque()
        self._thread: threading.Thread | None = None

    def poll(self) -> list[Samples]:
        """Readings since the last call."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._go_on, name="jouletrace-power-meter", daemon=True)
            self._thread.start()
        return [self._read.popleft() for _ in range(len(self._read))]

    def _go_on(self) -> None:
        while True:
            with suppress(OSError, ValueError):
                watts = self._meter.read_w()
                self._read.append(one_sample(SERVER, self._clock.time_ns(), watts))
            time.sleep(self.interval_s)


class HostMeters:
    """What can be read of this machine beside its GPUs; without sources where nothing can."""

    def __init__(self) -> None:
        self.clock: Clock = RealClock()
        name = socket.gethostname()
        self.info = DeviceInfo(id=f"host:{name}", name=name, kind="meter", host=name)
        self.spec = self.info.id

    def sources(self) -> list[Source]:
        """Those of CPU packages, of memory, and of the power meter that can be read."""
        sources: list[Source] = []
        for name, part in ((CPU, "package"), (MEMORY, "dram")):
            with suppress(RaplMissingError):
                sources.append(_Beside(self.info.id, name, part, self.clock))
        with suppress(OSError, ValueError):
            if (meter := _meter()) is not None:
                sources.append(_MeterSource(self.info.id, meter, self.clock))
        return sources

    def first(self) -> list[dict[str, object]]:
        """Rows of ``samples`` with what the counters show now."""
        counters = [source for source in self.sources() if isinstance(source, _Beside)]
        return [
            {"device": self.info.id, "channel": read.channel, "time_ns": read.time_ns[0], "value": read.value[0]}
            for source in counters
            for read in source.poll()
        ]

    def capabilities(self) -> list[Capability]:
        """Memory and the power meter, where they are there; CPU packages are those of ``CpuHost``."""
        listed = []
        with suppress(RaplMissingError):
            packages, _ = find_packages(powercap(), "dram")
            listed.append(
                Capability("memory, beside GPUs", True, "RAPL energy_uj", 0.001, note=f"{len(packages)} counters")
            )
        name, source = "whole server, beside GPUs", "ACPI power meter"
        try:
            if (meter := _meter()) is not None:
                gain = "its gain isn't known" if meter.gain_pct is None else f"gain ±{meter.gain_pct:g} %, as it states"
                listed.append(Capability(name, True, source, meter.average_s, note=gain))
        except (OSError, ValueError) as error:
            listed.append(Capability(name, False, source, note=f"it can't be read: {error}"))
        return listed

    def processes(self) -> list[Process]:
        """Empty: all processes use it."""
        return []

    def close(self) -> None:
        """Nothing is held open."""


def beside(devices: Sequence[Device]) -> list[HostMeters]:
    """The host of GPUs that are recorded, if anything of it can be read and no CPU is recorded with them.

    Simulated GPUs have only the host that ``JOULETRACE_SYSFS`` names.
    """
    simulated = any(device.info.simulated for device in devices)
    elsewhere = any(device.clock.virtual or isinstance(device, OfAnotherHost) for device in devices)
    gpus = all(device.info.kind in ("gpu", "mig") for device in devices)
    if elsewhere or not gpus or (simulated and not os.environ.get(SYSFS)):
        return []
    host = HostMeters()
    return [host] if host.sources() else []


VENDOR = Vendor("", re.compile("host:.+"), lambda name: HostMeters())
