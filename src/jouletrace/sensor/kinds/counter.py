"""Differences of a running counter such as RAPL: each reading is the mean since the one before."""

from jouletrace.sensor.kinds.base import COUNTER, Kind, nominal

KIND = Kind(
    lambda channel: (
        bool(channel.gapless and channel.window_s)
        and channel.window_s == channel.period_s
        and channel.delay_s is not None
    ),
    nominal(0.001, 0.001, 0.0005, 0.0002),
    COUNTER,
)
