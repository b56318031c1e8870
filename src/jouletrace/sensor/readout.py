"""Times of readings: the regular grid behind a power record's jittering stamps."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from jouletrace.arrays import Floats, Indices, Ints
from jouletrace.errors import BadInputError
from jouletrace.run.readings import Readings

_LEAST = 50
"""Least readings for a grid: one second of 20 ms each."""

_PERIODS = 1 + np.arange(-150e-6, 151e-6, 1e-6)
"""Candidate periods over the nominal one; GPUs read every 20.0000 to 20.0006 ms of the host's clock."""


_BINS = 400
_ON_TIME_S = 0.4e-3
"""Largest offset of a punctual stamp from the grid; one stamp in five is 3 ms late, though its value isn't."""


def on_grid(stamp_ns: ArrayLike, watts: ArrayLike, period_s: float = 20e-3) -> Readings:
    """Fit the grid of the readout to the stamps of a record.

    It is the grid with most stamps on it, a mode. A mean would follow the late stamps, and one slipped index early in a
    record would cause a drift of milliseconds.

    ``stamps.find_grid`` serves windows and calibration: records of few readings and of any sensor, and readings at
    parts of a period. Its slots begin at the front of the stamps' jitter; a sampler's phase needs the mode.

    Args:
        stamp_ns: Since the Unix epoch, any order, shape (n,).
        watts: Shape (n,).
        period_s: About that of the grid.

    Raises:
        BadInputError: With fewer than 50 readings, if one is no number, if they don't come every period, if all are
            alike, if many are there twice, or if one stands far from the others.
    """
    stamps, values = _sorted(stamp_ns, watts)
    time = (stamps - stamps[0]) / 1e9
    _check(time, values, period_s)
    period, phase = _mode(time, period_s)
    for _ in range(4):
        slot = np.round(time / period - phase)
        late = time - slot * period
        punctual = np.abs(late - np.median(late)) < _ON_TIME_S
        period, offset = np.polyfit(slot[punctual], time[punctual], 1)
        phase = offset / period
    slot = np.round(time / period - phase).astype(np.int64)
    late = time - (slot + phase) * period
    punctual = np.abs(late) < _ON_TIME_S
    if punctual.mean() < 0.5:
        raise BadInputError(
            f"power record: {punctual.mean():.0%} of its stamps lie on a grid of {period_s * 1e3:.0f} ms; "
            "it isn't the driver's record"
        )
    taken = (slot + phase) * period + _wander(time[punctual], late[punctual], time)
    keep = _best(slot, np.abs(late))
    # of a GPU whose readout slips, one reading in 700 is of the same time as another
    if len(keep) < 0.8 * len(slot):
        raise BadInputError(
            f"power record: {len(slot) - len(keep)} of its {len(slot)} readings are of the same time as another; "
            "is it in the file twice, or of several GPUs?"
        )
    return Readings(stamps[keep], values[keep], period, origin_ns=int(stamps[0]), true_s=taken[keep])


def _check(time: Floats, values: Floats, period_s: float) -> None:
    """Refuse a record that can't be of one interval of time, before arrays over that time are made."""
    if not np.ptp(values):
        raise BadInputError(f"power record: all its {len(values)} readings are {values[0]:g} W; no sensor says that")
    gaps = np.diff(time)
    if time[-1] > 20 * len(time) * period_s:
        at = int(np.argmax(gaps))
        raise BadInputError(
            f"power record: its {len(time)} readings, one every {period_s * 1e3:.0f} ms, span {time[-1]:.4g} s; "
            f"there is a hole of {gaps[at]:.4g} s after reading {at + 1}: give one contiguous record"
        )


def _sorted(stamp_ns: ArrayLike, value: ArrayLike) -> tuple[Ints, Floats]:
    """Stamps in order, and their values."""
    stamps, values = np.asarray(stamp_ns, np.int64), np.asarray(value, np.float64)
    if len(stamps) < _LEAST:
        raise BadInputError(f"power record: {len(stamps)} readings; {_LEAST} are needed to see when they were taken")
    if not np.isfinite(values).all():
        wrong = int((~np.isfinite(values)).sum())
        raise BadInputError(f"power record: {wrong} of its {len(values)} readings are no numbers; leave them out")
    order = np.argsort(stamps, kind="stable")
    return stamps[order], values[order]


def _mode(time: Floats, nominal: float) -> tuple[float, float]:
    """Period, and phase in periods, of the grid with most stamps on it."""

    def crowd(period: float) -> tuple[int, float, float]:
        counts = np.histogram((time / period) % 1, bins=_BINS, range=(0, 1))[0]
        counts = counts + np.roll(counts, 1)
        best = int(np.argmax(counts))
        return int(counts[best]), period, best / _BINS

    _, period, phase = max(crowd(float(candidate)) for candidate in nominal * _PERIODS)
    return period, phase


def _best(slot: Ints, off: Floats) -> Indices:
    """The stamp nearest to each place, in order; shape (places,).

    Two stamps in a place mean that a readout slipped by 13 ms from the previous place, which is empty then. Its value
    belongs to neither.
    """
    order = np.lexsort((off, slot))
    return np.asarray(order[np.append(True, np.diff(slot[order]) > 0)])


def _wander(time: Floats, late: Floats, at: Floats) -> Floats:
    """The slow part of the offsets of punctual stamps: medians over ten seconds, interpolated linearly."""
    # the host's clock wanders by 50 us against the readout
    pieces = np.array_split(np.arange(len(time)), max(1, round((time[-1] - time[0]) / 10.0)))
    middle = [float(np.mean(time[piece])) for piece in pieces]
    return np.interp(at, middle, [float(np.median(late[piece])) for piece in pieces])
