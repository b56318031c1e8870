"""Intermediate figures of a recording, as data and as a printable line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jouletrace.report.document import printable
from jouletrace.report.scale import quantity

_SHOWN = 4
"""Ranges in a printed line."""


@dataclass(frozen=True)
class RangeSoFar:
    """The ended ranges or steps of one path that the power record has passed.

    Attributes:
        count: Number of ranges.
        time_s: Mean duration in seconds.
        energy_j: Mean energy in joules over all devices, without correction for the sensor; None with a ``reason``.
        last_time_s, last_energy_j: Figures of the last range; joules None if it is too short for the sensor.
        reason: Why there is no energy: "sensor_too_slow" for short ranges (use ``Recording.recent`` for
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
    """Plain sums of the power record for live displays, without intervals, which the Run contains.

    Attributes:
        label: Label of the recording.
        time_s: Seconds from its beginning to the end of the power record; without one, to the last mark.
        energy_j: Energy of all devices in that time in joules; None if one of them reports no power.
        power_w: Their mean power since the previous call.
        hole_s: Seconds of that time without readings, for which the energy is an estimate.
        ranges: Figures by path: names from the outermost range inwards, separated by "/"; steps are "step".
        simulated: Whether a device is a simulated GPU.
        problem: Why recording has stopped; None while it runs.
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
        """One line: time, energy, power, and the ranges with the most energy, or the most time without energy."""
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
