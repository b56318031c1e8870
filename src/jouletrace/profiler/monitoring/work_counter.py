"""Counting the real work of a running program: what its energy is divided by.

A counter only grows: tokens generated, requests answered, images seen. Where it is read from is
one module each: ``work_counter_http`` (a Prometheus endpoint) and ``work_counter_output`` (lines
that a command prints).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from jouletrace.devices.base import Clock
from jouletrace.run import ChannelInfo
from jouletrace.run.channels import CHANNEL_UNITS, WORK, WORK_READ, WORK_RESETS


@dataclass(frozen=True, slots=True)
class WorkReading:
    """A counter at one time.

    Attributes:
        time_ns: Middle of the read, in nanoseconds since the Unix epoch.
        took_s: Seconds that the read took: the count is of some time within them.
        done: Units of work counted since the first reading.
        resets: How often the counter has been seen to start again until then.
    """

    time_ns: int
    took_s: float
    done: float
    resets: int


class WorkCounter(Protocol):
    """Something that counts work beside the recording, and never makes it wait."""

    source: str
    """Where it is read from, for the Run."""

    unit: str
    """What is counted, in one word or name."""

    def start(self, clock: Clock) -> None:
        """Begin to count; returns at once, or after one try to read that has an end.

        Raises:
            BadInputError: If it is known already that there is nothing to count.
        """

    def take(self) -> list[WorkReading]:
        """Readings since the last call, oldest first; never waits."""

    def problem(self) -> str | None:
        """Why it can't be read now, in one line; None if it can."""

    def stop(self) -> list[WorkReading]:
        """Read a last time, in a few seconds at most, and end; readings since ``take``. Safe to call twice."""

    def warnings(self) -> list[tuple[str, str]]:
        """Codes and sentences for ``Run.warnings``: what a reader of the figures must know. After ``stop``."""


class Tally:
    """Adds up what several series of one counter have grown by, across their resets.

    A series below its last value has started again from zero, as ``increase()`` of Prometheus takes
    it: what it had counted between its last reading and the reset is lost, and the reset is counted.
    One that appears later began at zero. One that goes away may come back. One that was NaN at first
    counts from its first number on.
    """

    def __init__(self) -> None:
        self.done = 0.0
        self.resets = 0
        self._last: dict[str, float] | None = None

    def add(self, values: Mapping[str, float]) -> None:
        """Take one reading: values by series. The first is where counting begins."""
        if self._last is None:
            self._last = dict(values)
            return
        for series, value in values.items():
            if not math.isfinite(value):
                self._last.setdefault(series, math.nan)
                continue
            before = self._last.get(series, 0.0)
            if math.isnan(before):
                before = value
            if value < before:
                self.resets += 1
                before = 0.0
            self.done += value - before
            self._last[series] = value


def channels(device: str, counter: WorkCounter) -> list[ChannelInfo]:
    """What a counter adds to the channels of a Run, under its first device."""
    source = f"{counter.source} ({counter.unit})"
    return [ChannelInfo(device, name, CHANNEL_UNITS[name][0], source) for name in (WORK, WORK_RESETS, WORK_READ)]


def sample_rows(device: str, readings: list[WorkReading]) -> list[dict[str, object]]:
    """Rows of ``samples`` for readings of a counter."""
    return [
        {"time_ns": r.time_ns, "device": device, "channel": channel, "value": float(value)}
        for r in readings
        for channel, value in ((WORK, r.done), (WORK_RESETS, r.resets), (WORK_READ, r.took_s))
    ]
