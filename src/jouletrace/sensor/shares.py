"""Shares of intervals in readings: which part of what ran in a kind of interval does each reading show.

A reading is a mean of the power before it, by a weight that is an exponential or a box::

    reading(t) = ∫ p(t - delay - d) weight(d) dd + noise
    weight(d) = exp(-d / rise) / rise, or 1 / window for d < window

The first is that of ``y += share (x - y)`` at ``rate`` samples per second, which forgets with
``rise = -1 / (rate ln(1 - share))``; the second that of means, part-time or not, and of a counter's differences.
Without either a reading is the power of its moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jouletrace.arrays import Floats, Ints
from jouletrace.sensor.models import Sensor

Complex = NDArray[np.complexfloating]

_Weigh = Callable[[Floats], Floats]

_COARSE = 0.125
"""Standard deviation of a delay over the width, or a burst's length, up to which it changes readings in proportion."""

_ANY = 0.45
"""Relative standard deviation of a window above which it is taken for uniform, where it is 1 / sqrt(3) of the mean."""

_RATE_SD = 1e-3
"""Relative standard deviation of a sample rate that a recording determined: it changes by 0.0003 with temperature."""

_FEW = 4
"""Windows that overlap at a time; of more, readings between them are left out. A window of 1 s that is read each 0.1 s
then counts each 0.3 s: noise is averaged over a third of the readings, and a state has four sums in place of ten."""


_AT_ONCE_S = 1e-7
"""Time constant of an approach that takes none; a window that is shorter is none."""


class Shape(NamedTuple):
    """All that a calibration determines of a response: a window of power that exponentials approach."""

    late_s: float  # from the moment that a reading shows by its simplest form to the window's end
    window_s: float
    approach: tuple[tuple[float, float], ...]  # shares, which sum to 1, and their time constants in s

    def averaged(self, time_s: Floats, cut_s: Floats, level_w: Floats) -> Floats:
        """Readings of a power that is constant between cuts, W; for arguments see ``averaged``."""
        return self._of(time_s, lambda end_s, simple: averaged(end_s, cut_s, level_w, simple))

    def shares(self, time_s: Floats, timeline: Timeline) -> Floats:
        """Share of each kind in the readings, shape (readings, kinds); for arguments see ``shares``."""
        return self._of(time_s, lambda end_s, simple: shares(end_s, timeline, simple))

    def _of(self, time_s: Floats, simple: Callable[[Floats, Response], Floats]) -> Floats:
        """Readings, or shares in them, from those of a memory or a window alone, by ``simple``.

        Of an exponential memory z of power p, ``constant * z' = p - z``: the mean of z over a window is that of p less
        the change of z, times the constant over the window's length.
        """
        end_s = time_s + self.late_s
        simplest = Response(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
        if self.window_s < _AT_ONCE_S:
            some = [(share, max(rise_s, _AT_ONCE_S)) for share, rise_s in self.approach if share > 0]
            each = [share * simple(end_s, replace(simplest, rise_s=rise_s)) for share, rise_s in some]
            return np.asarray(np.sum(each, axis=0))
        read = simple(end_s, replace(simplest, window_s=self.window_s))
        for share, rise_s in self.approach:
            if share * rise_s > 0:
                memory = replace(simplest, rise_s=rise_s)
                change = simple(end_s, memory) - simple(end_s - self.window_s, memory)
                read = read - share * rise_s / self.window_s * change
        return read


GAPLESS = 0.9
"""Share of the time between readings from which on what they show leaves none unseen."""


@dataclass(frozen=True)
class Response:
    """A sensor's reading of power, and the standard deviations of what isn't known of it.

    It has an exponential memory, or a window, or neither: then it shows the power of its moment.
    """

    rise_s: float  # time constant of the exponential memory, 0 for none
    width_sd: float  # relative standard deviation of the rise or of the window
    delay_s: float  # from the moment at which the average is read, or the window's end, to the reading's time
    delay_sd_s: float
    weight: float  # of the last momentary sample in a reading, 1: none but it; 0 if power is averaged continuously
    noise_w: float  # standard deviation of independent noise of a reading
    period_s: float  # between readings
    window_s: float = 0.0  # length of the window of which readings are means, 0 for none
    back_to_back: bool = False  # whether each window begins where the one before ended, as between reads of a counter
    jitter_s: float = 0.0  # standard deviation of single readings' times
    delay_by_width_s: float = 0.0  # change of the delay with the logarithm of rise or window, as far as it is known
    any_rate: bool = False  # whether windows, which meet, may be of momentary samples, at a rate that no one knows
    shape: Shape | None = None  # of which memory and window are the simplest form

    @classmethod
    def sampled(cls, sensor: Sensor, period_s: float, rate_hz: float | None = None) -> Response:
        """The response of a sensor that averages momentary samples.

        Args:
            sensor: One of ``sensor.kinds``.
            period_s: Seconds between readings.
            rate_hz: Samples per second of this GPU; None if unknown: then it lies anywhere in the sensor's range.
        """
        low, high = sensor.any_rate_hz
        rate = (low + high) / 2
        spread = (high - low) / math.sqrt(12) / rate
        weight = 1 / sensor.averages
        rise_s = -1 / (rate * math.log1p(-weight))
        response = cls(rise_s, spread, sensor.delay_s, sensor.delay_sd_s, weight, sensor.noise_w, period_s)
        return response.at_rate(rate_hz) if rate_hz else response

    @property
    def sample_s(self) -> float:
        """Seconds between momentary samples."""
        return -self.rise_s * math.log1p(-self.weight)

    @property
    def width_s(self) -> float:
        """Length of the window, or time constant of the memory."""
        return self.window_s or self.rise_s

    @property
    def middle_s(self) -> float:
        """Mean time before a reading's moment of what it shows."""
        return self.window_s / 2 or self.rise_s

    @property
    def lasts_s(self) -> float:
        """Seconds after which a reading has forgotten what was, to less than a hundredth."""
        return self.window_s or 5 * self.rise_s

    @property
    def sparse(self) -> bool:
        """True if a reading shows no more than half of the time since the one before.

        For the other half what changed is as unknown as between momentary readings. So it is of 25 ms of each 100 ms,
        and of what a tool polled each second; not of a Hopper's record (12.5 ms of memory, 20 ms), a counter, or means
        over a second. Of a window that no one knows the mean length counts.
        """
        return not self.back_to_back and 2 * max(self.window_s, 2 * self.rise_s) <= self.period_s

    @property
    def slow(self) -> bool:
        """True of means over a second or so, not of a counter, that leave no time between them unseen."""
        return not self.back_to_back and self.window_s >= GAPLESS * max(self.period_s, 1.0)

    @property
    def momentary(self) -> Response:
        """The response of readings that are taken for the power of one moment, the middle of what they show."""
        return replace(self, rise_s=0.0, window_s=0.0, delay_s=self.delay_s + self.middle_s)

    @property
    def stride(self) -> int:
        """Every so many readings are used, so that few windows overlap."""
        return 1 if self.back_to_back else max(1, math.ceil(self.window_s / self.period_s / _FEW))

    @property
    def windows(self) -> list[Response]:
        """Of a window that may be any up to twice this one, thirds of it that are alike likely; else none."""
        if not self.window_s or self.width_sd <= _ANY:
            return []
        return [replace(self, window_s=k * self.window_s / 3, width_sd=_ANY / k) for k in (1, 3, 5)]

    def widened(self, by: float) -> Response:
        """The response with a memory ``by`` times as long, and the delay that goes with it."""
        delay_s = self.delay_s + self.delay_by_width_s * math.log(by)
        return replace(self, rise_s=by * self.rise_s, window_s=by * self.window_s, delay_s=delay_s)

    def at_rate(self, rate_hz: float) -> Response:
        """The response if it takes so many momentary samples per second."""
        return replace(self.widened(1 / (rate_hz * self.sample_s)), width_sd=_RATE_SD, shape=None)

    def begins(self, time_s: Floats) -> Floats:
        """Beginnings of the windows that end at ``time_s``, of the same shape."""
        before = time_s - self.window_s
        return np.append(before[:1], time_s[:-1]) if self.back_to_back else before

    def delays(self, burst_s: float) -> list[tuple[Response, float]]:
        """Responses with delays known to a fraction of the width, which together are as uncertain as this, by weight.

        As a delay grows, edges enter windows and leave them, and readings don't change in proportion: by less than a
        width, or the length of a burst, ``burst_s``, they do.
        """
        cell = max(_COARSE * min(self.width_s, max(burst_s, self.period_s)), self.delay_sd_s / 4)
        if self.delay_sd_s <= 1.5 * cell:
            return [(self, 1.0)]
        spread = math.sqrt(self.delay_sd_s**2 - cell**2)
        steps = np.arange(-math.ceil(2.5 * spread / (2 * cell)), math.ceil(2.5 * spread / (2 * cell)) + 1)
        weight = np.exp(-0.5 * (2 * cell * steps / spread) ** 2)
        return [
            (replace(self, delay_s=self.delay_s + 2 * cell * step, delay_sd_s=cell), weight_of_step)
            for step, weight_of_step in zip(steps.tolist(), (weight / weight.sum()).tolist(), strict=True)
        ]


@dataclass(frozen=True)
class Timeline:
    """Intervals, each of a kind. Those of one kind may overlap: their powers add.

    With ``rate`` an interval counts so many times: seconds are amounts then, and powers energies of a unit.
    """

    start_s: Floats  # shape (m,)
    end_s: Floats  # shape (m,)
    kind: Ints  # shape (m,), from 0
    least: int = 0  # number of kinds, if some of the last have no interval
    rate: Floats | float = 1.0  # shape (m,)

    @property
    def kinds(self) -> int:
        """Number of kinds."""
        return max(self.least, int(self.kind.max()) + 1)

    def running(self, time_s: Floats) -> Floats:
        """Number of intervals of each kind that run at ``time_s``, shape (times, kinds)."""
        return np.cumsum(self.binned(time_s, np.ones_like)[0], axis=0)

    def seconds(self, time_s: Floats) -> Floats:
        """Seconds that intervals of each kind ran between each two of ``time_s``, shape (len(time_s) - 1, kinds)."""
        begun, within = self.binned(time_s, np.ones_like, lambda gap: gap)
        return np.asarray(np.cumsum(begun, axis=0)[:-1] * np.diff(time_s)[:, None] + within[1:])

    def binned(self, time_s: Floats, *weigh: _Weigh) -> list[Floats]:
        """Sums over starts less those over ends, each in the bin of the next of ``time_s``, shape (times, kinds).

        There is one for each function, of the time from an edge to the next of ``time_s``.
        """
        size = (len(time_s) + 1) * self.kinds
        totals = [np.zeros(size) for _ in weigh]
        for edge, sign in ((self.start_s, 1.0), (self.end_s, -1.0)):
            slot = _slots(time_s, edge)
            gap = time_s[np.minimum(slot, len(time_s) - 1)] - edge
            cell = slot * self.kinds + self.kind
            for n, by_gap in enumerate(weigh):
                totals[n] += sign * np.bincount(cell, self.rate * by_gap(gap), size)
        return [total.reshape(-1, self.kinds)[:-1] for total in totals]


def _slots(time_s: Floats, edge: Floats) -> Ints:
    """Number of ``time_s``, ascending, that lie before each edge, shape (edges,): faster where edges ascend as well."""
    if not np.all(edge[1:] >= edge[:-1]):
        return np.searchsorted(time_s, edge)
    ends = np.searchsorted(edge, time_s, side="right")
    return np.repeat(np.arange(len(time_s) + 1), np.diff(ends, prepend=0, append=len(edge)))


def shares(time_s: Floats, timeline: Timeline, response: Response) -> Floats:
    """Share of each kind in the readings, shape (readings, kinds): of ``sum(share * power)`` they are made.

    ``time_s`` are the moments that readings show, increasing: their times less the delay. Windows end there, and
    seconds since their beginning count. Without windows an edge at s shows as 1 - exp(-(t - s) / rise) in a reading at
    t: the number of intervals that run less a sum of exponentials, which is carried from reading to reading. It takes
    time in proportion to readings and intervals.
    """
    if response.window_s:
        begin_s = response.begins(time_s)
        instants, instant = np.unique(np.append(begin_s, time_s), return_inverse=True)
        upto = np.vstack([np.zeros(timeline.kinds), np.cumsum(timeline.seconds(instants), axis=0)])
        first, last = instant.reshape(2, -1)
        return np.asarray((upto[last] - upto[first]) / (time_s - begin_s)[:, None])
    begun, left = timeline.binned(time_s, np.ones_like, lambda gap: np.exp(-np.maximum(gap, 0.0) / response.rise_s))
    return np.asarray(np.cumsum(begun, axis=0) - forgetting(left, np.exp(-np.diff(time_s) / response.rise_s)))


def slopes(time_s: Floats, timeline: Timeline, power_w: Floats, response: Response) -> Floats:
    """Change of the readings at ``time_s`` for a standard deviation of the sensor's delay and width, (readings, 2)."""

    def shown_by(other: Response) -> Floats:
        return np.asarray(shares(time_s - other.delay_s, timeline, other) @ power_w)

    more = math.exp(response.width_sd)
    late, early = (replace(response, delay_s=response.delay_s + by * response.delay_sd_s) for by in (1, -1))
    pairs = (late, early), (response.widened(more), response.widened(1 / more))
    return np.stack([(shown_by(more_of) - shown_by(less_of)) / 2 for more_of, less_of in pairs], axis=1)


def averaged(time_s: Floats, cut_s: Floats, level_w: Floats, response: Response) -> Floats:
    """Readings of powers that are constant between cuts, W, shape (..., readings) at ``time_s``, the moments they show.

    ``cut_s`` are the n + 1 cuts, and ``level_w``, (..., n), the powers between them, which go on beyond the ends.
    """
    h = np.diff(cut_s)

    def since(at_s: Floats) -> tuple[Ints, Floats]:
        last = np.clip(np.searchsorted(cut_s, at_s, side="right") - 1, 0, len(h) - 1)
        return last, at_s - cut_s[last]

    if response.window_s:
        upto = np.concatenate([0 * level_w[..., :1], np.cumsum(level_w * h, axis=-1)], axis=-1)
        begin_s = response.begins(time_s)
        (first, early_s), (last, late_s) = since(begin_s), since(time_s)
        gone = upto[..., last] - upto[..., first] + level_w[..., last] * late_s - level_w[..., first] * early_s
        return np.asarray(gone / (time_s - begin_s))
    fade = np.exp(-h / response.rise_s)
    state = forgetting(np.concatenate([level_w[..., :1], (1 - fade) * level_w], axis=-1).T, fade).T
    last, late_s = since(time_s)
    left = np.exp(-np.maximum(late_s, 0.0) / response.rise_s)
    return np.asarray(level_w[..., last] + (state[..., last] - level_w[..., last]) * left)


def seen(time_s: Floats, low_s: float, high_s: float, response: Response, turn: Complex | float = 0.0) -> Complex:
    """Readings at ``time_s`` of a power ``exp(turn t)`` between two times; the last axis is the readings'."""
    scale, fade, reach_s = _weight(response)
    low, high = (np.clip(edge, time_s - reach_s, time_s) for edge in (low_s, high_s))
    rate = np.asarray(turn + fade, np.complex128)
    if not np.any(rate):
        return np.asarray(scale * (high - low), np.complex128)
    grown = np.exp(turn * high - fade * (time_s - high)) - np.exp(turn * low - fade * (time_s - low))
    return np.asarray(scale * grown / rate, np.complex128)


def both_seen(time_s: Floats, end_s: float, response: Response) -> Floats:
    """Covariance of readings of a white power of density 1 from 0 to ``end_s``, shape (readings, readings)."""
    scale, fade, reach_s = _weight(response)
    first, late = np.minimum.outer(time_s, time_s), np.add.outer(time_s, time_s)
    high = np.minimum(end_s, first)
    low = np.minimum(np.maximum(0.0, late - first - reach_s), high)
    if not fade:
        return np.asarray(scale**2 * (high - low))
    return np.asarray(scale**2 * (np.exp(fade * (2 * high - late)) - np.exp(fade * (2 * low - late))) / (2 * fade))


def _weight(response: Response) -> tuple[float, float, float]:
    """Scale (1/s), fade (1/s) and reach (s): power d before a reading weighs ``scale exp(-fade d)`` up to the reach."""
    if response.window_s:
        return 1 / response.window_s, 0.0, response.window_s
    return 1 / response.rise_s, 1 / response.rise_s, np.inf


def forgetting(added: Floats, fade: Floats) -> Floats:
    """Solution of ``y[k] = fade[k - 1] y[k - 1] + added[k]``, of the shape of ``added``, (n,) or (n, c)."""
    from scipy.linalg.lapack import dtbtrs  # slow to import, in every process

    bands = np.stack([np.ones(len(added)), np.append(-fade, 0.0)])
    return np.asarray(dtbtrs(bands, added, uplo="L", diag="U")[0])
