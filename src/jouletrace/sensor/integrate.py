"""Energy of windows on a gapless record: each reading is the mean power since the one before."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jouletrace.errors import BadInputError

_CHUNK = 1 << 16
"""Windows at a time: their temporaries stay in the cache, and memory stays that of the input."""


def cumulative_energy(time_ns: NDArray[np.int64], power_w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Joules from the first stamp to each stamp, shape (n,); the first reading has no known start."""
    energy = np.zeros(len(time_ns))
    if len(time_ns) > 1:
        np.cumsum(np.diff(time_ns) * power_w[1:], out=energy[1:])
        energy *= 1e-9
    return energy


def integrate(time_ns: ArrayLike, power_w: ArrayLike, start_ns: ArrayLike, end_ns: ArrayLike) -> NDArray[np.float64]:
    """Energy of each window [start, end] by step interpolation of the record, as is.

    ``power_w[i]`` holds over ``(time_ns[i-1], time_ns[i]]``. The energy of a window is the
    difference of the running integral at its ends; the origin is subtracted from all times while
    they are still integers, so times are exact to the nanosecond within 104 days of the first stamp.
    Fastest when windows are sorted by start. Response and lag of the sensor are not corrected:
    ``sensor.windows.energy`` does that.

    Args:
        time_ns: Strictly increasing stamps, shape (n,).
        power_w: Readings in watts, shape (n,).
        start_ns: Starts, shape (m,).
        end_ns: Ends, shape (m,).

    Returns:
        Joules, shape (m,). NaN where a window reaches outside [first stamp, last stamp], or ends
        before it starts.

    Raises:
        BadInputError: If shapes don't match or stamps don't increase.
    """
    time, power = np.asarray(time_ns, np.int64), np.asarray(power_w, np.float64)
    start, end = np.atleast_1d(np.asarray(start_ns, np.int64)), np.atleast_1d(np.asarray(end_ns, np.int64))
    if time.shape != power.shape or time.ndim != 1:
        raise BadInputError(f"power record: {time.shape} stamps do not go with {power.shape} readings")
    if start.shape != end.shape or start.ndim != 1:
        raise BadInputError(f"windows: {start.shape} starts do not go with {end.shape} ends")
    if len(time) > 1 and not np.all(time[1:] > time[:-1]):
        raise BadInputError("power record: stamps must increase; see energy.record.clean")
    energy = np.full(len(start), np.nan)
    if len(time) < 2:
        return energy
    origin = time[0]
    knots = (time - origin).astype(np.float64)
    running = cumulative_energy(time, power)
    for i in range(0, len(start), _CHUNK):
        part = slice(i, i + _CHUNK)
        # Times outside the record come back as NaN, and so does the difference.
        begin = np.interp((start[part] - origin).astype(np.float64), knots, running, left=np.nan, right=np.nan)
        finish = np.interp((end[part] - origin).astype(np.float64), knots, running, left=np.nan, right=np.nan)
        np.subtract(finish, begin, out=energy[part])
        energy[part][end[part] < start[part]] = np.nan
    return energy
