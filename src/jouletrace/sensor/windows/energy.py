"""Energy of windows, corrected for the sensor's response, with an uncertainty budget.

A record as is smears the edges of a burst out of its window. What is sought is the energy that the
load asked for in the window: in a steady state what the GPU drew; of an isolated burst, the
GPU's settling after it too. Near its edges it is inferred from the readings there, the response
and the times of the edges (``sensor.windows.posterior``); in between readings are summed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jouletrace.errors import BadInputError
from jouletrace.run.readings import IMPLAUSIBLE, Readings
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.stamps import find_grid
from jouletrace.sensor.windows.neighbourhoods import CHUNK, Neighbourhoods
from jouletrace.sensor.windows.posterior import Posterior
from jouletrace.sensor.windows.segments import Stretches, stretches
from jouletrace.sensor.windows.varied import stretched, varied
from jouletrace.stats.one_thread import one_thread

Floats = NDArray[np.float64]

T95 = 2.086
"""Student's t for 20 degrees of freedom: the standard deviations themselves, from a calibration,
are known to about a sixth, which is worth so many (GUM, JCGM 100:2008, equation G.3)."""

_MISFIT = 4.0
"""Squared residual over its expectation from which readings don't fit the model."""

_WIDER = 1.2
_SURE = 4.0
"""A response is refuted where readings are exp(``_SURE``) times as likely under one that is wider or narrower by the
factor ``_WIDER``: nine in ten profiles of simulated H100s whose response is 20 % wider than calibrated, and none
whose response is as calibrated (docs/results/response-sim.md)."""


@dataclass(frozen=True)
class WindowEnergies:
    """Energies of windows."""

    energy_j: Floats  # joules, NaN where there is none, shape (m,)
    sd_j: Floats  # standard uncertainty of each, shape (m,)
    sd_statistical_j: Floats  # its part that differs from window to window: noise, phase, stamps
    # Its part that all windows share: what is not known of the response. A mean over windows has it in full. The gain
    # of the sensor is in neither
    sd_model_j: Floats
    # 95 % interval, shape (m,)
    low_j: Floats
    high_j: Floats
    # Why there is no energy, or None; length m: "no_samples", "implausible_readings", "outside_record",
    # "hole_in_record", "empty_window", "sensor_too_slow" (the interval would be wider than the energy),
    # "edges_too_dense" (more edges near than the sensor can distinguish)
    reason: list[str | None]
    # Codes that qualify an energy; length m: "hole_in_record" (a short hole, bridged at the mean power, its energy in
    # the interval), "unmodelled" (readings at a large edge near it don't fit the model, or the calibration said so),
    # "implausible_readings" (some in it were left out), "nominal_response"
    flags: list[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.energy_j)


@one_thread
def window_energy(
    record: Readings,
    response: StepResponse,
    start_ns: ArrayLike,
    end_ns: ArrayLike,
    *,
    edges_ns: ArrayLike | None = None,
) -> WindowEnergies:
    """Energy of each window [start, end] with its uncertainty.

    Args:
        record: A cleaned power record.
        response: The sensor's response, best calibrated.
        start_ns: Starts in ns since the Unix epoch, shape (m,).
        end_ns: Ends, shape (m,).
        edges_ns: Times at which the load is known to change. None for the windows' own ends, which
            is why adjacent windows should be requested together. A window within a
            steady load has no edges at its ends: there a jump would be fitted that doesn't exist.
            Edges that are given are exact: readings there also show whether a calibrated response still holds.

    Returns:
        Energies in the order given. One is null, with a reason, where the record doesn't reach,
        where holes take more than a twentieth of the window, or where its interval would be wider
        than the energy.

    Raises:
        BadInputError: If starts and ends don't match.
    """
    start = np.atleast_1d(np.asarray(start_ns, np.int64))
    end = np.atleast_1d(np.asarray(end_ns, np.int64))
    if start.shape != end.shape or start.ndim != 1:
        raise BadInputError(f"windows: {start.shape} starts do not go with {end.shape} ends")
    edges = np.concatenate([start, end]) if edges_ns is None else np.asarray(edges_ns, np.int64).ravel()

    m = len(start)
    reason: list[str | None] = [None] * m
    mean, statistical, model = (np.full(m, np.nan) for _ in range(3))
    doubted = np.zeros(m, bool)
    missing = record.hole_seconds(start, end)
    a, b = record.seconds(start), record.seconds(end)
    ok = _judge(record, response, a, b, missing, reason)
    if ok.any():
        shared = _Edges(record, response, edges)
        found, crowded = shared.energies(a[ok], b[ok], response)
        mean[ok] = found.mean
        doubted[ok] = shared.doubted(a[ok], b[ok], response, found, exact=edges_ns is not None)
        # The power in a hole is unknown: anything from nothing to twice the mean power.
        unseen = missing[ok] / (b - a)[ok] * np.abs(found.mean) / np.sqrt(3)
        statistical[ok] = np.hypot(np.sqrt(found.variance), unseen)
        model[ok] = shared.model_sd(a[ok], b[ok], response, found.mean)
        dense = np.zeros(m, bool)
        dense[ok] = crowded & (found.strain > _MISFIT)
        slow = ok & (T95 * np.hypot(statistical, model) > 0.5 * np.abs(mean))
        for i in np.flatnonzero(dense | slow):
            reason[i] = "edges_too_dense" if dense[i] else "sensor_too_slow"
            mean[i] = statistical[i] = model[i] = np.nan
    sd = np.hypot(statistical, model)
    # A reading speaks of the time before its stamp.
    left_out = record.implausible(start, end + round(1e9 * (response.memory_s + response.period_s)))
    flags = [_flags(response, missing[i], bool(doubted[i]), bool(left_out[i])) for i in range(m)]
    return WindowEnergies(mean, sd, statistical, model, mean - T95 * sd, mean + T95 * sd, reason, flags)


def _judge(
    record: Readings, response: StepResponse, a: Floats, b: Floats, missing: Floats, reason: list[str | None]
) -> NDArray[np.bool_]:
    """Which windows the record can speak for at all; the others get their reason."""
    if len(record) < 2:
        reason[:] = [IMPLAUSIBLE if len(record.implausible_ns) else "no_samples"] * len(a)
        return np.zeros(len(a), bool)
    first = record.seconds(record.time_ns[0]) - response.delay_s - response.period_s / 2
    last = record.seconds(record.time_ns[-1]) - response.delay_s + response.period_s / 2
    outside, empty, holed = (a < first) | (b > last), b <= a, missing > 0.05 * (b - a)
    for i in np.flatnonzero(outside | empty | holed):
        reason[i] = "empty_window" if empty[i] else "outside_record" if outside[i] else "hole_in_record"
    return np.asarray(~(outside | empty | holed))


def _flags(response: StepResponse, missing: float, doubted: bool, left_out: bool) -> tuple[str, ...]:
    flags = [IMPLAUSIBLE] if left_out else []
    if missing > 0:
        flags.append("hole_in_record")
    if doubted or not response.modelled:
        flags.append("unmodelled")
    if response.origin == "nominal":
        flags.append("nominal_response")
    return tuple(flags)


class _Edges:
    """The record, its edges and what lies between them: all that windows share."""

    def __init__(self, record: Readings, response: StepResponse, edges_ns: NDArray[np.int64]) -> None:
        self.time = record.seconds(record.time_ns)
        self.time_sd = np.full(len(self.time), response.jitter_s)
        if response.stamp_grid:
            grid = find_grid(record.time_ns, response.period_s)
            self.time = np.maximum.accumulate(grid.taken(response.stamp_grid))
            # The slot of a stamp that is half a period late or more is ambiguous.
            self.time_sd[grid.late_s > 0.45 * response.period_s] = response.period_s / 4
        self.power = record.value
        edges = np.unique(record.seconds(edges_ns))
        # Edges that the sensor can't distinguish are one.
        self.edges = edges[np.append(True, np.diff(edges) > 0.02 * response.period_s)[: len(edges)]]
        self.stretches: Stretches = stretches(self.time, self.power, self.edges, response)

    def energies(self, a: Floats, b: Floats, response: StepResponse) -> tuple[Posterior, NDArray[np.bool_]]:
        """Posterior of each window's energy, and where edges were too many."""
        near = Neighbourhoods(self.time, self.time_sd, self.power, self.stretches, response)
        total = Posterior(*(np.empty(len(a)) for _ in range(4)))
        crowded = np.zeros(len(a), bool)
        long = b - a > 2 * near.margin + response.period_s
        for part in _chunks(np.flatnonzero(~long), b - a):
            found, crowded[part] = near.whole(a[part], b[part])
            total.put(part, found)
        for part in _chunks(np.flatnonzero(long), b - a):
            found, crowded[part] = near.ends(a[part], b[part])
            total.put(part, found)
        return total, crowded

    def doubted(
        self, a: Floats, b: Floats, response: StepResponse, found: Posterior, *, exact: bool
    ) -> NDArray[np.bool_]:
        """True where readings at a large edge near a window contradict the response, whose posteriors are ``found``.

        They misfit by more than the uncertainty of its delay explains, which intervals contain. Of a calibrated
        response the width is tested too, where edges are ``exact``: a load may follow a mark of a program later.
        """
        large, ends = self.stretches.large_s, np.concatenate([a, b])
        bad = large[_within(response.reach_s, ends[np.tile(found.misfit > _MISFIT, 2)], large)]
        if len(bad):
            time_sd = np.hypot(self.time_sd, response.delay_sd_s)
            near = Neighbourhoods(self.time, time_sd, self.power, self.stretches, response)
            bad = bad[near.fit(bad, response)[0] > _MISFIT]
        if exact and response.origin != "nominal":
            own_ends = large[_within(response.memory_s, ends, large)]
            bad = large if self._refuted(own_ends, response) else bad
        return _within(response.reach_s, bad, a) | _within(response.reach_s, bad, b)

    def _refuted(self, edges: Floats, response: StepResponse) -> bool:
        """True if readings at edges fit a wider or narrower response better."""
        if not len(edges):
            return False
        near = Neighbourhoods(self.time, self.time_sd, self.power, self.stretches, response)
        own, *others = (near.fit(edges, stretched(response, by))[1].sum() for by in (1.0, _WIDER, 1 / _WIDER))
        return bool(max(others) - own > _SURE)

    def model_sd(self, a: Floats, b: Floats, response: StepResponse, energy: Floats) -> Floats:
        """What the uncertainty of the response's shape does to each energy, by moving it."""
        variance = np.zeros(len(a))
        for moved in varied(response):
            variance += (self.energies(a, b, moved)[0].mean - energy) ** 2
        return np.asarray(np.sqrt(variance))


def _within(reach_s: float, of_s: Floats, time_s: Floats) -> NDArray[np.bool_]:
    """True where a time has one of others within reach; shape of ``time_s``."""
    others = np.sort(of_s)
    return np.searchsorted(others, time_s - reach_s) < np.searchsorted(others, time_s + reach_s, side="right")


def _chunks(index: NDArray[np.intp], length: Floats) -> list[NDArray[np.intp]]:
    """Batches of windows of like length, so that little is padded."""
    ordered = index[np.argsort(length[index], kind="stable")]
    return [ordered[i : i + CHUNK] for i in range(0, len(ordered), CHUNK)]
