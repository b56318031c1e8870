"""Differences of a running counter such as RAPL: each reading is the mean since the one before."""

from jouletrace.sensor.kinds.base import Kind, Means, nominal

KIND = Kind(
    lambda channel: (
        bool(channel.gapless and channel.window_s)
        and channel.window_s == channel.period_s
        and channel.delay_s is not None
    ),
    nominal(0.001, 0.001, 0.0005, 0.0002),
    Means(0.001, 0.0, 1.5e-3, 1e-6),
)
