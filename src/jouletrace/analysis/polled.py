"""What a sensor published, from polls of it: each update once, the ones that repeated the last value too."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jouletrace.sensor.stamps import updates

_FEW = 8
"""Repetitions per poll up to which all are considered; more lie in segments without polls."""


def published(
    stamps: NDArray[np.int64], values: NDArray[np.float64], period_s: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The updates behind polled readings.

    A value that changed is an update. One that stood still for longer than the sensor can go
    without an update was published again: it is put where the update must have been, so that a
    GPU at rest leaves no hole. A segment without polls stays a hole.

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
    if total <= _FEW * len(stamps):
        owner = np.repeat(np.arange(len(at)), repeats)
        number = np.arange(1, total + 1) - (np.cumsum(repeats) - repeats)[owner]
    else:
        owner, number = _near_polls(stamps, at, repeats, period)
    again = at[owner] + np.round(number * period).astype(np.int64)
    after = np.clip(np.searchsorted(stamps, again), 1, max(len(stamps) - 1, 1))
    nearest = np.minimum(np.abs(stamps[after - 1] - again), np.abs(stamps[np.minimum(after, len(stamps) - 1)] - again))
    polled = nearest < period
    times = np.concatenate([at, again[polled]])
    order = np.argsort(times, kind="stable")
    return times[order], np.concatenate([value, value[owner][polled]])[order]


def _near_polls(
    stamps: NDArray[np.int64], at: NDArray[np.int64], repeats: NDArray[np.int64], period: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Repetitions of updates that lie about a poll: which update, and the how manieth of its repetitions, in order.

    Others can't be determined from a segment without polls, which may be years long where a stamp is damaged.
    """
    # The poll that saw an update bounds the repetitions of the one before it too.
    owner = np.concatenate([np.searchsorted(at, stamps, side) - 1 for side in ("left", "right")])
    poll = np.concatenate([stamps, stamps])
    owner, poll = owner[owner >= 0], poll[owner >= 0]
    nearest = np.floor((poll - at[owner]) / period).astype(np.int64)
    fresh = np.append(True, (np.diff(owner) != 0) | (np.diff(nearest) != 0))[: len(owner)]  # polls come many an update
    owner, nearest = np.tile(owner[fresh], 4), np.concatenate([nearest[fresh] + step for step in (-1, 0, 1, 2)])
    good = (nearest >= 1) & (nearest <= repeats[owner])
    owner, nearest = owner[good], nearest[good]
    order = np.lexsort((nearest, owner))
    owner, nearest = owner[order], nearest[order]
    fresh = np.append(True, (np.diff(owner) != 0) | (np.diff(nearest) != 0))[: len(owner)]
    return owner[fresh], nearest[fresh]
