"""A mean over the last second (Yang, Adamek and Armour, "Part-time power measurements", SC 2024)."""

from jouletrace.sensor.kinds.base import SECOND, Kind, nominal

KIND = Kind(
    lambda channel: (channel.window_s or 0.0) > 4 * (channel.period_s or 0.02),
    nominal(0.100, 1.0, 0.05, 0.02, jitter_s=0.005),
    SECOND,
)
