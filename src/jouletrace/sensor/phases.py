"""Readings as they were with samples at many phases of one rate: ``sampler.read_out`` fast enough for a search.

Samples are looked up in a table of what the sensor would see at each moment, in single precision, at a constant rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from jouletrace.arrays import Floats, Ints
from jouletrace.sensor.models import SampleResponse, Sensor

GRID_S = 10e-6
"""Spacing of the table of possible samples: far finer than a response."""

_TOGETHER = 100
"""Readings over which an average decays by no more than a double can hold: 26 samples each, of at least 8 averaged."""

_TURN = 8
"""Readings whose samples are looked up at many rates in turn."""

_AT_ONCE = 1 << 17
"""Values that are convolved at a time: few enough to stay in a processor's cache for all lags."""

SETTLE_S = 0.12
"""Readings later than this after the start contain at most e^-9 of what was before it (e^-4.6 at 32 averages)."""


def responded(response: SampleResponse, values: Floats) -> NDArray[np.float32]:
    """Value of a sample in each bin: the convolution with the response on the grid."""
    lags = np.arange(np.floor(response.earliest_s / GRID_S), np.ceil(response.latest_s / GRID_S) + 1)
    edges = np.append(lags - 0.5, lags[-1] + 0.5) * GRID_S
    narrow, out = values.astype(np.float32), np.zeros(values.shape, np.float32)
    weights = np.diff(response.within(edges)).astype(np.float32)
    rows = max(1, _AT_ONCE // max(1, values.shape[1]))
    product = np.empty((min(rows, len(out)), values.shape[1]), np.float32)
    for first in range(0, len(out), rows):
        last = min(first + rows, len(out))
        for weight, lag in zip(weights, lags.astype(int).tolist(), strict=True):
            begin, end = max(first, lag), min(last, len(out) + lag)
            if begin < end:
                out[begin:end] += np.multiply(weight, narrow[begin - lag : end - lag], out=product[: end - begin])
    return out


@dataclass(frozen=True)
class ReadingSeries:
    """Readings since a start, missing ones included, for searches that ask for the same readings at many rates."""

    start_s: float
    times_s: Floats  # of every reading since the start, shape (m,)
    number: Ints  # of those that are there among them, shape (n,)

    @classmethod
    def from_times(cls, time_s: Floats, start_s: float) -> ReadingSeries:
        """The places of readings at these times, shape (n,), of which the first is later than ``start_s``."""
        period = float(np.median(np.diff(time_s)))
        number = np.rint((time_s - time_s[0]) / period).astype(np.int64) + int((time_s[0] - start_s) / period)
        every = np.arange(number[-1] + 1)
        return cls(start_s, np.interp(every, number, time_s) - period * np.maximum(number[0] - every, 0), number)


def designs(
    sensor: Sensor,
    seen: NDArray[np.float32],
    first_edge_s: float,
    rates_hz: Floats,
    phases: Floats,
    places: ReadingSeries,
) -> Floats:
    """Readings of each column with samples at ``start_s + (n + phase) / rate``; (rates, phases, readings, columns)."""
    start_s = places.start_s
    rate = rates_hz[:, None, None]
    last = np.floor((places.times_s - sensor.delay_s - start_s) * rate - phases[:, None]).astype(np.int64)
    last = np.maximum(last, 0)
    count = np.diff(last, axis=-1, prepend=0)
    step = 1 / (rate * GRID_S)  # from one sample to the next, in entries of the table
    at, first = (last + phases[:, None]) * step, phases[:, None] * step

    def samples(some: slice, age: Ints) -> Ints:
        """Places in the table of samples so many before the last one of each reading."""
        entry = np.maximum(at[..., some, None] - age * step[..., None], first[..., None])
        entry += (start_s - first_edge_s) / GRID_S
        return entry.astype(np.int32)

    return np.asarray(_averaged(seen, samples, count, sensor.averages)[:, :, places.number], np.float64)


def _averaged(
    seen: NDArray[np.float32], samples: Callable[[slice, Ints], Ints], count: Ints, averages: int
) -> NDArray[np.float32]:
    """The recursive average of ``sampler.read_out`` at the readings alone.

    From one reading to the next the average decays, and the ``count`` samples in between enter, shape (rates, phases,
    readings). Rates take turns at every few readings, whose part of the table stays in the processor's cache.

    Returns:
        Shape (rates, phases, readings, columns).
    """
    keep = np.float32(1 - 1 / averages)
    age = np.arange(count.max())
    weight = keep ** age.astype(np.float32) / np.float32(averages)
    state = np.empty((*count.shape, seen.shape[1]), np.float32)
    for some in (slice(i, i + _TURN) for i in range(0, count.shape[2], _TURN)):
        entry, share = samples(some, age), np.where(age < count[..., some, None], weight, np.float32(0))
        if some.start == 0:
            share[:, :, 0] = 1 / len(age)
        ends = np.arange(0, entry.size + 1, len(age), dtype=np.int32)
        entered = csr_matrix((share.ravel(), entry.ravel(), ends), (len(ends) - 1, len(seen))) @ seen
        state[:, :, some] = entered.reshape(*entry.shape[:3], -1)
    # state[i] += keep ** count[i] * state[i - 1], as sums of what the decay so far divides; few enough that it isn't 0
    for begin in range(1, count.shape[2], _TOGETHER):
        some = slice(begin, begin + _TOGETHER)
        decayed = (float(keep) ** np.cumsum(count[..., some], axis=2))[..., None]
        state[:, :, some] = decayed * (state[:, :, begin - 1, None] + np.cumsum(state[:, :, some] / decayed, axis=2))
    return state
