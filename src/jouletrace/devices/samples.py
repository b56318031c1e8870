"""Helper of the sources of readings."""

from __future__ import annotations

import numpy as np

from jouletrace.devices.base import Samples


def one_sample(channel: str, time_ns: int, value: float) -> Samples:
    """A single reading."""
    return Samples(channel, np.array([time_ns], dtype=np.int64), np.array([value], dtype=np.float64))
