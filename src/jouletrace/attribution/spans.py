"""Energies of spans of a power record, with the reason where it doesn't show one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from jouletrace.arrays import Floats, Indices, Ints, Mask
from jouletrace.attribution.outcome import ALIASED_LOG, READINGS, SWINGS
from jouletrace.attribution.prior import KnownSegments, Prior
from jouletrace.errors import BadInputError
from jouletrace.run import Estimate
from jouletrace.run.channels import GAIN_PCT
from jouletrace.run.readings import ALIASED, IMPLAUSIBLE, Readings
from jouletrace.sensor.shares import GAPLESS, Response
from jouletrace.stats.interval import Z95
from jouletrace.stats.one_thread import one_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jouletrace.attribution.solve import Energies

_REACH = 25
"""Readings around a span's edges from which its power is taken, and periods beyond what a reading remembers."""

_WINDOWS, _FILLS = 4, 16
"""Windows of means that meet, and readings, from which on a span has its energy by their sum: the chain fits the delay
and the width of the windows to what power does within a span."""

_LOG, _OWN = 4.0, 4
"""Times the longest swing of the prior, from which on the time between readings hides slower ones, too: then they are
a log. Readings of such a log within a span from which on its energy is theirs alone."""

BLIND, _WIDEST = 0.05, 0.5
"""Largest share of a span that may lie in holes of the record, or of readings that a failing sensor may make, and
largest half-width of an interval over the energy: a wider one says nothing."""

ALIASED_FROM = GAIN_PCT / 100
"""Least ``SpanEnergies.hidden`` of a load that counts as aliased: that of a gain, which no reading shows either."""


@dataclass(frozen=True)
class SpanEnergies:
    """Energies of m spans, with their joint distribution."""

    energies: Energies | None  # of those that have one; None if none has
    number: Indices  # shape (m,): the number of each span in ``energies``, -1 without one
    # Why there is no energy, or None; length m: "no_samples", "implausible_readings", "outside_record",
    # "hole_in_record", "empty_window", "sensor_too_slow" (the interval would be wider than the energy),
    # "aliased_with_sensor" (mostly by swings of a known period), or the estimator's own reason
    reason: list[str | None]
    # Codes that qualify an energy; length m: "hole_in_record" (a short one, over which the readings say nothing),
    # "implausible_readings" (some were left out), "equal_readings" (of a log, which may be aliased with its load)
    flags: list[tuple[str, ...]]
    period_s: float | None  # of the loads' swings, if it is known
    # Mean energies in J and ends of their 95 % intervals, NaN where there are none, shape (m,)
    energy_j: Floats
    low_j: Floats
    high_j: Floats

    @classmethod
    def none(cls, count: int, reason: str) -> SpanEnergies:
        """Of so many spans none has an energy, for one reason."""
        nan = np.full(count, np.nan)
        return cls(None, np.full(count, -1, np.intp), [reason] * count, [()] * count, None, nan, nan, nan)

    def __len__(self) -> int:
        return len(self.number)

    @property
    def has_energy(self) -> Mask:
        """True for the spans that have an energy, shape (m,)."""
        return self.number >= 0

    def some(self, which: Indices) -> SpanEnergies:
        """Those of some spans, by number."""
        reason, flags = ([facts[i] for i in which.tolist()] for facts in (self.reason, self.flags))
        mean, low, high = (values[which] for values in (self.energy_j, self.low_j, self.high_j))
        return SpanEnergies(self.energies, self.number[which], reason, flags, self.period_s, mean, low, high)

    def sums(self, weights: ArrayLike) -> tuple[Floats, Floats, Floats]:
        """Mean, low and high end of weighted sums of energies that are known, in J, each of shape (r,).

        Spans share what isn't known of the sensor and of swings between readings: a sum is less certain than its parts
        would be by themselves.

        Args:
            weights: Of the spans, shape (r, m) or (m,); those of spans without an energy don't count.
        """
        weights = np.atleast_2d(np.asarray(weights, np.float64))
        if self.energies is None:
            none = np.full(len(weights), np.nan)
            return none, none, none
        energies, rows = self._counted(self.energies, weights)
        return energies.interval(rows)

    def estimate(self, weights: ArrayLike = 1.0, n: int = 1, method: str = "windows") -> Estimate:
        """A weighted sum in J, with its flags and sources; null if a span that counts has none.

        ``weights`` are of the spans, shape (m,), or of all of them. The reason is the commonest.
        """
        weights = np.broadcast_to(np.asarray(weights, np.float64), (len(self),))
        mine = np.flatnonzero(weights).tolist()
        why = [reason for i in mine or range(len(self)) if (reason := self.reason[i]) is not None]
        if why or not mine:
            return Estimate.null(max(sorted(set(why)), key=why.count, default="not_measured"), method)
        value, low, high = (float(end[0]) for end in self.sums(weights))
        flags = dict.fromkeys(code for i in mine for code in self.flags[i])
        return Estimate(value, low, high, n, method, flags=tuple(flags), budget=self.sources(weights))

    def sources(self, weights: ArrayLike) -> dict[str, float]:
        """Standard uncertainties of a weighted sum by source, in J; ``weights`` have shape (m,)."""
        if self.energies is None:
            return {}
        energies, row = self._counted(self.energies, np.atleast_2d(np.asarray(weights, np.float64)))
        return energies.sources(row)

    def hidden(self, weights: ArrayLike) -> float:
        """Half-width of a weighted sum by swings of the known period alone, over the sum; 0 if no period is known.

        Readings, or the samples behind them, meet few phases of such a load, and no reading shows it. Infinite where
        that leaves no energy. ``weights`` have shape (m,).
        """
        weights = np.asarray(weights, np.float64)
        if self.period_s is None:
            return 0.0
        if self.energies is None or not np.any(weights[self.has_energy]):
            return np.inf if any(weights[i] and why == ALIASED for i, why in enumerate(self.reason)) else 0.0
        energies, row = self._counted(self.energies, weights[None])
        (mean,), _ = energies.moments(row)
        return float(Z95 * energies.hidden_sd(row)[0] / abs(mean))

    def less_certain(self, share: float) -> SpanEnergies:
        """The same with one more error that all spans have in common, a standard uncertainty over the energy."""
        if self.energies is None or not share:
            return self
        off_j = share * self.energies.mean_j
        energies = replace(self.energies, covariance=self.energies.covariance + off_j[:, :, None] * off_j[:, None])
        ends, here = energies.interval(), self.has_energy
        mean, low, high = (np.where(here, end[np.maximum(self.number, 0)], np.nan) for end in ends)
        return replace(self, energies=energies, energy_j=mean, low_j=low, high_j=high)

    def _counted(self, energies: Energies, weights: Floats) -> tuple[Energies, Floats]:
        """The energies that count in some sums, k of m, and the weights of these, shape (r, k)."""
        counts = np.flatnonzero(self.has_energy & weights.any(axis=0))
        return energies.of(self.number[counts]), weights[:, counts]


@one_thread
def span_energies(
    record: Readings,
    response: Response,
    start_ns: ArrayLike,
    end_ns: ArrayLike,
    *,
    bursts_ns: ArrayLike | None = None,
    period_s: float | None = None,
    prior: Prior = Prior(),  # noqa: B008  # frozen
) -> SpanEnergies:
    """Energy of each span [start, end], with what all of them have in common.

    Args:
        record: A cleaned power record, each reading at the time at which it was taken.
        response: What a reading shows of power.
        start_ns: Starts in ns since the Unix epoch, shape (m,).
        end_ns: Ends, shape (m,).
        bursts_ns: Segments with a load of their own, shape (b, 2): a window of a load that goes on has no edges at its
            ends. None for the spans themselves. If there are none, no one knows when the load changed: readings that
            show no more than half of the time between them are then a log of momentary powers (``Response.sparse``).
        period_s: Period of the load's swings, where it is known.
        prior: What is believed of power.

    Raises:
        BadInputError: If starts and ends don't match.
    """
    start, end = (np.atleast_1d(np.asarray(edge, np.int64)) for edge in (start_ns, end_ns))
    if start.shape != end.shape or start.ndim != 1:
        raise BadInputError(f"spans: {start.shape} starts do not go with {end.shape} ends")
    unknown = bursts_ns is not None and not np.size(bursts_ns)
    response = response.momentary if unknown and response.sparse else response
    m, missing = len(start), record.hole_seconds(start, end)
    reason = _judged(record, response, start, end, missing)
    number, each = np.full(m, -1, np.intp), np.full((3, m), np.nan)
    ok, energies = np.flatnonzero([code is None for code in reason]), None
    if len(ok):
        spans = np.stack([record.seconds(start[ok]), record.seconds(end[ok])], axis=1)
        bursts = spans if bursts_ns is None or unknown else record.seconds(bursts_ns).reshape(-1, 2)
        edges_s = np.empty(0) if unknown else np.unique(bursts)
        far, bursts, near = _far(record, response, spans, bursts)
        if len(far.segments_s):  # the reading after one doesn't begin where the last that is left ended
            response = replace(response, back_to_back=False)
        from jouletrace.attribution.attribute import attribute  # scipy takes half a second to import
        from jouletrace.attribution.means import mean_energies
        from jouletrace.attribution.solve import apart

        parts = [] if unknown else _by_own(record, response, spans, prior)
        if response.slow and not missing[ok].any():  # by the sum of its windows
            summed = np.flatnonzero(unknown | (np.diff(spans)[:, 0] >= _least_s(response)))
            parts += [(summed, mean_energies(record, response, spans[summed], edges_s))] if len(summed) else []
        rest = np.setdiff1d(np.arange(len(ok)), np.concatenate([np.empty(0, np.intp), *(i for i, _ in parts)]))
        if len(rest):
            solved = attribute(
                record.time_s[near],
                record.value[near],
                spans[rest],
                response=response,
                bursts=bursts,
                period_s=period_s,
                times_sd_s=record.unsure_s[near],
                prior=prior,
                far=far,
            )
            parts.append((rest, solved))
        energies = apart(parts)
        mean, low, high = energies.interval()
        wide = (high - low) / 2 > _WIDEST * np.abs(mean)
        for i in np.flatnonzero(wide | ~np.isfinite(mean)).tolist():
            none = energies.reason if np.isnan(mean[i]) else ""  # that of equal readings qualifies an energy
            by = {} if none or period_s is None else energies.sources(np.eye(len(ok))[[i]])
            hidden = bool(by) and by[SWINGS] > by[READINGS]
            reason[ok[i]] = none or (ALIASED if hidden else "sensor_too_slow")
        good = np.array([reason[i] is None for i in ok.tolist()])
        number[ok[good]] = np.flatnonzero(good)
        each[:, ok[good]] = np.stack([mean, low, high])[:, good]
        energies = energies if good.any() else None
    # A reading speaks of the time before its stamp
    left_out = record.implausible(start, end + round(1e9 * (response.lasts_s + response.period_s)))
    equal = (number >= 0) & (energies is not None and energies.reason == ALIASED_LOG)
    stated = {"hole_in_record": missing > 0, IMPLAUSIBLE: left_out, "equal_readings": equal}
    flags = [tuple(code for code, some in stated.items() if some[i]) for i in range(m)]
    return SpanEnergies(energies, number, reason, flags, period_s, *each)


def _least_s(response: Response) -> float:
    """Length from which on a span has its energy by the sum of means that meet, s."""
    return max(_WINDOWS * response.window_s, _FILLS * response.period_s)


def shown_s(record: Readings, response: Response) -> Floats:
    """From when to when readings show power, shape (2,): each stands for a period around its middle."""
    middle_s = record.time_s[[0, -1]] - response.delay_s - response.middle_s
    return np.asarray(middle_s + np.array([-0.5, 0.5]) * response.period_s)


def shown_ns(record: Readings, response: Response) -> Ints:
    """The same in ns since the Unix epoch, shape (2,)."""
    return np.asarray(record.origin_ns + np.round(1e9 * shown_s(record, response)).astype(np.int64))


def _judged(record: Readings, response: Response, start: Ints, end: Ints, missing: Floats) -> list[str | None]:
    """The reason for which the record can't speak for a span, of each; None where it can."""
    if len(record) < 2:
        return [IMPLAUSIBLE if len(record.implausible_ns) else "no_samples"] * len(start)
    begin_s, end_s = record.seconds(start), record.seconds(end)
    first, last = shown_s(record, response)
    empty, outside = end <= start, (begin_s < first) | (end_s > last)
    holed = missing > BLIND * (end_s - begin_s)
    codes = np.where(empty, "empty_window", np.where(outside, "outside_record", np.where(holed, "hole_in_record", "")))
    return [code or None for code in codes.tolist()]


def _holes(record: Readings, response: Response) -> Floats:
    """Segments of which no reading shows more than its memory, in s, shape (h, 2).

    An exponential memory reaches back into a hole: what it shows of the end is no level of the whole.
    """
    if response.back_to_back:
        return np.empty((0, 2))
    begin, end = record.seconds(record.holes).reshape(-1, 2).T - response.delay_s
    back_s = np.append(np.arange(response.width_s, response.lasts_s, response.period_s), response.lasts_s)
    edges = np.maximum(np.column_stack([begin, *(end - late_s for late_s in back_s[::-1])]), begin[:, None])
    holes = np.stack([edges[:, :-1], edges[:, 1:]], axis=-1).reshape(-1, 2)
    return holes[holes[:, 1] > holes[:, 0]]


def _segments(bursts: Floats, holes: Floats) -> Floats:
    """Bursts as disjoint segments, cut at all of their edges and at holes: the level in a hole is its own."""
    edges = np.unique(np.concatenate([bursts.ravel(), holes.ravel()]))
    return np.stack([edges[:-1], edges[1:]], axis=1)[_within(edges[:-1], bursts)]


def _far(record: Readings, response: Response, spans: Floats, bursts: Floats) -> tuple[KnownSegments, Floats, Mask]:
    """Segments of bursts that are far from all edges, with their energies; what is left of bursts; and of readings.

    The readings that are left, shape (n,), show power in bursts and spans or next to them. A burst goes on before the
    end of a known segment, so that those after it have forgotten what was before the burst.
    """
    reach_s, fades_s = response.lasts_s + _REACH * response.period_s, 2 * response.lasts_s
    holes, read_s = _holes(record, response), record.time_s - response.delay_s
    bursts = _segments(bursts, holes)
    edges = np.unique(np.concatenate([spans.ravel(), bursts.ravel()]))
    piece = np.stack([edges[:-1], edges[1:]], axis=1)
    far = np.stack([_near(read_s, piece[:, 0], reach_s)[1], _near(read_s, piece[:, 1], reach_s)[0]], axis=1)
    long = (np.diff(far)[:, 0] > 2 * reach_s) & _within(piece[:, 0], bursts) & ~_within(piece[:, 0], holes)
    far = far[long]
    if response.back_to_back:  # of a counter the energy between two reads is known
        far = read_s[np.searchsorted(read_s, far)]
    gone = far - np.array([0.0, fades_s])
    left = _segments(bursts, gone)
    begin, end = np.vstack([spans, bursts]).T
    around = np.stack([_near(read_s, begin, reach_s)[0], _near(read_s, end, reach_s)[1]], axis=1)
    if not response.width_s:  # of a log all that lies between readings counts
        return _summed(record, response, far[:0]), bursts, _within(read_s, around)
    near = _within(read_s, around) & ~_within(read_s, far)
    return _summed(record, response, far), left[~np.isin(left[:, 0], gone[:, 0])], near


def _near(read_s: Floats, edge_s: Floats, reach_s: float) -> tuple[Floats, Floats]:
    """From when to when readings are near each edge: those within ``reach_s``, and ``_REACH`` on each side at least."""
    at, last = np.searchsorted(read_s, edge_s), len(read_s) - 1
    first_s, last_s = read_s[np.maximum(at - _REACH, 0)], read_s[np.minimum(at + _REACH - 1, last)]
    return np.minimum(edge_s - reach_s, first_s), np.maximum(edge_s + reach_s, last_s)


def _within(time_s: Floats, segments: Floats) -> Mask:
    """True for times in one of some segments, shape of ``time_s``."""
    begun, ended = np.sort(segments[:, 0]), np.sort(segments[:, 1])
    return np.searchsorted(begun, time_s, side="right") > np.searchsorted(ended, time_s, side="right")


def _summed(record: Readings, response: Response, far: Floats) -> KnownSegments:
    """Energies of segments by the sum of readings.

    A change between two of them may lie anywhere, but for a counter; between two windows where these meet.
    """
    gap_s, value = np.diff(record.time_s), record.value
    between = value[1:] if response.back_to_back else (value[1:] + value[:-1]) / 2
    covers = response.window_s + 2 * response.rise_s >= GAPLESS * response.period_s
    off_s2 = 2 * response.jitter_s**2 if response.slow else gap_s**2 / (6 if covers else 2)
    off_s2 = off_s2 * (not response.back_to_back)
    error = np.diff(value) ** 2 * off_s2 + (response.noise_w * gap_s) ** 2
    read_s = record.time_s - response.delay_s - (0.0 if response.back_to_back else response.middle_s)
    energies, variance = (
        np.diff(np.interp(far, read_s, np.append(0.0, np.cumsum(step))))[:, 0] for step in (between * gap_s, error)
    )
    return KnownSegments(far, energies, variance)


def _by_own(record: Readings, response: Response, spans: Floats, prior: Prior) -> list[tuple[Indices, Energies]]:
    """Energies of marked spans of a log, each by readings within it alone, with the number of the span.

    What runs in a span has a level and a memory of its own. Readings that may show what is beside it don't count; spans
    with fewer than ``_OWN`` others are left out.
    """
    from jouletrace.attribution.log_chain import job_energies

    if not response.sparse or response.period_s < _LOG * prior.periods_s[1]:
        return []
    log, by_span = response.momentary, []
    read_s = record.time_s - log.delay_s
    beside_s = response.middle_s * (1 + 2 * response.width_sd) + 2 * (response.jitter_s + response.delay_sd_s)
    inside = spans + np.array([beside_s, -beside_s])
    for i, (first, last) in enumerate(np.searchsorted(read_s, inside).tolist()):
        if last - first >= _OWN:
            energies = job_energies(read_s[first:last], record.value[first:last], spans[[i]], log.noise_w)
            by_span.append((np.array([i]), energies))
    return by_span
