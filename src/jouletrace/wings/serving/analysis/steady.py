"""Requests of a level, the steady state in them, and what of each request lies within it.

**The steady state** of a level ends with its last sent request. Its time until then is cut into bins, with two
series: the mean number of open requests, and completions. Warm-up ends where the marginal standard error of both is
least (MSER, White 1997: what is cut off reduces the variance by more than the smaller number of bins costs), and not
before the median end-to-end latency has passed: until then requests begin and none end. From there on neither series
may have a trend: the slope of a straight line has a 95 % interval that contains 0, for correlated residuals; else a
later beginning is taken. If there is none in the first half (as under overload, where open requests only grow), the
second half is taken and flagged.

**Counts** in this time are by share: a request that is open for 10 s, of which 4 s lie within, counts as 0.4. Its input
tokens count likewise between sending and first token, its output tokens between first and last. Latencies are of the
requests that were sent within.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from jouletrace.arrays import Floats, Ints, Mask
from jouletrace.run import Estimate, Run
from jouletrace.run.forms import LoadFacts
from jouletrace.sensor.shares import Timeline
from jouletrace.stats.quantiles import student
from jouletrace.stats.regression import equivalent_noise

BINS, LEAST_REQUESTS = (8, 60), 20
"""Bins of a level; with fewer requests nothing can be said of a trend."""


@dataclass(frozen=True)
class Requests:
    """Requests of a level, in order of sending; times in seconds from ``origin_ns``, shape (n,), NaN where none.

    Attributes:
        row: Place in the table.
        ok: Whether each was answered.
    """

    origin_ns: int
    row: Ints
    due: Floats
    sent: Floats
    first: Floats
    last: Floats
    input_tokens: Floats
    output_tokens: Floats
    ok: Mask

    def __len__(self) -> int:
        return len(self.sent)

    @property
    def ttft(self) -> Floats:
        """Seconds from sending to the first token."""
        return self.first - self.sent

    @property
    def tpot(self) -> Floats:
        """Seconds per output token after the first; NaN with fewer than two tokens."""
        tokens = np.where(self.output_tokens > 1, self.output_tokens - 1, np.nan)
        return np.asarray((self.last - self.first) / tokens)

    @property
    def e2e(self) -> Floats:
        """Seconds from sending to the last token."""
        return self.last - self.sent

    def nanoseconds(self, seconds: float) -> int:
        """A time in nanoseconds since the Unix epoch."""
        return self.origin_ns + round(seconds * 1e9)


def requests_of(run: Run, level: int) -> Requests:
    """The requests of a level."""
    table = run.requests
    rows = np.flatnonzero(pc.equal(table["level"], level).to_numpy(zero_copy_only=False))
    part = table.take(rows)
    sent = part["sent_ns"].to_numpy()
    rows, part = rows[np.argsort(sent, kind="stable")], part.take(np.argsort(sent, kind="stable"))
    origin = int(sent.min()) if len(sent) else 0

    def seconds(name: str) -> Floats:
        column = part[name]
        values = (pc.fill_null(column, origin).to_numpy() - origin) / 1e9
        return np.asarray(np.where(pc.is_null(column).to_numpy(zero_copy_only=False), np.nan, values))

    def count(name: str) -> Floats:
        return np.asarray(pc.fill_null(part[name], 0).to_numpy(), np.float64)

    due = seconds("scheduled_ns")
    times = seconds("sent_ns"), seconds("first_ns"), seconds("last_ns")
    ok = np.array([one == "ok" for one in part["status"].to_pylist()], bool)
    due = np.where(np.isnan(due), times[0], due)
    return Requests(origin, rows, due, *times, count("input_tokens"), count("output_tokens"), ok)


class TimeOf(NamedTuple):
    """Seconds of each request, shape (n,), and of none."""

    each: Floats
    nobody: float


def going_on(start: Floats, end: Floats, edges: Floats) -> Floats:
    """Mean number of these times that go on between each two edges, shape (len(edges) - 1,)."""
    seconds = Timeline(start, end, np.zeros(len(start), np.int64)).seconds(edges)[:, 0]
    return np.asarray(seconds / np.diff(edges))


def overlap(start: Floats, end: Floats, window: tuple[float, float]) -> Floats:
    """Share of each time [start, end] within a window; of a moment 1 or 0; 0 of what isn't there."""
    inside = np.minimum(end, window[1]) - np.maximum(start, window[0])
    length = end - start
    moment = ((start >= window[0]) & (start < window[1])).astype(float)
    share = np.where(length > 0, np.clip(inside, 0, None) / np.where(length > 0, length, 1.0), moment)
    return np.where(np.isnan(share), 0.0, share)


def shared_time(r: Requests, window: tuple[float, float], steps: tuple[Floats, Floats] | None = None) -> TimeOf:
    """The time in a window, or that without a step, shared at each moment by the requests that are open.

    ``steps`` are starts and ends.
    """
    edges = np.concatenate([r.sent, r.last, *(steps or ()), window])
    edges = np.unique(np.clip(edges, *window))
    free = np.diff(edges)
    if steps is not None:
        free = np.where(going_on(*steps, edges) < 0.5, free, 0.0)
    open_ = going_on(r.sent, r.last, edges)
    reached = np.append(0.0, np.cumsum(np.where(open_ > 0.5, free / np.maximum(np.round(open_), 1.0), 0.0)))
    before, after = (reached[np.searchsorted(edges, np.clip(one, *window))] for one in (r.sent, r.last))
    return TimeOf(after - before, float(free[open_ < 0.5].sum()))


def steady_window(requests: Requests) -> tuple[float, float, bool]:
    """Start and end of the steady state in seconds, and whether there is one; the rule is that of the module."""
    end = float(requests.sent[-1])
    count = int(np.clip(len(requests) // 5, *BINS))
    edges = np.linspace(float(requests.sent[0]), max(end, float(requests.sent[0]) + 1e-6), count + 1)
    open_ = going_on(requests.sent, requests.last, edges)
    done = np.histogram(requests.last, edges)[0].astype(float)
    if len(requests) >= LEAST_REQUESTS and requests.ok.any():
        filled_s = float(np.median(requests.e2e[requests.ok]))
        begin = max(int(np.searchsorted(edges - edges[0], filled_s)), _warm_up(open_), _warm_up(done))
        for first in range(begin, count // 2 + 1):
            if not (_trend(open_[first:]) or _trend(done[first:])):
                return float(edges[first]), float(edges[-1]), True
    return float(edges[count // 2]), float(edges[-1]), False


def _warm_up(values: Floats) -> int:
    """Values to cut off at the beginning, at most half: those without which the marginal standard error is least."""
    first = range(len(values) // 2 + 1)
    return int(np.argmin([values[k:].var() / (len(values) - k) for k in first]))


def _trend(values: Floats) -> bool:
    """True if the slope of a straight line through values differs from 0."""
    place = np.arange(len(values)) - (len(values) - 1) / 2
    slope = float(place @ values / (place @ place))
    left = values - values.mean() - slope * place
    if np.ptp(left) <= 1e-9 * max(abs(float(values.mean())), 1e-9):
        return abs(slope) * len(values) > 1e-6 * abs(float(values.mean()))
    deviation = equivalent_noise(left) / float(np.sqrt(place @ place))
    return abs(slope) > student(0.975, len(values) - 2) * deviation


@dataclass(frozen=True)
class Steady:
    """A level in its steady state.

    Attributes:
        unit: Of its figures.
        load: What was offered.
        requests: All of them.
        window: Start and end in seconds.
        energy: Of all devices in it, J.
        flags: Of its energy.
    """

    unit: int
    load: LoadFacts
    requests: Requests
    window: tuple[float, float]
    energy: Estimate
    flags: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return self.window[1] - self.window[0]

    def weights(self) -> tuple[Floats, Floats, Floats]:
        """Requests, input and output tokens in the window, 0 of failed ones, shape (n,) each."""
        return weights_in(self.requests, self.window)


@dataclass(frozen=True)
class Bill:
    """Bills of the requests of a level.

    Attributes:
        energy_j: Of each request, shape (n,).
        share: Share of each request's time in the steady window, shape (n,).
        parts: Estimates by metric: of what the energy of the window consists.
        own_j: What each request's own tokens added, by steps alone, shape (n,).
        half_j: Half-width of each bill, by steps alone, shape (n,).
        accounted: Tokens of the requests over those of the steps.
    """

    energy_j: Floats
    share: Floats
    parts: dict[str, Estimate]
    own_j: Floats | None = None
    half_j: Floats | None = None
    accounted: float = 1.0

    @property
    def columns(self) -> tuple[Floats, Floats, Floats | None, Floats | None]:
        """Values of ``tables.BILL`` of each request."""
        return self.energy_j, self.share, self.own_j, self.half_j


def weights_in(r: Requests, window: tuple[float, float]) -> tuple[Floats, Floats, Floats]:
    """Requests, input and output tokens in a window, 0 of failed ones, shape (n,) each."""
    whole = np.where(r.ok, overlap(r.sent, r.last, window), 0.0)
    read = np.where(r.ok, overlap(r.sent, r.first, window), 0.0) * r.input_tokens
    written = np.where(r.ok, overlap(r.first, r.last, window), 0.0) * r.output_tokens
    return whole, read, written
