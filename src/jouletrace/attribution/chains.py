"""Chains: Markov sequences of small states at instants, whose segments have energies linear in the states beside them.

A chain differs by sensor and load alone. Its precision is banded, and energies aren't states, so that all of the
estimator is one narrow banded system (``solve``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from jouletrace.arrays import Floats, Indices, Mask
from jouletrace.sensor.shares import Response

FLOOR_W = 0.05
"""Noise of the sensor's state per segment: well below a reading's, and keeps the precision finite."""

_STILL, ANY = 1e-4, 1e6
"""Variances of a state that doesn't move, and of one of which nothing is known, in W²."""

_BESIDE = 8
"""Steps beside a burst within which power is placed as finely as inside: a load that begins in these two readings, and
could change only with one of them, would be taken out of the burst."""

_SAME_S = 1e-7
"""Times so close are one instant: less than any clock here shows, and more than rounding to nanoseconds makes."""


@dataclass(frozen=True)
class Chain:
    """Prior of n + 1 states of k numbers each, and the energies of the n segments between them."""

    band: Floats  # shape (2k, (n + 1) k): precision of all states, in LAPACK's lower bands
    log_det: float  # logarithm of its determinant
    energy: Floats  # shape (n, 2k): mean energy of a segment by the states beside it, in J per unit of a state
    own_variance: Floats  # shape (n,): variance of a segment's energy given the states, in J²
    seen: Indices  # shape (readings,), distinct: of all states' numbers the one that each reading shows


@dataclass(frozen=True)
class Windows:
    """Where readings' windows lie among instants; without one it begins where it ends."""

    begun: Indices  # shape (readings,): the instant at which each begins
    seen: Indices  # shape (readings,): that at which it ends, which the reading shows
    which: Indices  # shape (readings,): of the sums that run at a time, the one of each window

    @classmethod
    def between(cls, begun: Indices, seen: Indices) -> Windows:
        """Windows, each with the first sum that no earlier one still uses."""
        ends: list[int] = []
        which = []
        for begin, end in zip(begun.tolist(), seen.tolist(), strict=True):
            free = next((j for j, last in enumerate(ends) if last <= begin), len(ends))
            ends[free : free + 1] = [end]
            which.append(free)
        return cls(begun, seen, np.array(which))


@dataclass(frozen=True)
class Cuts:
    """Instants at which time is cut, and what lies between them: n segments."""

    time_s: Floats  # shape (n + 1,)
    windows: Windows  # of the readings
    bursts: Floats  # shape (b, 2)
    burst: Indices  # shape (n,): the last burst that began before each segment
    inside: Mask  # shape (n,): whether the segment lies in it
    opens: Mask  # shape (n,): whether the burst begins with it

    @classmethod
    def from_readings(cls, read_s: Floats, begin_s: Floats, spans: Floats, bursts: Floats, step_s: float) -> Cuts:
        """Cuts at the moments that readings show, at edges, and at least every ``step_s`` inside bursts and near them.

        Windows of readings begin at ``begin_s``, shape (readings,), which are ``read_s`` without windows.
        """
        pieces = bursts if np.isinf(step_s) else np.vstack([bursts, _beside(bursts, _BESIDE * step_s)])
        fine = [np.linspace(a, b, max(int(np.ceil((b - a) / step_s)), 1) + 1) for a, b in pieces]
        marks = np.unique(np.concatenate([read_s, begin_s, spans.ravel(), bursts.ravel()]))
        time_s = np.union1d(marks, met(np.concatenate(fine), marks))
        low, high = min(begin_s[0], spans.min()), max(read_s[-1], spans.max())
        time_s = time_s[(time_s >= low) & (time_s <= high)]
        begin = time_s[:-1]
        burst = np.maximum(np.searchsorted(bursts[:, 0], begin, side="right") - 1, 0)
        inside = (begin >= bursts[burst, 0]) & (begin < bursts[burst, 1])
        opens = inside & np.isin(begin, bursts[:, 0])
        windows = Windows.between(np.searchsorted(time_s, begin_s), np.searchsorted(time_s, read_s))
        return cls(time_s, windows, bursts, burst, inside, opens)

    @property
    def seen(self) -> Indices:
        """The instant that each reading shows, shape (readings,)."""
        return self.windows.seen

    @property
    def h(self) -> Floats:
        """Lengths of the segments in s, shape (n,)."""
        return np.diff(self.time_s)

    @property
    def length_s(self) -> Floats:
        """Lengths of the bursts, shape (b,)."""
        return np.diff(self.bursts)[:, 0]

    def means(self, level_w: Floats) -> Floats:
        """The level, shape (n,), with that inside of each burst at its mean there."""
        mean_w = share_of(self.time_s, self.bursts) @ (level_w * self.h) / self.length_s
        return np.where(self.inside, mean_w[self.burst], level_w)

    @property
    def goes_on(self) -> Mask:
        """True where a segment's level goes on into the next, shape (n,)."""
        return np.append(self.inside[1:] & ~self.opens[1:], False)


def _beside(bursts: Floats, reach_s: float) -> Floats:
    """Segments of up to ``reach_s`` before and after each burst and outside of all, shape (g, 2)."""
    middle = (np.append(bursts[1:, 0], np.inf) + bursts[:, 1]) / 2
    before = np.stack([np.maximum(bursts[:, 0] - reach_s, np.append(-np.inf, middle[:-1])), bursts[:, 0]], axis=1)
    after = np.stack([bursts[:, 1], np.minimum(bursts[:, 1] + reach_s, middle)], axis=1)
    beside = np.vstack([before, after])
    return beside[beside[:, 1] > beside[:, 0]]


def met(time_s: Floats, instants_s: Floats) -> Floats:
    """Times, those next to one of some instants there: of a segment as short as a rounding nothing is known."""
    after = np.clip(np.searchsorted(instants_s, time_s), 1, len(instants_s) - 1)
    before_s, after_s = instants_s[after - 1], instants_s[after]
    nearest_s = np.where(time_s - before_s < after_s - time_s, before_s, after_s)
    return np.where(np.abs(nearest_s - time_s) < _SAME_S, nearest_s, time_s)


def share_of(time_s: Floats, spans: Floats) -> csr_matrix:
    """Share of each segment between ``time_s`` in each span, 0 or 1: edges of spans are instants, or beyond them."""
    first, last = (np.minimum(np.searchsorted(time_s, edge), len(time_s) - 1) for edge in spans.T)
    count = np.maximum(last - first, 0)
    start = np.append(0, np.cumsum(count))
    segment = np.arange(start[-1]) - np.repeat(start[:-1] - first, count)
    return csr_matrix((np.ones(len(segment)), segment, start), shape=(len(spans), len(time_s) - 1))


Equation = tuple[Mapping[int, float | Floats], Floats]
"""A sum over the numbers of two neighbouring states that is zero but for noise: coefficients by position, those of the
second state after the first's, and the variance, shape (n,)."""


def precision(first: Floats, *equations: Equation) -> tuple[Floats, Floats]:
    """Precision of a chain's states in lower bands, (2k, (n + 1) k), and the logarithm of its determinant.

    ``first`` is the variance of each number of the first state, shape (k,). Each of the k equations of a segment has
    coefficient 1 for one of the second state's numbers and none for those of later equations. Of several chains all
    have the same axes before these.
    """
    k, n = first.shape[-1], equations[0][1].shape[-1]
    band = np.zeros((*first.shape[:-1], 2 * k, (n + 1) * k))
    band[..., 0, :k] = 1 / first
    log_det = -np.log(first).sum(axis=-1)
    for coefficients, variance in equations:
        for i, coefficient in coefficients.items():
            for j, other in coefficients.items():
                if i >= j:
                    band[..., i - j, j : j + n * k : k] += coefficient * other / variance
        log_det = log_det - np.log(variance).sum(axis=-1)
    return band, log_det


@dataclass(frozen=True)
class Course:
    """How power goes on over n segments, whatever the sensor: an idle level, and an excess that begins and ends."""

    density: Floats  # shape (n,): spectral density D of the white swing in each segment, in W² s
    walk: Floats  # shape (n,): variance of the excess per second in W²/s; infinite where it ends: the next one is none
    fresh: Floats  # shape (n + 1,): variance in W² of an excess that begins at the instant, 0 for none
    idle_walk: Floats | float  # W per square root of a second, shape (n,) or the same for all
    idle: float = ANY  # variance in W² of the first idle level

    def equations(self, h: Floats, idle: int, second: int) -> tuple[Equation, Equation]:
        """Those of idle and excess, the numbers ``idle`` and ``idle + 1``; the second state's begin at ``second``."""
        goes_on = np.isfinite(self.walk)
        moved = np.where(goes_on, np.where(goes_on, self.walk, 0.0) * h, self.fresh[1:]) + _STILL
        return (
            ({idle: -1.0, second + idle: 1.0}, self.idle_walk**2 * h + 1e-8),
            ({idle + 1: -goes_on.astype(np.float64), second + idle + 1: 1.0}, moved),
        )


def low_pass_chain(time_s: Floats, seen: Indices, response: Response, course: Course, jolt: Floats) -> Chain:
    """States (y, idle, excess) of a sensor with an exponential memory; n segments between ``time_s``, (n + 1,).

    Instants increase; all readings' and all edges' are among them. ``jolt`` is the variance in W² that enters the
    memory without energy, shape (n,): edges fall anywhere between two samples.

    ``rise dy = (idle + excess + swing - y) dt``, where swing is white. Over a segment of h, with f = exp(-h / rise),
    the noise of y and that of the energy follow from the same swing, so the energy is

        h (b + u) + g [y' - f y - (1 - f)(b + u)],  variance D (h - g (1 - f)),  g = D (1 - f) / var y

    (conditional mean and variance of two integrals of one white noise).
    """
    h, density = np.diff(time_s), course.density
    f = np.exp(-h / response.rise_s)
    variance = density * (1 - f * f) / (2 * response.rise_s) + jolt + FLOOR_W**2
    gain = density * (1 - f) / variance
    band, log_det = precision(
        np.array([ANY, course.idle, course.fresh[0] + _STILL]),
        ({0: -f, 1: f - 1, 2: f - 1, 3: 1.0}, variance),
        *course.equations(h, 1, 3),
    )
    level, none = h - gain * (1 - f), np.zeros_like(h)
    energy = np.stack([-gain * f, level, level, gain, none, none], axis=1)
    return Chain(band, float(log_det), energy, density * level, seen * 3)


def window_chain(time_s: Floats, windows: Windows, course: Course) -> Chain:
    """States (sums, mean, idle, excess) of a sensor whose readings are means over windows, which begin at instants.

    The mean is that of the power over the segment before the instant. Each sum adds it up from the beginning of its
    window, over the window's length: at the end the reading shows it. There are as many sums as windows overlap.
    """
    h, which = np.diff(time_s), windows.which
    sums, none = int(which.max()) + 1, np.zeros_like(h)
    k = sums + 3
    level, *rest = course.equations(h, sums + 1, k)
    adding = []
    for j in range(sums):
        first, last = windows.begun[which == j], windows.seen[which == j]
        window = np.searchsorted(first, np.arange(len(h)), side="right") - 1  # the last one that has begun
        runs = (window >= 0) & (np.arange(len(h)) < last[window])
        part = np.where(runs, h / (time_s[last] - time_s[first])[window], 0.0)
        keeps = runs & (np.arange(len(h)) != first[window])
        noise = FLOOR_W**2 * np.where(runs, part, 1.0) + 1e-9
        adding.append(({j: -keeps.astype(np.float64), k + j: 1.0, k + sums: -part}, noise))
    band, log_det = precision(
        np.concatenate([np.full(sums, _STILL), [ANY, course.idle, course.fresh[0] + _STILL]]),
        ({sums + 1: -1.0, sums + 2: -1.0, k + sums: 1.0}, course.density / h + FLOOR_W**2),
        *adding,
        level,
        *rest,
    )
    energy = np.zeros((len(h), 2 * k))
    energy[:, k + sums] = h
    return Chain(band, float(log_det), energy, none, windows.seen * k + which)
