"""Instants at which time is cut for the estimator, and the segments between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from jouletrace.arrays import Floats, Indices, Mask
from jouletrace.attribution.chains import Windows

_BESIDE = 8
"""Steps beside a burst within which power is placed as finely as inside: a load that begins in these two readings, and
could change only with one of them, would be taken out of the burst."""

_SAME_S = 1e-7
"""Times so close are one instant: less than any clock here shows, and more than rounding to nanoseconds makes."""


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
    place = np.arange(start[-1]) - np.repeat(start[:-1] - first, count)
    return csr_matrix((np.ones(len(place)), place, start), shape=(len(spans), len(time_s) - 1))
