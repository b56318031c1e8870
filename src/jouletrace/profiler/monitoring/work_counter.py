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


_GLITCH = 1000.0
"""A counter that grew so many times as much as it then turns out to have grown had not: one reading was wrong."""


@dataclass
class _Series:
    """One series of a counter: its last value, what it has grown by until then, and both as of the reading before."""

    last: float
    grown: float = 0.0
    earlier: float = math.nan
    grown_earlier: float = 0.0

    def take(self, value: float) -> str:
        """Count on to a value; says "reset" or "glitch" if that is what it took the values for."""
        found = ""
        if value < self.last:
            risen = value - self.earlier
            if risen >= 0 and self.last - self.earlier > _GLITCH * max(risen, 1.0):
                found, self.last, self.grown = "glitch", self.earlier, self.grown_earlier
            else:
                found, self.last = "reset", 0.0
        elif math.isnan(self.last):
            self.last = value
        self.earlier, self.grown_earlier = self.last, self.grown
        self.grown += value - self.last
        self.last = value
        return found


class Tally:
    """Adds up what several series of one counter have grown by, across their resets.

    A series below its last value has started again from zero, as ``increase()`` of Prometheus takes
    it: what it had counted between its last reading and the reset is lost, and the reset is counted.
    One that goes on where it was before a jump had one wrong reading, which counts nothing then.
    One that appears later began at zero. One that goes away may come back. One that was NaN at first
    counts from its first number on.

    Attributes:
        resets: How often a series started again.
        glitches: How many readings were wrong.
    """

    def __init__(self) -> None:
        self.resets = self.glitches = 0
        self._series: dict[str, _Series] | None = None

    @property
    def done(self) -> float:
        """What all series have grown by."""
        return math.fsum(series.grown for series in (self._series or {}).values())

    def add(self, values: Mapping[str, float]) -> None:
        """Take one reading: values by series. The first is where counting begins."""
        if self._series is None:
            self._series = {name: _Series(value) for name, value in values.items()}
            return
        for name, value in values.items():
            if not math.isfinite(value):
                self._series.setdefault(name, _Series(math.nan))
                continue
            found = self._series.setdefault(name, _Series(0.0)).take(value)
            self.resets += found == "reset"
            self.glitches += found == "glitch"


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
