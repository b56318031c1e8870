"""The instruments of a GPU, which take readings whether or not they are read out."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

import numpy as np

from jouletrace.arrays import Floats, Ints
from jouletrace.simulator.boards.engine import ENERGY, BoardTrace

RING_SIZE = 119
_LATE = ((0.25, 0.08, 0.25), (0.05, 0.62, 0.72))
"""Share of late stamps, and their least and greatest delay as shares of a period."""

_SCATTER = 0.004
_SLACK_PERIODS = 2


class PowerInstrument:
    """Takes readings of power with a period, from a random phase on."""

    def __init__(
        self,
        trace: BoardTrace,
        period_s: float,
        response: AnyResponse,
        faults: Faults,
        rng: np.random.Generator,
    ) -> None:
        self._trace = trace
        self._period_ns = period_s * 1e9
        self._response = response
        self._faults = faults
        self._rng = rng
        self._phase_ns = trace.start_ns + rng.uniform(0, 1) * self._period_ns

    def taken_at(self, time_ns: Ints) -> Floats:
        """Readings (W) taken at these times, which must have been simulated already."""
        power = self._response.power_w(self._trace, time_ns)
        return self._faults.apply(power, self._rng)


class Ring(PowerInstrument):
    """A record kept by the driver: a ring of the last 119 readings.

    A reading is due every period. Most are stamped at once and some later, as on the recorded
    H100, where stamps lie 8 to 35 ms apart. A late stamp there doesn't mean a late reading.

    Args:
        trace, period_s, response, faults, rng: As for ``PowerInstrument``.
        parts: A reading is taken at the last multiple of period / ``parts`` before its stamp;
            with 0 it is taken when it is stamped.
    """

    def __init__(
        self,
        trace: BoardTrace,
        period_s: float,
        response: AnyResponse,
        faults: Faults,
        rng: np.random.Generator,
        parts: int = 0,
    ) -> None:
        super().__init__(trace, period_s, response, faults, rng)
        self._parts = parts
        self._next = 0
        # when readings are taken, and their stamps
        self._ahead = np.empty((2, 0), dtype=np.int64)
        self._stamps = np.empty(0, dtype=np.int64)
        self._values = np.empty(0)
        self._holding = False
        self._instead = self._before = np.empty(0, dtype=np.int64), np.empty(0)

    def newer_than(self, stamp_ns: int, now_ns: int) -> tuple[Ints, Floats]:
        """Stamps and readings (W) in the ring at ``now_ns`` that are newer than ``stamp_ns``."""
        self._record(now_ns - self._response.ahead_ns)
        if self._holding:
            return self._stamps[:0].copy(), self._values[:0].copy()
        # what was held back comes as a whole, as if the record had been read all the time
        (stamps, values), self._instead = self._instead, (self._stamps[:0], self._values[:0])
        stamps, values = np.concatenate([stamps, self._stamps]), np.concatenate([values, self._values])
        first = int(np.searchsorted(stamps, stamp_ns, "right"))
        return stamps[first:].copy(), values[first:].copy()

    def hold(self, now_ns: int) -> None:
        """Return no readings until ``release``; present ones are kept, although the ring goes on."""
        self._record(now_ns - self._response.ahead_ns)
        self._before = self._stamps.copy(), self._values.copy()
        self._holding = True

    def release(self, end_ns: int, stamp_ns: Ints, watts: Floats) -> None:
        """Return readings again, with these in place of the ring's own since ``hold``."""
        self._record(end_ns - self._response.ahead_ns)
        self._holding = False
        later = self._stamps > end_ns
        self._stamps, self._values = self._stamps[later], self._values[later]
        mine = stamp_ns <= end_ns
        self._instead = (
            np.concatenate([self._before[0], stamp_ns[mine]]),
            np.concatenate([self._before[1], watts[mine]]),
        )

    def _record(self, until_ns: int) -> None:
        self._schedule(until_ns)
        count = int(np.searchsorted(self._ahead[1], until_ns, "right"))
        if count == 0:
            return
        due, self._ahead = self._ahead[:, :count], self._ahead[:, count:]
        # the ring keeps only its last readings, so the others need not be taken
        due = due[:, -RING_SIZE * 2 :]
        taken, stamps = due
        self._stamps = np.concatenate([self._stamps, stamps])[-RING_SIZE:]
        self._values = np.concatenate([self._values, self.taken_at(taken)])[-RING_SIZE:]

    def _schedule(self, until_ns: int) -> None:
        """Draw the times of readings up to a little after ``until_ns``."""
        last = int((until_ns - self._phase_ns) / self._period_ns) + _SLACK_PERIODS
        if last <= self._next:
            return
        index = np.arange(self._next, last)
        delay = np.abs(self._rng.normal(0.0, _SCATTER, len(index)))
        kind = self._rng.random(len(index))
        for share, least, most in _LATE:
            delay += ((kind >= 0) & (kind < share)) * self._rng.uniform(least, most, len(index))
            kind -= share
        missed = np.floor(delay * self._parts) / self._parts if self._parts else delay
        # the driver's stamps are whole microseconds
        times = [np.rint((self._phase_ns + (index + late) * self._period_ns) / 1e3) for late in (missed, delay)]
        self._ahead = np.concatenate([self._ahead, np.array(times, dtype=np.int64) * 1000], axis=1)
        self._next = last


class Held(PowerInstrument):
    """A reading that keeps its value between updates."""

    def __init__(
        self,
        trace: BoardTrace,
        period_s: float,
        response: AnyResponse,
        faults: Faults,
        rng: np.random.Generator,
    ) -> None:
        super().__init__(trace, period_s, response, faults, rng)
        self._index = -1
        self._value = 0.0
        self._latest = -1

    def read(self, now_ns: int) -> tuple[int, float]:
        """Number of the last update at ``now_ns``, and its reading in watts."""
        index = int((now_ns - self._response.ahead_ns - self._phase_ns) / self._period_ns)
        if index > self._latest:
            self._latest = index
            self._rng.random()  # a draw that seeds had from the start: they keep their noise
            update = np.array([round(self._phase_ns + index * self._period_ns)], dtype=np.int64)
            self._value = float(self.taken_at(update)[0])
            self._index = index
        return self._index, self._value


class Counter:
    """A true integral of board power, updated in steps, in millijoules since the driver was loaded."""

    def __init__(self, trace: BoardTrace, period_s: float, faults: Faults, rng: np.random.Generator) -> None:
        self._trace = trace
        self._period_ns = period_s * 1e9
        self._faults = faults
        self._phase_ns = trace.start_ns + rng.uniform(0, 1) * self._period_ns
        self._base_j = float(rng.uniform(1e3, 1e7))

    def read(self, now_ns: int) -> tuple[int, float]:
        """Number of the last step at ``now_ns``, and the counter's value there, in joules."""
        index = int((now_ns - self._phase_ns) / self._period_ns)
        step_ns = round(self._phase_ns + index * self._period_ns)
        seconds = (step_ns - self._trace.start_ns) / 1e9
        drawn_j = float(self._trace.reached(ENERGY, step_ns))
        energy = self._base_j + self._faults.gain * drawn_j + self._faults.offset_w * seconds
        return index, floor(energy * 1000) / 1000


_PIECES_PER_RISE = 10
_RISES = 10
_MOST_PIECES = 1000
_SHORTEST_S = 1e-6
_SAMPLES_AVERAGED = 16
_SAMPLES_KEPT = 160
_SAMPLE_NS = 160_000
"""Window of a sample; the response of a real one has the same standard deviation."""


@dataclass(frozen=True)
class SmoothResponse:
    """A weighted mean of the power over pieces of time before the stamp."""

    # Bounds of the pieces, as times before the stamp, increasing; negative where the stamp is early. Shape (n + 1,)
    bounds_s: tuple[float, ...]
    weights: tuple[float, ...]  # weight of the mean power of each piece; they sum to 1. Shape (n,)

    @property
    def ahead_ns(self) -> int:
        """Time from a stamp to the earliest moment at which its reading can be computed."""
        return max(0, -round(self.bounds_s[0] * 1e9))

    def power_w(self, trace: BoardTrace, stamp_ns: Ints) -> Floats:
        """Noiseless readings with the given stamps, shape as ``stamp_ns``."""
        before_ns = np.rint(np.array(self.bounds_s) * 1e9).astype(np.int64)
        energy = trace.reached(ENERGY, stamp_ns[:, None] - before_ns)
        mean = -np.diff(energy, axis=1) / (np.diff(before_ns) / 1e9)
        return np.asarray(mean @ np.array(self.weights), dtype=np.float64)


def smoothed(window_s: float, lag_s: float, rise_s: float = 0.0) -> SmoothResponse:
    """A boxcar that ends ``lag_s`` before the stamp, smeared by an exponential of mean ``rise_s``.

    The exponential is approximated by pieces in which it hardly changes, so that its step response is smooth.
    """
    window_s = max(window_s, _SHORTEST_S)
    if rise_s <= _SHORTEST_S:
        return SmoothResponse((lag_s, lag_s + window_s), (1.0,))
    end_s = window_s + _RISES * rise_s
    pieces = min(int(np.ceil(end_s / rise_s * _PIECES_PER_RISE)), _MOST_PIECES)
    delay = np.linspace(0.0, end_s, pieces + 1)
    past = np.maximum(delay - window_s, 0.0)
    shown = (delay - past + rise_s * (np.exp(-delay / rise_s) - np.exp(-past / rise_s))) / window_s
    weights = np.diff(shown) / (shown[-1] - shown[0])
    return SmoothResponse(tuple((lag_s + delay).tolist()), tuple(weights.tolist()))


@dataclass(frozen=True)
class SampledResponse:
    """Momentary samples in a recursive average, on a clock of their own, as in Hopper's record.

    A reading is the average's state ``lag_s`` before its stamp. Power between two samples has no effect.
    """

    rate_hz: float  # samples per second
    phase: float  # phase of the first sample after the trace's start, in samples
    lag_s: float  # time from the moment whose state is read to the stamp

    ahead_ns = 0

    def power_w(self, trace: BoardTrace, stamp_ns: Ints) -> Floats:
        """Noiseless readings with the given stamps, shape as ``stamp_ns``."""
        last = np.floor(((stamp_ns - trace.start_ns) / 1e9 - self.lag_s) * self.rate_hz - self.phase)
        since_ns = (last[:, None] - np.arange(_SAMPLES_KEPT) + self.phase) / self.rate_hz * 1e9
        instant_ns = trace.start_ns + np.rint(since_ns).astype(np.int64)
        energy = trace.reached(ENERGY, np.stack([instant_ns - _SAMPLE_NS, instant_ns]))
        weights = (1 - 1 / _SAMPLES_AVERAGED) ** np.arange(_SAMPLES_KEPT)
        return np.asarray(np.diff(energy, axis=0)[0] @ weights / weights.sum() / (_SAMPLE_NS / 1e9), np.float64)


AnyResponse = SmoothResponse | SampledResponse


@dataclass(frozen=True)
class Faults:
    """Hidden errors of a reading after the response."""

    gain: float = 1.0  # true factor on the power
    noise_w: float = 0.0  # standard deviation of white noise
    offset_w: float = 0.0  # that it reads more

    def apply(self, power_w: Floats, rng: np.random.Generator) -> Floats:
        """Readings, rounded to whole milliwatts, of true powers."""
        noisy = power_w * self.gain + self.offset_w + self.noise_w * rng.standard_normal(len(power_w))
        return np.asarray(np.round(np.maximum(noisy, 0.0), 3), dtype=np.float64)
