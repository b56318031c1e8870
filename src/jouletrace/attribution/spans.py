"""Energies of spans of a power record, with the reason where it doesn't show one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jouletrace.attribution.attribute import attribute
from jouletrace.attribution.outcome import Outcome, width_outcome
from jouletrace.attribution.prior import Prior
from jouletrace.attribution.solve import Energies
from jouletrace.errors import BadInputError
from jouletrace.run.readings import IMPLAUSIBLE, Readings
from jouletrace.sensor.shares import Floats, Response
from jouletrace.stats.one_thread import one_thread

_REACH = 25.0
"""Periods of the readings, beyond what one remembers, from which power around a span is taken."""

_BLIND = 0.05
"""Largest share of a span that may lie in holes of the record."""

_WIDEST = 0.5
"""Largest half-width of an interval over the energy: a wider one says nothing."""


@dataclass(frozen=True)
class SpanEnergies:
    """Energies of m spans, with their joint distribution."""

    energies: Energies | None  # of those that have one; None if none has
    place: NDArray[np.intp]  # shape (m,): the number of each span in ``energies``, -1 without one
    # Why there is no energy, or None; length m: "no_samples", "implausible_readings", "outside_record",
    # "hole_in_record", "empty_window", "sensor_too_slow" (the interval would be wider than the energy), or the
    # estimator's own reason
    reason: list[str | None]
    # Codes that qualify an energy; length m: "hole_in_record" (a short one, over which the readings say nothing),
    # "implausible_readings" (some were left out)
    flags: list[tuple[str, ...]]
    # The check that readings agree with the sensor's memory, where they show it: a load that follows its marks later
    # changes them too
    memory: Outcome | None
    _each: tuple[Floats, Floats, Floats] = field(repr=False)

    def __len__(self) -> int:
        return len(self.place)

    @property
    def known(self) -> NDArray[np.bool_]:
        """True for the spans that have an energy, shape (m,)."""
        return self.place >= 0

    @property
    def energy_j(self) -> Floats:
        """Mean energies in J, NaN where there is none, shape (m,)."""
        return self._each[0]

    @property
    def low_j(self) -> Floats:
        """Lower ends of 95 % intervals in J, NaN where there is none, shape (m,)."""
        return self._each[1]

    @property
    def high_j(self) -> Floats:
        """Upper ends, likewise."""
        return self._each[2]

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
        return self.energies.interval(self._rows(weights))

    def sources(self, weights: ArrayLike) -> dict[str, float]:
        """Standard uncertainties of a weighted sum by source, in J; ``weights`` have shape (m,)."""
        if self.energies is None:
            return {}
        return self.energies.sources(self._rows(np.atleast_2d(np.asarray(weights, np.float64))))

    def _rows(self, weights: Floats) -> Floats:
        assert self.energies is not None
        known = self.known
        rows = np.zeros((len(weights), self.energies.mean_j.shape[1]))
        rows[:, self.place[known]] = weights[:, known]
        return rows


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
            ends. None for the spans themselves.
        period_s: Period of the load's swings, where it is known.
        prior: What is believed of power.

    Raises:
        BadInputError: If starts and ends don't match.
    """
    start, end = (np.atleast_1d(np.asarray(edge, np.int64)) for edge in (start_ns, end_ns))
    if start.shape != end.shape or start.ndim != 1:
        raise BadInputError(f"spans: {start.shape} starts do not go with {end.shape} ends")
    m, missing = len(start), record.hole_seconds(start, end)
    reason = _judged(record, response, start, end, missing)
    place, each = np.full(m, -1, np.intp), (np.full(m, np.nan), np.full(m, np.nan), np.full(m, np.nan))
    ok, energies, memory = np.flatnonzero([one is None for one in reason]), None, None
    if len(ok):
        spans = np.stack([record.seconds(start[ok]), record.seconds(end[ok])], axis=1)
        bursts = spans if bursts_ns is None else record.seconds(bursts_ns).reshape(-1, 2)
        bursts = _segments(bursts, _holes(record, response))
        near = _near(record, response, np.vstack([spans, bursts]))
        energies = attribute(
            record.time_s[near],
            record.value[near],
            spans,
            response=response,
            bursts=bursts,
            period_s=period_s,
            times_sd_s=record.unsure_s[near],
            prior=prior,
        )
        mean, low, high = energies.interval()
        wide = (high - low) / 2 > _WIDEST * np.abs(mean)
        for i in np.flatnonzero(wide | ~np.isfinite(mean)).tolist():
            reason[ok[i]] = energies.reason or "sensor_too_slow"
        good = np.array([reason[i] is None for i in ok.tolist()])
        place[ok[good]] = np.flatnonzero(good)
        for values, own in zip(each, (mean, low, high), strict=True):
            values[ok[good]] = own[good]
        energies = energies if good.any() else None
        memory = None if energies is None else _memory(energies, response)
    # A reading speaks of the time before its stamp
    left_out = record.implausible(start, end + round(1e9 * (response.lasts_s + response.period_s)))
    told = {"hole_in_record": missing > 0, IMPLAUSIBLE: left_out}
    flags = [tuple(code for code, some in told.items() if some[i]) for i in range(m)]
    return SpanEnergies(energies, place, reason, flags, memory, each)


def _judged(
    record: Readings, response: Response, start: NDArray[np.int64], end: NDArray[np.int64], missing: Floats
) -> list[str | None]:
    """The reason for which the record can't speak for a span, of each; None where it can."""
    if len(record) < 2:
        return [IMPLAUSIBLE if len(record.implausible_ns) else "no_samples"] * len(start)
    begin_s, end_s = record.seconds(start), record.seconds(end)
    # A reading stands for the time around its middle
    middle_s = record.time_s[[0, -1]] - response.delay_s - response.middle_s
    first, last = middle_s + np.array([-0.5, 0.5]) * response.period_s
    empty, outside = end <= start, (begin_s < first) | (end_s > last)
    holed = missing > _BLIND * (end_s - begin_s)
    codes = np.where(empty, "empty_window", np.where(outside, "outside_record", np.where(holed, "hole_in_record", "")))
    return [code or None for code in codes.tolist()]


def _memory(energies: Energies, response: Response) -> Outcome | None:
    if not len(energies.unknowns_sd) or not response.width_sd:  # momentary readings have none; or it is known exactly
        return None
    return width_outcome(energies.unknowns[-1] / response.width_sd, energies.unknowns_sd[-1] / response.width_sd)


def _holes(record: Readings, response: Response) -> Floats:
    """Segments of which no reading shows anything, in s, shape (h, 2)."""
    if response.back_to_back:
        return np.empty((0, 2))
    holes = record.seconds(record.holes).reshape(-1, 2) - response.delay_s
    holes[:, 1] -= response.width_s
    return holes[holes[:, 1] > holes[:, 0]]


def _segments(bursts: Floats, holes: Floats) -> Floats:
    """Bursts as disjoint segments, cut at all of their edges and at holes: the level in a hole is its own."""
    edges = np.unique(np.concatenate([bursts.ravel(), holes.ravel()]))
    begun, ended = np.sort(bursts[:, 0]), np.sort(bursts[:, 1])
    covered = np.searchsorted(begun, edges[:-1], side="right") > np.searchsorted(ended, edges[:-1], side="right")
    return np.stack([edges[:-1], edges[1:]], axis=1)[covered]


def _near(record: Readings, response: Response, around: Floats) -> NDArray[np.bool_]:
    """Mask of the readings that show power in segments, or next to them."""
    reach_s = response.lasts_s + _REACH * response.period_s
    begun, ended = np.sort(around[:, 0]) - reach_s, np.sort(around[:, 1]) + reach_s
    read_s = record.time_s - response.delay_s
    return np.searchsorted(begun, read_s, side="right") > np.searchsorted(ended, read_s, side="left")
