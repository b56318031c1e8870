"""Devices of no hardware, for the recorders: the worker opens them as ``fake_devices:open_fake``.

A spec is "NAME" or "NAME?key=value&...": see ``open_fake``.
"""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from jouletrace.devices.base import Capability, Process, RealClock, Samples, Source, one_sample
from jouletrace.errors import NotPossibleError
from jouletrace.run import ChannelInfo, DeviceInfo

PERIOD_NS = 20_000_000
REST_S = 30.0
FACTORY = "fake_devices:open_fake"


def channel(device: str, name: str, unit: str = "W") -> ChannelInfo:
    return ChannelInfo(device=device, name=name, unit=unit, source="fake", period_s=0.02, gapless=True)


class Ring:
    """A gapless record of 100 W on whole periods, handed out ``latency_s`` late."""

    def __init__(self, device: str, clock: Any, interval_s: float, latency_s: float, fail_after_s: float) -> None:
        self.channels = (channel(device, "power_w"),)
        self.interval_s = interval_s
        self._clock = clock
        self._latency_ns = int(latency_s * 1e9)
        self._start = clock.time_ns()
        self._fail_ns = self._start + int(fail_after_s * 1e9)
        self._last = self._start // PERIOD_NS - 1

    def poll(self) -> list[Samples]:
        now = self._clock.time_ns()
        if now > self._fail_ns:
            raise NotPossibleError("the GPU is lost")
        newest = (now - self._latency_ns) // PERIOD_NS
        grid = np.arange(self._last + 1, newest + 1, dtype=np.int64)
        if len(grid) == 0:
            return []
        self._last = newest
        return [Samples("power_w", grid * PERIOD_NS, np.full(len(grid), 100.0))]


class State:
    """Twelve readings at 10 Hz."""

    interval_s = 0.1

    def __init__(self, device: str, clock: Any) -> None:
        self.channels = tuple(channel(device, f"state_{i}") for i in range(12))
        self._clock = clock

    def poll(self) -> list[Samples]:
        return [one_sample(c.name, self._clock.time_ns(), float(i)) for i, c in enumerate(self.channels)]


class Changing:
    """Wants to be asked five times 20 ms apart, then rests, as the energy counter does."""

    def __init__(self, device: str, clock: Any) -> None:
        self.channels = (channel(device, "energy_counter_j", "J"),)
        self.interval_s = 0.02
        self._clock = clock
        self._polls = 0

    def poll(self) -> list[Samples]:
        self._polls += 1
        self.interval_s = 0.02 if self._polls % 5 else REST_S
        return [one_sample("energy_counter_j", self._clock.time_ns(), float(self._polls))]


class FakeDevice:
    def __init__(self, spec: str, clock: Any = None) -> None:
        name, _, query = spec.partition("?")
        options = dict(parse_qsl(query))
        self.spec = spec
        self.info = DeviceInfo(id=name, name=f"Fake {name}")
        self.clock = clock or RealClock()
        self._options = options

    def sources(self) -> list[Source]:
        options = self._options
        if "no_power" in options:
            return []
        interval = float(options.get("interval", 0.2))
        latency, fail = float(options.get("latency", 0.1)), float(options.get("fail", 1e6))
        device = options.get("parent", self.info.id)
        sources: list[Source] = [Ring(device, self.clock, interval, latency, fail)]
        if "full" in options:
            sources += [State(device, self.clock), Changing(device, self.clock)]
        return sources

    def capabilities(self) -> list[Capability]:
        return []

    def processes(self) -> list[Process]:
        return []

    def close(self) -> None:
        pass


def open_fake(spec: str) -> FakeDevice:
    """Options: interval, latency, fail (s), full, no_power, parent (id whose sources it repeats)."""
    if spec.startswith("missing"):
        raise NotPossibleError(f"there is no {spec}")
    if spec.startswith("crash"):
        raise RuntimeError("a bug in the driver's binding")
    if spec.startswith("slow"):
        time.sleep(3.0)
    return FakeDevice(spec)
