"""A recording of ``gpu.py`` with its readings on their grid, and the ways of taking energies of bursts from it.

*alone* is ``attribute`` for each burst by itself, *together* for all bursts in one solve; either with kernels, whose
names are their kinds, or without.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from gpu_files import Kernels, Recorded
from gpu_truth import edges
from recorded import RISE_S

from jouletrace.attribution.activity import Activity, Kind, activity_of
from jouletrace.attribution.attribute import attribute
from jouletrace.attribution.program import attribute_program
from jouletrace.run.readings import Readings
from jouletrace.sensor.power_record import at_slots, clean
from jouletrace.sensor.shares import Response, Timeline

RESPONSE = Response(RISE_S, 0.02, 0.0034, 2e-4, 1 / 16, 0.35, 0.02)
BEFORE_S, AFTER_S, SETTLED_S = 0.7, 0.4, 0.1
"""Readings before and after a span that are used, and how long after an earlier burst they may begin."""

MOST_W = 2100.0


@dataclass(frozen=True)
class Case:
    """A section's recording with its readings on their grid."""

    found: Recorded
    record: Readings

    @classmethod
    def of(cls, found: Recorded) -> Case:
        power = found.arrays["power"]
        return cls(found, at_slots(clean(power[:, 0] * 1000, power[:, 1] / 1e3, 0.02, most_w=MOST_W), 0.02, 2))

    @property
    def times_s(self) -> np.ndarray:
        """When the readings were taken, in seconds of the record, shape (n,)."""
        return self.record.time_s

    def near(self, start_s: float, end_s: float) -> np.ndarray:
        """Mask of the readings between two times."""
        return (self.times_s > start_s) & (self.times_s < end_s)

    def activity(self, kernels: Kernels, start_s: float, end_s: float) -> Activity:
        """The kernels that start between two times, each name a kind of its own."""
        start, end = self.record.seconds(kernels.start_ns), self.record.seconds(kernels.end_ns)
        mine = (start >= start_s) & (start < end_s) & (end > start)
        kinds, origin_ns = [Kind(name) for name in kernels.names], int(kernels.start_ns[0] - round(1e9 * start[0]))
        return activity_of(kernels.start_ns[mine], kernels.end_ns[mine], kernels.name[mine], kinds, origin_ns)

    def timeline(self, kernels: Kernels, start_s: float, end_s: float) -> Timeline:
        """The kernels that start between two times, each name a kind of its own."""
        start, end = self.record.seconds(kernels.start_ns), self.record.seconds(kernels.end_ns)
        mine = (start >= start_s) & (start < end_s) & (end > start)
        _, kinds = np.unique(kernels.name[mine], return_inverse=True)
        return Timeline(start[mine], end[mine], kinds.astype(np.int64))


Ends = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Means, low and high ends in J."""


def alone(case: Case, spans: list[dict], others: list[dict], kernels: Kernels | None) -> Ends:
    """``attribute`` for each burst by itself, with the readings since an earlier one and until a later one."""
    start, end = (case.record.seconds(one) for one in edges(spans))
    starts, ends = (np.sort(case.record.seconds(one)) for one in edges(others))
    found = []
    for a, b in zip(start.tolist(), end.tolist(), strict=True):
        earlier, later = ends[ends < a], starts[starts > b]
        since = max(a - BEFORE_S, earlier[-1] + SETTLED_S if len(earlier) else -np.inf)
        until = min(b + AFTER_S, later[0] if len(later) else np.inf)
        near = case.near(since, until)
        energies = attributed(case, near, [(a, b)], [(a, b)], kernels)
        found.append([one[0] for one in energies])
    return tuple(np.array(found).T)


def together(case: Case, spans: list[dict], others: list[dict], kernels: Kernels | None) -> Ends:
    """``attribute`` for all bursts in one solve, those that aren't asked for among them."""
    asked, bursts = (np.stack([case.record.seconds(one) for one in edges(rows)], axis=1) for rows in (spans, others))
    since, until = bursts.min() - BEFORE_S, bursts.max() + AFTER_S
    return attributed(case, case.near(since, until), asked, bursts, kernels)


def attributed(case: Case, near: np.ndarray, spans, bursts, kernels: Kernels | None = None) -> Ends:
    """Intervals of ``attribute``, or of ``attribute_program`` with kernels; NaN where they can't."""
    readings = case.times_s[near], case.record.value[near]
    try:
        if kernels is not None:
            activity = case.activity(kernels, np.min(bursts), np.max(bursts))
            found = attribute_program(*readings, spans, activity, response=RESPONSE).energies
            return tuple(one[: len(spans)] for one in found.interval())
        times_sd_s = case.record.unsure_s[near]
        found = attribute(*readings, spans, response=RESPONSE, bursts=bursts, times_sd_s=times_sd_s)
    except (ValueError, np.linalg.LinAlgError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return tuple(np.full((3, len(spans)), np.nan))
    return found.interval()
