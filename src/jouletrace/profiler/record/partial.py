"""What a recording has measured so far: as data, and as a line to print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jouletrace.report.document import printable
from jouletrace.report.scale import quantity

_SHOWN = 4
"""Ranges in a printed line."""


@dataclass(frozen=True)
class RangeSoFar:
    """The ranges of one name in the same ranges, or steps, that ended and that the power record has passed.

    Attributes:
        count: How many.
        time_s: Mean seconds of one.
        energy_j: Mean joules of one, all devices together, as the sensor saw it; None with a ``reason``.
        last_time_s, last_energy_j: Of the last one; joules None where it is too short for the sensor.
        reason: Why there is no energy: "sensor_too_slow" for short ones (ask ``Recording.recent`` for
            those), "no_power_sensor", "outside_record".
    """

    count: int
    time_s: float
    energy_j: float | None
    last_time_s: float
    last_energy_j: float | None
    reason: str | None = None


@dataclass(frozen=True)
class SoFar:
    """Plain sums of the power record for the eye, without intervals: figures with those are in the Run.

    Attributes:
        label: The recording's.
        time_s: Seconds since it began that the power record has passed; where none is, until the last mark.
        energy_j: Joules of all devices in that time; None if one of them tells no power.
        power_w: Their mean power since the reading before.
        hole_s: Seconds of it without readings, in which the energy is a guess.
        ranges: By path: names from the outermost range inwards, with "/" between; steps are "step".
        simulated: Whether a device is a simulated board.
        problem: Why nothing more comes; None while all is well.
    """

    label: str
    time_s: float
    energy_j: float | None
    power_w: float | None
    hole_s: float = 0.0
    ranges: Mapping[str, RangeSoFar] = field(default_factory=dict)
    simulated: bool = False
    problem: str | None = None

    def __str__(self) -> str:
        """One line: time, energy, power, and the ranges with the most energy, or time where there is no energy."""
        parts = [quantity(self.time_s, "s"), quantity(self.energy_j, "J")]
        if self.power_w is not None:
            parts.append(quantity(self.power_w, "W"))
        known = [(path, found) for path, found in self.ranges.items() if found.energy_j is not None]
        known.sort(key=lambda item: -(item[1].energy_j or 0.0) * item[1].count)
        for path, found in known[:_SHOWN]:
            parts.append(f"{path} {quantity(found.energy_j, 'J')} × {found.count}")
        if all(found.reason == "no_power_sensor" for found in self.ranges.values()):
            longest = sorted(self.ranges.items(), key=lambda item: -item[1].time_s * item[1].count)
            parts += [f"{path} {quantity(found.time_s, 's')} × {found.count}" for path, found in longest[:_SHOWN]]
        if self.hole_s:
            parts.append(f"{quantity(self.hole_s, 's')} without readings")
        if self.problem:
            parts.append(self.problem)
        mark = "SIMULATED " if self.simulated else ""
        return printable(f"{mark}{self.label}: {', '.join(parts)}")
