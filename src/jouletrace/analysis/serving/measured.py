"""Energy of the devices of a served load: of windows and their parts, and of a unit of what the load does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.power import energies, readings
from jouletrace.analysis.serving.steady import Floats
from jouletrace.attribution.amounts import Units, attribute_amounts
from jouletrace.attribution.prior import MOVING
from jouletrace.attribution.spans import SpanEnergies
from jouletrace.run import Estimate, Run
from jouletrace.sensor.shares import Response, Timeline, shares
from jouletrace.stats.interval import total

BLOCKS = 10
"""Parts of a steady window whose scatter is the chance within a run."""

_PARTS = 2
"""Readings in a part of a window, at least: between two of them its energy is what they have on both sides."""

LEAD_S = 10.0
"""Of the record before the first and after the last thing that went on."""

_FEWEST = 30
"""Readings from which units have energies."""

VARIES = 0.01
"""Least share of a kind's variance that the others leave unexplained, for it to be distinguished. Of a mix of two kinds
of requests (serving-mix-h200) 0.0196 are left of the context: without it a short request would cost 1.5 times what it
does alone, with it 1.18 times."""


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
    """What all devices drew in the window that is the span ``place``, and in its parts, which follow, if ``shown``."""
    parts = [one.estimate(np.arange(len(one)) == place, method="window") for one in found]
    joules = np.sum([one.energy_j[place + 1 : place + 1 + BLOCKS] for one in found], axis=0)
    energy = parts[0] if len(parts) == 1 else total(parts, method="window")
    return Measured(energy, joules if shown and energy.value is not None and not np.isnan(joules).any() else None)


Kind = tuple[Floats, Floats, Floats]
"""Starts and ends in s and amounts, each of shape (n,)."""


@dataclass(frozen=True)
class Record:
    """Readings of all devices around loads."""

    each: tuple[tuple[Floats, Floats, Response], ...]  # times in s from an origin, values, response
    loads: Floats  # disjoint starts and ends of what goes on in s, in order, shape (l, 2)

    @classmethod
    def of(cls, run: Run, origin_ns: int, loads: Floats) -> Record | str:
        """The readings from ``LEAD_S`` before the first load to as long after the last, or why there are none.

        Args:
            run: With the power records.
            origin_ns: Zero of the seconds.
            loads: Starts and ends of loads, in s, shape (l, 2).
        """
        loads = loads[np.argsort(loads[:, 0])]
        reached = np.maximum.accumulate(loads[:, 1])
        first = np.append(True, loads[1:, 0] > reached[:-1])
        loads = np.column_stack([loads[first, 0], reached[np.append(first[1:], True)]])
        found = [readings(run, device.id) for device in run.devices]
        if not found or None in found:
            return "no_power_sensor"
        each = []
        for record, response in (one for one in found if one is not None):
            times_s = record.time_s - float(record.seconds(np.array([origin_ns]))[0])
            each.append((times_s, record.value, response))
        return cls(tuple(each), loads)._within(loads[0, 0] - LEAD_S, loads[-1, 1] + LEAD_S, loads)

    def alone(self, start_s: float, end_s: float) -> Record | str:
        """The readings around one load that show no other one, or why there are none."""
        if [start_s, end_s] not in self.loads.tolist():
            return "loads_overlap"
        others = self.loads[self.loads[:, 0] != start_s]
        memory_s = max(response.lasts_s for *_, response in self.each)
        low = max([*others[others[:, 0] < start_s, 1] + memory_s, -np.inf])
        return self._within(low, min([*others[others[:, 0] > start_s, 0], np.inf]), np.array([[start_s, end_s]]))

    def _within(self, low_s: float, high_s: float, loads: Floats) -> Record | str:
        each = []
        for times_s, values_w, response in self.each:
            near = (times_s >= low_s) & (times_s <= high_s)
            each.append((times_s[near], values_w[near], response))
        return "too_few_values" if min(len(times_s) for times_s, *_ in each) < _FEWEST else Record(tuple(each), loads)

    def shown(self, timeline: Timeline) -> Floats:
        """What the first device's readings show of 1 and of each kind, shape (n, 1 + kinds)."""
        times_s, _, response = self.each[0]
        shown = shares(times_s - response.delay_s, timeline, response)
        return np.column_stack([np.ones(len(shown)), shown])

    def units(self, timeline: Timeline) -> Units:
        """Idle power and the energy of a unit of each kind, of all devices."""
        found: Units | None = None
        for times_s, values_w, response in self.each:
            one = attribute_amounts(times_s, values_w, timeline, response=response, bursts=self.loads)
            found = one if found is None else found + one
        assert found is not None
        return found


def apart(columns: Floats) -> Floats:
    """Share of each column (of its variance, of a constant its square) that the others don't explain, shape (k,)."""
    scaled = columns / np.maximum(np.sqrt((columns**2).mean(axis=0)), 1e-300)
    left = 1 / np.diag(np.linalg.inv(scaled.T @ scaled / len(scaled) + 1e-10 * np.eye(scaled.shape[1])))
    whole = np.where(np.ptp(scaled, axis=0) > 1e-9, scaled.var(axis=0), 1.0)
    return np.asarray(left / np.maximum(whole, 1e-9))


def distinguished(columns: Floats, order: Sequence[int]) -> NDArray[np.bool_]:
    """Mask of the columns that differ from all others, once those that don't are dropped in this ``order``."""
    known = np.asarray(columns.any(axis=0))
    while known.sum() > 1:
        kept = np.flatnonzero(known)
        alike = set(kept[apart(columns[:, kept]) < VARIES].tolist())
        if not alike.intersection(order):
            break
        known[next(k for k in order if k in alike)] = False
    return known


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
