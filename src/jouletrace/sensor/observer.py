"""What readings make of a timeline: of one that samples moments, and of one that averages over windows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from jouletrace.sensor.response import BIN_S, BINS_S, Response
from jouletrace.sensor.sampler import Sensor, Track, read_out

Array = NDArray[np.float64]


class Timeline(Protocol):
    """What ran when, in kinds; idle is the last of them."""

    def seen(self, at_s: Array, response: Response, value: Array, watts: Array) -> tuple[Array, Array, Array]:
        """Of samples: share of each kind (m, kinds), mean of ``value`` (m,), change of that of ``watts`` (m,)."""

    def integral(self, at_s: Array, value: Array) -> Array:
        """Up to each time, of what is ``value`` while an interval lasts and 0 between them, shape (m,)."""

    def integrals(self, at_s: Array, value: Array) -> tuple[Array, Array]:
        """Up to each time: seconds of each kind (m, kinds), and the integral of ``value`` (m,)."""


@dataclass(frozen=True)
class Observed:
    """What each reading is made of.

    Attributes:
        kinds: Share of each kind, idle last, shape (n, kinds).
        value: The same of a value that intervals have, shape (n,).
        shift: Change with each coefficient of the sampler's track, per second, shape (n, m).
            m is 0 of a sensor that averages.
        shape: Change with the weight of each bin of the response, W, shape (n, bins); no bins of one that averages,
            nor where it isn't asked for.
    """

    kinds: Array
    value: Array
    shift: Array
    shape: Array

    def scaled(self, factor: float) -> Observed:
        """The same of values and powers that are some times as large."""
        return Observed(self.kinds, factor * self.value, factor * self.shift, factor * self.shape)


class Observer(Protocol):
    """A sensor with all that decides what its readings are made of."""

    @property
    def track(self) -> Track | None:
        """When samples are taken; None of a sensor that averages."""

    def observe(self, timeline: Timeline, time_s: Array, value: Array, watts: Array, shape: bool = False) -> Observed:
        """What readings are made of.

        Args:
            timeline: What ran.
            time_s: When readings were taken, shape (n,).
            value: Of each interval of the timeline.
            watts: About the power of each interval above idle, for ``Observed.shift`` and ``Observed.shape``.
            shape: Whether ``Observed.shape`` is asked for; it takes most of the time.
        """


@dataclass(frozen=True)
class Sampled:
    """A sensor that takes momentary samples, and when it took them.

    Attributes:
        sensor: What is expected of it.
        track: When it took its samples.
        change: By how much the response differs from the expected one, in the bins of ``BINS_S``.
    """

    sensor: Sensor
    track: Track
    change: Array = field(default_factory=lambda: np.zeros(len(BINS_S) - 1))

    def observe(self, timeline: Timeline, time_s: Array, value: Array, watts: Array, shape: bool = False) -> Observed:
        """See ``Observer``."""
        at = self.track.instants()
        kinds, total, change = timeline.seen(at, self.response, value, watts)
        basis = self.track.basis() * change[:, None]
        bins = np.zeros((len(at), 0))
        if shape:
            edges = (at[:, None] - BINS_S[::-1][None, :]).ravel()
            bins = np.diff(timeline.integral(edges, watts).reshape(len(at), -1), axis=1)[:, ::-1] / BIN_S
        read = read_out(self.sensor, np.column_stack([kinds, total, basis, bins]), at, time_s)
        width, moves = kinds.shape[1], basis.shape[1]
        return Observed(
            read[:, :width], read[:, width], read[:, width + 1 : width + 1 + moves], read[:, width + 1 + moves :]
        )

    def moved(self, shift_s: Array, change: Array) -> Sampled:
        """The same with other coefficients of its track, and a response that is ``change`` off the expected one."""
        return replace(self, track=replace(self.track, shift_s=shift_s), change=change)

    @property
    def response(self) -> Response:
        """Of its samples."""
        return self.sensor.response.plus(self.change)


@dataclass(frozen=True)
class Averaged:
    """A sensor whose readings are means over a window that ends some delay before them.

    Part-time sensors (25 ms of every 100), means over a second, and differences of an energy counter are all this.

    Attributes:
        window_s: Length of the window.
        delay_s: From its end to the reading's time.
    """

    window_s: float
    delay_s: float = 0.0
    track: None = None

    def observe(self, timeline: Timeline, time_s: Array, value: Array, watts: Array, shape: bool = False) -> Observed:
        """See ``Observer``."""
        end, start = time_s - self.delay_s, time_s - self.delay_s - self.window_s
        (till, total_till), (since, total_since) = timeline.integrals(end, value), timeline.integrals(start, value)
        none = np.zeros((len(time_s), 0))
        return Observed((till - since) / self.window_s, (total_till - total_since) / self.window_s, none, none)
