"""Instants at which time is cut for the estimator, and the segments between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from jouletrace.attribution.chains import Windows
from jouletrace.sensor.shares import Floats


@dataclass(frozen=True)
class Cuts:
    """Instants at which time is cut, and what lies between them: n segments."""

    time_s: Floats  # shape (n + 1,)
    windows: Windows  # of the readings
    bursts: Floats  # shape (b, 2)
    burst: NDArray[np.intp]  # shape (n,): the last burst that began before each segment
    inside: NDArray[np.bool_]  # shape (n,): whether the segment lies in it
    opens: NDArray[np.bool_]  # shape (n,): whether the burst begins with it

    @classmethod
    def of(cls, read_s: Floats, begin_s: Floats, spans: Floats, bursts: Floats, step_s: float) -> Cuts:
        """Cuts at the moments that readings show, at edges, and at least every ``step_s`` inside bursts.

        Windows of readings begin at ``begin_s``, shape (readings,), which are ``read_s`` without windows.
        """
        fine = [np.linspace(a, b, max(int(np.ceil((b - a) / step_s)), 1) + 1) for a, b in bursts]
        time_s = np.unique(np.concatenate([read_s, begin_s, spans.ravel(), bursts.ravel(), *fine]))
        low, high = min(begin_s[0], spans.min()), max(read_s[-1], spans.max())
        time_s = time_s[(time_s >= low) & (time_s <= high)]
        begin = time_s[:-1]
        burst = np.maximum(np.searchsorted(bursts[:, 0], begin, side="right") - 1, 0)
        inside = (begin >= bursts[burst, 0]) & (begin < bursts[burst, 1])
        opens = inside & np.isin(begin, bursts[:, 0])
        windows = Windows.of(np.searchsorted(time_s, begin_s), np.searchsorted(time_s, read_s))
        return cls(time_s, windows, bursts, burst, inside, opens)

    @property
    def seen(self) -> NDArray[np.intp]:
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

    @property
    def goes_on(self) -> NDArray[np.bool_]:
        """True where a segment's level goes on into the next, shape (n,)."""
        return np.append(self.inside[1:] & ~self.opens[1:], False)


def share_of(time_s: Floats, spans: Floats) -> csr_matrix:
    """Share of each segment between ``time_s`` in each span, 0 or 1: edges of spans are instants, or beyond them."""
    first, last = (np.minimum(np.searchsorted(time_s, edge), len(time_s) - 1) for edge in spans.T)
    count = np.maximum(last - first, 0)
    start = np.append(0, np.cumsum(count))
    place = np.arange(start[-1]) - np.repeat(start[:-1] - first, count)
    return csr_matrix((np.ones(len(place)), place, start), shape=(len(spans), len(time_s) - 1))
