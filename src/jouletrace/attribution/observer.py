"""Readings as linear functions of the powers: for sensors that sample and for sensors that average."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from jouletrace.attribution.activity import Activity
from jouletrace.sensor.models import BIN_S, BINS_S, Means, SampleResponse, Sensor
from jouletrace.sensor.sampler import Readout, Track
from jouletrace.sensor.shares import Shape
from jouletrace.stats.regression import Prior

Array = NDArray[np.float64]

TRACK_UNIT_S, TRACK_BEND = 1e-5, 0.1
"""Unit and prior of a track: second differences of its coefficients have a standard deviation of 1e-4 s."""

DELAY_UNIT_S, STRETCH_UNIT, EDGE_S = 1e-3, 0.01, 0.3e-3
"""Units of a window's delay and excess length, and scatter of its ends."""


@dataclass(frozen=True)
class Observed:
    """The regressors of each reading."""

    shares: Array  # share of each column of the activity, idle last, shape (n, columns)
    value: Array  # mean of a value given per interval, shape (n,)
    shift: Array  # derivative by each entry of the observer's ``place``, W, shape (n, m)
    # Derivative by the weight of each bin of the response, W, shape (n, bins); no columns for a sensor that averages,
    # or where they aren't requested
    shape: Array

    def scaled(self, factor: float) -> Observed:
        """The regressors of values and powers times a factor."""
        return Observed(self.shares, factor * self.value, factor * self.shift, factor * self.shape)


class Observer(Protocol):
    """A sensor with its place in time."""

    @property
    def reach_s(self) -> float:
        """Time before a reading on which it depends; a sampler's average doesn't count."""

    @property
    def place(self) -> Array:
        """Its fitted place in time, in units in which steps of about 1 are linear; shape (m,)."""

    @property
    def prior(self) -> Prior:
        """Prior of ``place``."""

    def moved(self, place: Array, change: Array) -> Observer:
        """The observer at another place, with a sampler's response ``change`` away from the nominal one."""

    def observe(self, activity: Activity, time_s: Array, value: Array, watts: Array, shape: bool = False) -> Observed:
        """The regressors of readings.

        Args:
            activity: What ran.
            time_s: Times of the readings, shape (n,).
            value: Value of each interval of the activity.
            watts: Approximate power of each interval above idle, for ``Observed.shift`` and ``Observed.shape``.
            shape: Whether to compute ``Observed.shape``, which takes most of the time.
        """


@dataclass(frozen=True)
class Sampled:
    """A sensor that takes momentary samples, with their times."""

    sensor: Sensor  # the nominal sensor
    track: Track  # times of its samples
    # Difference of the response from the nominal one in the bins of ``BINS_S``
    change: Array = field(default_factory=lambda: np.zeros(len(BINS_S) - 1))

    def observe(self, activity: Activity, time_s: Array, value: Array, watts: Array, shape: bool = False) -> Observed:
        """See ``Observer``."""
        at = self.track.instants()
        readout = Readout.from_record(self.sensor, at, time_s)
        sums, total, change = activity.seen(at, self.response, value, watts, (readout.row, readout.factor))
        last, _, _ = activity.seen(at[readout.last], self.response, value, watts)
        basis = self.track.basis() * (TRACK_UNIT_S * change)[:, None]
        bins = np.zeros((len(at), 0))
        if shape:
            edges = (at[:, None] - BINS_S[::-1][None, :]).ravel()
            bins = np.diff(activity.integral(edges, watts).reshape(len(at), len(BINS_S)), axis=1)[:, ::-1] / BIN_S
        others = (total[:, None], basis, bins)
        entered = np.hstack([readout.sums(one) for one in others])
        read = readout.readings(entered, np.hstack([one[readout.last] for one in others]))
        moves = 1 + basis.shape[1]
        return Observed(readout.readings(sums, last), read[:, 0], read[:, 1:moves], read[:, moves:])

    @property
    def reach_s(self) -> float:
        """See ``Observer``."""
        return 0.0

    @property
    def place(self) -> Array:
        """Coefficients of the track, in ``TRACK_UNIT_S``."""
        return self.track.shift_s / TRACK_UNIT_S

    @property
    def prior(self) -> Prior:
        """The rate changes slowly."""
        bend = np.diff(np.eye(len(self.place)), 2, axis=0) * TRACK_BEND
        rows = np.vstack([bend, 1e-3 * np.eye(len(self.place))])  # the identity keeps it regular
        return Prior(rows, np.zeros(len(rows)))

    def moved(self, place: Array, change: Array) -> Sampled:
        """See ``Observer``."""
        return replace(self, track=replace(self.track, shift_s=place * TRACK_UNIT_S), change=change)

    @property
    def response(self) -> SampleResponse:
        """Response of a sample."""
        return self.sensor.response.plus(self.change)

    @property
    def shape_prior(self) -> Prior:
        """A response is smooth and near the nominal one, and its weights sum to 1.

        Bins have nominal weights of 0.09 at most. Twice as wide, the prior takes what powers inside kernels do to the
        readings of a few kernels in fixed order, and powers become negative; half as wide, intervals of simulated
        sensors with other responses miss.
        """
        away = np.eye(len(self.change)) / 0.015
        bend = np.diff(np.eye(len(self.change)), 2, axis=0) / 0.006
        rows = np.vstack([away, bend, np.full((1, len(self.change)), 1e5)])
        return Prior(rows, np.zeros(len(rows)))


@dataclass(frozen=True)
class Averaged:
    """A sensor whose readings are means over windows: part-time sensors, means over a second."""

    sensor: Means  # the nominal sensor
    delay_s: float  # from a window's end to its reading
    stretch: float = 0.0  # relative excess of the windows' length

    def observe(self, activity: Activity, time_s: Array, value: Array, watts: Array, shape: bool = False) -> Observed:
        """See ``Observer``."""
        window_s, end_s = self.sensor.window_s * (1 + self.stretch), time_s - self.delay_s
        shares = Shape(0.0, window_s, ()).shares(end_s, activity.timeline)

        def mean(of: Array, late_s: float = 0.0, longer_s: float = 0.0) -> Array:
            first, last = (activity.integral(end_s - back_s, of) for back_s in (late_s + window_s + longer_s, late_s))
            return (last - first) / window_s

        later = (mean(watts, EDGE_S) - mean(watts, -EDGE_S)) / (2 * EDGE_S)
        longer = (mean(watts, 0.0, EDGE_S) - mean(watts, 0.0, -EDGE_S)) / (2 * EDGE_S) * window_s - mean(watts)
        shift = np.column_stack([DELAY_UNIT_S * later, STRETCH_UNIT * longer / (1 + self.stretch)])
        every = np.column_stack([shares, 1 - shares.sum(axis=1)])
        return Observed(every, mean(value), shift, np.zeros((len(time_s), 0)))

    @property
    def reach_s(self) -> float:
        """See ``Observer``."""
        return self.sensor.window_s * (1 + self.stretch) + self.delay_s

    @property
    def place(self) -> Array:
        """Delay and excess length, in their units."""
        return np.array([self.delay_s / DELAY_UNIT_S, self.stretch / STRETCH_UNIT])

    @property
    def prior(self) -> Prior:
        """Scatter between GPUs."""
        centre = np.array([self.sensor.delay_s / DELAY_UNIT_S, 0.0])
        spread = np.array([self.sensor.delay_spread_s / DELAY_UNIT_S, self.sensor.stretch_spread / STRETCH_UNIT])
        return Prior.independent(centre, spread)

    def moved(self, place: Array, change: Array) -> Averaged:
        """See ``Observer``."""
        return replace(self, delay_s=float(place[0] * DELAY_UNIT_S), stretch=float(place[1] * STRETCH_UNIT))
