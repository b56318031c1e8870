"""10 ms of every 20 ms (Yang, Adamek and Armour, "Part-time power measurements", SC 2024)."""

from jouletrace.sensor.kinds.base import PART_TIME, Kind, nominal

KIND = Kind(
    lambda channel: (channel.period_s or 0.02) < 0.05,
    nominal(0.020, 0.010, 0.005, 0.003, jitter_s=0.002),
    PART_TIME,
)
