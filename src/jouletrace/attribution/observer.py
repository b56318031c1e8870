"""Readings as linear functions of the powers: for sensors that sample and for sensors that average."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from jouletrace.arrays import Floats
from jouletrace.attribution.activity import Activity
from jouletrace.sensor.models import BIN_S, BINS_S, Means, SampleResponse, Sensor
from jouletrace.sensor.sampler import Readout, SampleTimes
from jouletrace.sensor.shares import Shape
from jouletrace.stats.regression import LinearPrior

TRACK_UNIT_S, TRACK_BEND = 1e-5, 0.1
"""Unit and prior of a track: second differences of its coefficients have a standard deviation of 1e-4 s."""

DELAY_UNIT_S, STRETCH_UNIT, EDGE_S = 1e-3, 0.01, 0.3e-3
"""Units of a window's delay and excess length, and scatter of its ends."""


@dataclass(frozen=True)
class Observed:
    """The regressors of each reading."""

    shares: Floats  # share of each column of the activity, idle last, shape (n, columns)
    value: Floats  # mean of a value given per interval, shape (n,)
    shift: Floats  # derivative by each of the observer's ``unknowns``, W, shape (n, m)


@dataclass(frozen=True)
class Sampled:
    """A sensor that takes momentary samples, with their times."""

    sensor: Sensor  # the nominal sensor
    track: SampleTimes  # times of its samples
    # Difference of the response from the nominal one in the bins of ``BINS_S``
    change: Floats = field(default_factory=lambda: np.zeros(len(BINS_S) - 1))
    reach_s = 0.0  # time before a reading on which it depends; the average doesn't count

    def observe(
        self, activity: Activity, time_s: Floats, value: Floats, watts: Floats, shape: bool = False
    ) -> Observed:
        """The regressors of readings.

        Args:
            activity: What ran.
            time_s: Times of the readings, shape (n,).
            value: Value of each interval of the activity.
            watts: Approximate power of each interval above idle, for ``Observed.shift``.
            shape: Whether the response is among the ``unknowns``, which takes most of the time.
        """
        at = self.track.instants()
        readout = Readout.from_record(self.sensor, at, time_s)
        sums, total, change = activity.seen(at, self.response, value, watts, (readout.row, readout.factor))
        last, _, _ = activity.seen(at[readout.last], self.response, value, watts)
        others = [total[:, None], self.track.basis() * (TRACK_UNIT_S * change)[:, None]]
        if shape:
            edges = (at[:, None] - BINS_S[::-1][None, :]).ravel()
            bins = np.diff(activity.integral(edges, watts).reshape(len(at), len(BINS_S)), axis=1)[:, ::-1]
            others.append(bins / BIN_S)
        entered = np.hstack([readout.sums(columns) for columns in others])
        read = readout.readings(entered, np.hstack([columns[readout.last] for columns in others]))
        return Observed(readout.readings(sums, last), read[:, 0], read[:, 1:])

    def unknowns(self, shape: bool = False) -> tuple[Floats, LinearPrior]:
        """Place in time in units in which steps of about 1 are linear, and its prior; then the response's change.

        The place are the coefficients of the track, in ``TRACK_UNIT_S``: the rate changes slowly. A response is smooth
        and near the nominal one, and its weights sum to 1. Bins have nominal weights of 0.09 at most. Twice as wide,
        their prior takes what powers inside kernels do to the readings of a few kernels in fixed order, and powers
        become negative; half as wide, intervals of simulated sensors with other responses miss.
        """
        shifts = self.track.shift_s / TRACK_UNIT_S
        slow = _zero(_bends(len(shifts)) * TRACK_BEND, 1e-3 * np.eye(len(shifts)))  # the identity keeps it regular
        if not shape:
            return shifts, slow
        bins = len(self.change)
        near = _zero(np.eye(bins) / 0.015, _bends(bins) / 0.006, np.full((1, bins), 1e5))
        return np.append(shifts, self.change), slow.beside(near)

    def moved(self, unknowns: Floats) -> Sampled:
        """The observer at others of its ``unknowns``."""
        shifts, change = np.split(unknowns, [len(self.track.shift_s)])
        track = replace(self.track, shift_s=shifts * TRACK_UNIT_S)
        return replace(self, track=track, change=change if len(change) else self.change)

    @property
    def response(self) -> SampleResponse:
        """Response of a sample."""
        return self.sensor.response.plus(self.change)


def _bends(count: int) -> Floats:
    return np.diff(np.eye(count), 2, axis=0)


def _zero(*rows: Floats) -> LinearPrior:
    """A prior by which each of these sums of unknowns is 0 ± 1."""
    return LinearPrior(np.vstack(rows), np.zeros(sum(map(len, rows))))


@dataclass(frozen=True)
class Averaged:
    """A sensor whose readings are means over windows: part-time sensors, means over a second."""

    sensor: Means  # the nominal sensor
    delay_s: float  # from a window's end to its reading
    stretch: float = 0.0  # relative excess of the windows' length

    def observe(
        self, activity: Activity, time_s: Floats, value: Floats, watts: Floats, shape: bool = False
    ) -> Observed:
        """See ``Sampled``."""
        window_s, end_s = self.sensor.window_s * (1 + self.stretch), time_s - self.delay_s
        shares = Shape(0.0, window_s, ()).shares(end_s, activity.timeline)

        def mean(of: Floats, late_s: float = 0.0, longer_s: float = 0.0) -> Floats:
            first, last = (activity.integral(end_s - back_s, of) for back_s in (late_s + window_s + longer_s, late_s))
            return (last - first) / window_s

        later = (mean(watts, EDGE_S) - mean(watts, -EDGE_S)) / (2 * EDGE_S)
        longer = (mean(watts, 0.0, EDGE_S) - mean(watts, 0.0, -EDGE_S)) / (2 * EDGE_S) * window_s - mean(watts)
        shift = np.column_stack([DELAY_UNIT_S * later, STRETCH_UNIT * longer / (1 + self.stretch)])
        return Observed(np.column_stack([shares, 1 - shares.sum(axis=1)]), mean(value), shift)

    @property
    def reach_s(self) -> float:
        """Time before a reading on which it depends."""
        return self.sensor.window_s * (1 + self.stretch) + self.delay_s

    def unknowns(self, shape: bool = False) -> tuple[Floats, LinearPrior]:
        """Delay and excess length, in their units, and their scatter between GPUs."""
        sensor, unit = self.sensor, np.array([DELAY_UNIT_S, STRETCH_UNIT])
        spread = np.array([sensor.delay_spread_s, sensor.stretch_spread]) / unit
        prior = LinearPrior.independent(np.array([sensor.delay_s, 0.0]) / unit, spread)
        return np.array([self.delay_s, self.stretch]) / unit, prior

    def moved(self, unknowns: Floats) -> Averaged:
        """See ``Sampled``."""
        return replace(self, delay_s=float(unknowns[0] * DELAY_UNIT_S), stretch=float(unknowns[1] * STRETCH_UNIT))


Observer = Sampled | Averaged
"""A sensor with its place in time."""
