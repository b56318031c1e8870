"""25 ms of every 100 ms (Yang, Adamek and Armour, "Part-time power measurements", SC 2024)."""

from jouletrace.sensor.kinds.base import PART_TIME, Kind, nominal

KIND = Kind(
    lambda channel: True,
    nominal(0.100, 0.025, 0.025, 0.005, jitter_s=0.003),
    PART_TIME,
)
