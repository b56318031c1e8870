"""Energy of the devices of a served load: of windows and their parts, and of a unit of what the load does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jouletrace.analysis.power import energies, no_power_reason, readings
from jouletrace.arrays import Floats, Mask
from jouletrace.attribution.amounts import AmountEnergies, attribute_amounts
from jouletrace.attribution.prior import MOVING
from jouletrace.attribution.spans import SpanEnergies
from jouletrace.run import Estimate, Run
from jouletrace.run.spans import union
from jouletrace.sensor.shares import Response, Timeline, shares
from jouletrace.stats.interval import Z95, total

BLOCKS = 10
"""Parts of a steady window whose scatter is the chance within a run."""

_PARTS = 2
"""Readings in a part of a window, at least: between two of them its energy is what they have on both sides."""

_LEAST = 30
"""Readings from which units have energies."""

VARIES = 0.01
"""Least share of a kind's variance that the others leave unexplained, for it to be distinguished. Of a mix of two kinds
of requests (docs/results/trust.md) 0.0196 are left of the context: without it a short request would cost 1.5 times what
it does alone, with it 1.18 times."""


@dataclass(frozen=True)
class Measured:
    """Energy of all devices in a window of a load that goes on, and in ``BLOCKS`` equal parts of it."""

    energy: Estimate
    blocks_j: Floats | None  # shape (BLOCKS,); None if one of them has no energy


def measured(run: Run, windows_ns: Sequence[tuple[int, int]], loads_ns: Sequence[tuple[int, int]]) -> list[Measured]:
    """Energies in windows of loads; ``loads_ns`` are starts and ends of all loads, in which power moves."""
    key = "measured", repr(run.channels), tuple(windows_ns), tuple(loads_ns)
    return run.remember("samples", key, lambda _: _measured(run, windows_ns, loads_ns))


def _measured(run: Run, windows_ns: Sequence[tuple[int, int]], loads_ns: Sequence[tuple[int, int]]) -> list[Measured]:
    edges = np.array([np.linspace(0, end - start, BLOCKS + 1).astype(np.int64) + start for start, end in windows_ns])
    starts, ends = np.hstack([edges[:, :1], edges[:, :-1]]), np.hstack([edges[:, -1:], edges[:, 1:]])
    found = [energies(run, one.id, starts.ravel(), ends.ravel(), loads_ns, prior=MOVING) for one in run.devices]
    if not found:
        return [Measured(Estimate.null("no_power_sensor", "window"), None)] * len(windows_ns)
    periods_s = [one[1].period_s for device in run.devices if (one := readings(run, device.id)) is not None]
    shown = np.diff(edges).min(axis=1) > _PARTS * 1e9 * max(periods_s, default=0.0)
    return [_of_devices(found, k * (BLOCKS + 1), bool(one)) for k, one in enumerate(shown)]


def _of_devices(found: Sequence[SpanEnergies], place: int, shown: bool) -> Measured:
    """The energy of all devices in the span ``place``, a window, and in its parts, which follow, if ``shown``."""
    parts = [one.estimate(np.arange(len(one)) == place, method="window") for one in found]
    joules = np.sum([one.energy_j[place + 1 : place + 1 + BLOCKS] for one in found], axis=0)
    energy = parts[0] if len(parts) == 1 else total(parts, method="window")
    return Measured(energy, joules if shown and energy.value is not None and not np.isnan(joules).any() else None)


@dataclass(frozen=True)
class Factors:
    """Idle power and what a unit of each kind of amount adds, W and J.

    Attributes:
        x: Shape (1 + kinds,), 0 of one that isn't known.
        covariance: Shape (1 + kinds, 1 + kinds).
        known: Which are, shape (1 + kinds,).
        residual_w: Root mean square of what the readings have beside them.
        method: From what they are.
        n: Readings or steps behind them.
        scatter: Of bills by them about those by the scheduler's own steps, relative.
        reason: Why one that isn't known has no value.
    """

    x: Floats
    covariance: Floats
    known: Mask
    residual_w: float
    method: str
    n: int
    scatter: float = 0.0
    reason: str = "not_distinguished"

    @classmethod
    def none(cls, kinds: int, reason: str, method: str) -> Factors:
        """None is known."""
        x = np.zeros(1 + kinds)
        return cls(x, np.outer(x, x), x > 0, 0.0, method, 0, reason=reason)

    @property
    def nothing(self) -> Estimate:
        """The null estimate of a factor that isn't known."""
        return Estimate.null(self.reason, self.method)

    def stated(self, value: float, half: float) -> Estimate:
        """An estimate by the factors, whose interval ends at 0 at least."""
        return Estimate(float(value), max(float(value - half), 0.0), float(value + half), self.n, self.method)

    def estimate(self, k: int) -> Estimate:
        """A factor."""
        return self.stated(self.x[k], Z95 * np.sqrt(self.covariance[k, k])) if self.known[k] else self.nothing

    def parts(self, amounts: Floats, whole: Floats, energy: Estimate) -> tuple[Floats, Floats]:
        """Parts of a measured energy by their amounts, (n, 1 + kinds), of those of the whole, (1 + kinds,).

        Returns:
            Energies, J, which sum to that of the whole, and their half-widths, shape (n,) each.
        """
        measured_j, by_model = energy.value or 0.0, float(whole @ self.x)
        part = amounts @ self.x / by_model
        moved = measured_j / by_model * (amounts - part[:, None] * whole)
        variance = np.einsum("ij,jk,ik->i", moved, self.covariance, moved)
        half = np.hypot(Z95 * np.sqrt(np.maximum(variance, 0.0)), part * (energy.half_width or 0.0))
        return part * measured_j, half


@dataclass(frozen=True)
class Record:
    """Readings of all devices around loads."""

    each: tuple[tuple[Floats, Floats, Response], ...]  # times in s from an origin, values, response
    loads: Floats  # disjoint starts and ends of what goes on in s, in order, shape (l, 2)

    @classmethod
    def from_run(cls, run: Run, origin_ns: int, loads: Floats, lead_s: float = 10.0) -> Record | str:
        """The readings from ``lead_s`` before the first load to as long after the last, or why there are none.

        Args:
            run: With the power records.
            origin_ns: Zero of the seconds.
            loads: Starts and ends of loads, in s, shape (l, 2).
            lead_s: Of the record before and after them, in which the devices idle.
        """
        loads = union(*loads.T)
        found = [one for device in run.devices if (one := readings(run, device.id)) is not None]
        if not found or len(found) < len(run.devices):
            unread = [device.id for device in run.devices if readings(run, device.id) is None]
            return no_power_reason(run, unread[0] if unread else "")
        each = [(one.time_s - float(one.seconds(np.array([origin_ns]))[0]), one.value, by) for one, by in found]
        return cls(tuple(each), loads)._within(loads[0, 0] - lead_s, loads[-1, 1] + lead_s, loads)

    def alone(self, start_s: float, end_s: float) -> Record | str:
        """The readings around one load that show no other one, or why there are none."""
        if [start_s, end_s] not in self.loads.tolist():
            return "loads_overlap"
        others = self.loads[self.loads[:, 0] != start_s]
        memory_s = max(response.lasts_s for *_, response in self.each)
        low = max([*others[others[:, 0] < start_s, 1] + memory_s, -np.inf])
        return self._within(low, min([*others[others[:, 0] > start_s, 0], np.inf]), np.array([[start_s, end_s]]))

    def _within(self, low_s: float, high_s: float, loads: Floats) -> Record | str:
        near = [(times_s >= low_s) & (times_s <= high_s) for times_s, *_ in self.each]
        if min(one.sum() for one in near) < _LEAST:
            return "too_few_values"
        each = zip(self.each, near, strict=True)
        return Record(tuple((times_s[one], watts[one], response) for (times_s, watts, response), one in each), loads)

    def shown(self, timeline: Timeline) -> Floats:
        """The share of 1 and of each kind in the first device's readings, shape (n, 1 + kinds)."""
        times_s, _, response = self.each[0]
        shown = shares(times_s - response.delay_s, timeline, response)
        return np.column_stack([np.ones(len(shown)), shown])

    def units(self, timeline: Timeline, before: tuple[Floats, Floats] | None = None) -> AmountEnergies:
        """Idle power and the energy of a unit of each kind, of all devices; ``before`` as of ``attribute_amounts``."""
        first, *others = (
            attribute_amounts(times_s, watts, timeline, response=response, bursts=self.loads, before=before)
            for times_s, watts, response in self.each
        )
        return sum(others, first)


def apart(columns: Floats) -> Floats:
    """Share of each column (of its variance, of a constant its square) that the others don't explain, shape (k,)."""
    scaled = columns / np.maximum(np.sqrt((columns**2).mean(axis=0)), 1e-300)
    left = 1 / np.diag(np.linalg.inv(scaled.T @ scaled / len(scaled) + 1e-10 * np.eye(scaled.shape[1])))
    whole = np.where(np.ptp(scaled, axis=0) > 1e-9, scaled.var(axis=0), 1.0)
    return np.asarray(left / np.maximum(whole, 1e-9))


def distinguished(columns: Floats, order: Sequence[int]) -> Mask:
    """Mask of the columns that differ from all others, once those that don't are dropped in this ``order``."""
    known = np.asarray(columns.any(axis=0))
    while known.sum() > 1:
        kept = np.flatnonzero(known)
        alike = set(kept[apart(columns[:, kept]) < VARIES].tolist())
        if not alike.intersection(order):
            break
        known[next(k for k in order if k in alike)] = False
    return known


Kind = tuple[Floats, Floats, Floats]
"""Starts and ends in s and amounts, each of shape (n,)."""


def joined(kinds: Sequence[Kind]) -> Kind:
    """Several kinds as one."""
    start, end, amount = (np.concatenate(part) for part in zip(*kinds, strict=True))
    return start, end, amount


def rates(kinds: Sequence[Kind]) -> Timeline:
    """A timeline of kinds of amounts."""
    start, end, amount = joined(kinds)
    end = np.maximum(end, start + 1e-6)
    kind = np.repeat(np.arange(len(kinds)), [len(one) for one, *_ in kinds])
    return Timeline(start, end, kind, least=len(kinds), rate=amount / (end - start))
