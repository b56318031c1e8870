"""What a sensor published, from polls of it: each update once, the ones that repeated the last value too."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jouletrace.energy.stamps import updates


def published(
    stamps: NDArray[np.int64], values: NDArray[np.float64], period_s: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The updates behind polled readings.

    A value that changed is an update. One that stood still for longer than the sensor can go
    without an update was published again: it is put where the update must have been, so that a
    board at rest leaves no hole. A stretch in which nobody polled stays one.

    Args:
        stamps: Times of the reads in ns, increasing, shape (n,).
        values: What was read, shape (n,).
        period_s: Update period of the sensor.

    Returns:
        Times and values of the updates. The age of the very first read is unknown: it counts only
        where it stood still for a period and more.
    """
    if len(stamps) == 0:
        return stamps, values
    at, value = updates(stamps, values)
    period = period_s * 1e9
    if len(at) == 0:
        at, value = stamps[:1], values[:1]
    elif at[0] - stamps[0] >= period:
        first = at[0] - round((at[0] - stamps[0]) // period * period)
        at, value = np.append(first, at), np.append(values[0], value)
    until = np.append(at[1:], stamps[-1] + 1)
    # An update may be seen up to half a period late before one must have been lost in between.
    repeats = np.maximum(np.floor((until - at) / period - 0.5), 0).astype(np.int64)
    total = int(repeats.sum())
    number = np.arange(1, total + 1) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    again = np.repeat(at, repeats) + np.round(number * period).astype(np.int64)
    after = np.clip(np.searchsorted(stamps, again), 1, max(len(stamps) - 1, 1))
    nearest = np.minimum(np.abs(stamps[after - 1] - again), np.abs(stamps[np.minimum(after, len(stamps) - 1)] - again))
    polled = nearest < period
    times = np.concatenate([at, again[polled]])
    order = np.argsort(times, kind="stable")
    return times[order], np.concatenate([value, np.repeat(value, repeats)[polled]])[order]
