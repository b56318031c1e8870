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
    # Stood still until the next update; one may be seen up to half a period late before one must have been lost.
    until = np.append(at[1:], stamps[-1])
    most = np.maximum(np.floor((until - at) / period - 0.5), 0)
    # Where a poll came less than a period from when it was published again: looked for from the polls, since
    # between them may lie years.
    last = np.searchsorted(at, stamps, side="left") - 1  # the update that it still shows, or at which the next one is
    shown = last >= 0
    late = (stamps[shown] - at[last[shown]]) / period
    owner = np.concatenate([last[shown], last[shown]])
    number = np.concatenate([np.floor(late), np.ceil(late)])
    some = (number >= 1) & (number <= most[owner])
    owner, number = owner[some], number[some]
    each = np.lexsort((number, owner))
    owner, number = owner[each], number[each]
    once = np.append(True, (np.diff(owner) != 0) | (np.diff(number) != 0))[: len(owner)]
    owner, number = owner[once], number[once]
    again = at[owner] + np.round(number * period).astype(np.int64)
    times = np.concatenate([at, again])
    order = np.argsort(times, kind="stable")
    return times[order], np.concatenate([value, value[owner]])[order]
