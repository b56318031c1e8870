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
from dataclasses import replace

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
from jouletrace.run.channels import CHANNEL_UNITS, ENERGY_COUNTER, HOST
from jouletrace.sensor.kinds import nominal

CPU, MEMORY, SERVER = HOST

_POLLS, _LEAST_S = 4, 0.1
"""Reads of a power meter in each of its averages, which shows when it has a new one; least seconds between two: a BMC
answers slowly."""


class _Counter(RaplSource):
    """The energy of packages, or of their memory; no reading while they can't all be read, which ends no recording."""

    def __init__(self, device: str, name: str, part: str, clock: Clock) -> None:
        packages, left_out = find_packages(powercap(), part)
        if left_out:
            raise RaplMissingError("rapl_unreadable", f"no range of {', '.join(left_out)}")
        super().__init__(device, packages, clock, as_shown=True)
        self.channels = (replace(self.channels[1], name=name),)

    def poll(self) -> list[Samples]:
        """What all counters show, beyond their ends; from 0 again where one restarted."""
        with suppress(NotPossibleError):
            name = self.channels[0].name
            return [replace(sample, channel=name) for sample in super().poll() if sample.channel == ENERGY_COUNTER]
        return []


class _PowerMeter:
    """Readings of the power meter, in a thread of its own: a BMC may take longer than other sensors keep readings.

    Raises:
        OSError, ValueError: If there is none, or several, whose shares of the machine no one states; if it can't be
            read, or doesn't state over how long it averages.
    """

    def __init__(self, device: str, clock: Clock) -> None:
        names = sysfs().glob("class/hwmon/hwmon*/name")
        (folder,) = (path.parent for path in names if path.read_text().strip() == "power_meter")
        self._path, self._clock, self._read = folder / "power1_average", clock, deque[Samples]()
        self._read_w()
        average_s = int((folder / "power1_average_interval").read_text()) / 1e3
        if average_s <= 0:
            raise ValueError("it states no time over which it averages")
        self.interval_s = max(average_s / _POLLS, _LEAST_S)
        # How old a reading is when the BMC has it isn't known: up to an average of its own
        lag_s, lag_sd = average_s / 2, average_s / 12**0.5
        response = nominal(average_s, average_s, lag_sd, average_s / 10, lag_s=lag_s)
        about = ChannelInfo(device, SERVER, "W", "ACPI power meter, power1_average", response=response.to_dict())
        about.period_s, about.window_s, about.delay_s = average_s, average_s, response.delay_s
        with suppress(OSError, ValueError):  # "95.0%" of the true power
            about.gain_pct = 100 - float((folder / "power1_accuracy").read_text().strip().rstrip("%"))
        self.channels: tuple[ChannelInfo, ...] = (about,)
        self._thread = threading.Thread(target=self._go_on, name="jouletrace-power-meter", daemon=True)

    def poll(self) -> list[Samples]:
        """Readings since the last call."""
        if not self._thread.ident:
            self._thread.start()
        return [self._read.popleft() for _ in range(len(self._read))]

    def _go_on(self) -> None:
        while True:
            with suppress(OSError, ValueError):
                watts = self._read_w()
                self._read.append(one_sample(SERVER, self._clock.time_ns(), watts))
            time.sleep(self.interval_s)

    def _read_w(self) -> float:
        return int(self._path.read_text()) / 1e6  # of microwatts


class HostMeters:
    """What can be read of this machine beside its GPUs; without sources where nothing can."""

    def __init__(self) -> None:
        self.clock: Clock = RealClock()
        name = socket.gethostname()
        self.info = DeviceInfo(id=f"host:{name}", name=name, kind="meter", host=name)
        self.spec = self.info.id

    def sources(self) -> list[Source]:
        """Those of CPU packages, of memory, and of the power meter that can be read."""
        meters: list[Source] = []
        with suppress(OSError, ValueError):
            meters.append(_PowerMeter(self.info.id, self.clock))
        return [*self._counters(), *meters]

    def _counters(self) -> list[_Counter]:
        counters = []
        for name, part in ((CPU, "package"), (MEMORY, "dram")):
            with suppress(RaplMissingError):
                counters.append(_Counter(self.info.id, name, part, self.clock))
        return counters

    def first(self) -> list[dict[str, object]]:
        """Rows of ``samples`` with what the counters show now."""
        return [
            {"device": self.info.id, "channel": read.channel, "time_ns": read.time_ns[0], "value": read.value[0]}
            for counter in self._counters()
            for read in counter.poll()
        ]

    def capabilities(self) -> list[Capability]:
        """What is recorded beside GPUs here, for ``doctor``."""
        return [
            Capability(
                f"beside GPUs: {CHANNEL_UNITS[channel.name][1]}",
                True,
                channel.source,
                channel.period_s,
                note="" if channel.gain_pct is None else f"gain ±{channel.gain_pct:g} %, as it states",
            )
            for source in self.sources()
            for channel in source.channels
        ]

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
