"""Counters of the real work of a running program, by which its energy is divided.

A counter is monotonic: tokens generated, requests answered, images processed. Each source has one module:
``work_counter_http`` (a Prometheus endpoint) and ``work_counter_output`` (lines that a command prints).
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
        took_s: Duration of the read in seconds: the count belongs to an unknown time within it.
        done: Units of work counted since the first reading.
        resets: Number of observed restarts of the counter so far.
    """

    time_ns: int
    took_s: float
    done: float
    resets: int


class WorkCounter(Protocol):
    """A counter of work that runs along with the recording and never blocks it."""

    source: str
    """Its source, for the Run."""

    unit: str
    """Unit of work, as one word or name."""

    def start(self, clock: Clock) -> None:
        """Start counting; returns at once, or after one attempt to read with a timeout.

        Raises:
            BadInputError: If there is certainly nothing to count.
        """

    def take(self) -> list[WorkReading]:
        """Readings since the last call, oldest first; never blocks."""

    def problem(self) -> str | None:
        """Why it can't be read now, in one line; None if it can."""

    def stop(self) -> list[WorkReading]:
        """Read once more, within a few seconds, and stop; readings since ``take``. Safe to call twice."""

    def warnings(self) -> list[tuple[str, str]]:
        """Codes and messages for ``Run.warnings``. Call it after ``stop``."""


_GLITCH = 1000.0
"""Ratio of an increase to the increase that the next reading confirms, from which a single reading is wrong."""


@dataclass
class _Series:
    """One series of a counter: its last value, its growth so far, and both at the previous reading."""

    last: float
    grown: float = 0.0
    earlier: float = math.nan
    grown_earlier: float = 0.0

    def take(self, value: float) -> str:
        """Continue with a new value; returns "reset" or "glitch" if the values show one, else ""."""
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
    """Sums the growth of several series of one counter across their resets.

    A series below its last value has restarted from zero, as ``increase()`` of Prometheus assumes:
    work between its last reading and the reset is lost, and the reset is counted.
    A series that continues from its value before a jump had one wrong reading, which is ignored.
    A series that appears later began at zero. A series that disappears may return. A series that is NaN at first
    counts from its first number.

    Attributes:
        resets: Number of restarts of a series.
        glitches: Number of wrong readings.
    """

    def __init__(self) -> None:
        self.resets = self.glitches = 0
        self._series: dict[str, _Series] | None = None

    @property
    def done(self) -> float:
        """Growth of all series."""
        return math.fsum(series.grown for series in (self._series or {}).values())

    def add(self, values: Mapping[str, float]) -> None:
        """Add one reading: values by series. Counting begins at the first one."""
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
    """The channels of a counter, under the Run's first device."""
    source = f"{counter.source} ({counter.unit})"
    return [ChannelInfo(device, name, CHANNEL_UNITS[name][0], source) for name in (WORK, WORK_RESETS, WORK_READ)]


def sample_rows(device: str, readings: list[WorkReading]) -> list[dict[str, object]]:
    """Rows of ``samples`` for readings of a counter."""
    return [
        {"time_ns": r.time_ns, "device": device, "channel": channel, "value": float(value)}
        for r in readings
        for channel, value in ((WORK, r.done), (WORK_RESETS, r.resets), (WORK_READ, r.took_s))
    ]
