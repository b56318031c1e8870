"""Kernels that move data between GPUs (NCCL's), in a segment of a program whose kernels were traced.

Time is divided into successive states: communication alone (for which the rest of the step
waits), communication alongside other kernels, other kernels alone. The GPU's energy in each
is determined by regression over all segments of each state. Its energy while both run belongs to both: it is not
apportioned.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.analysis.power import no_power_reason, power_record
from jouletrace.analysis.rows import Figures
from jouletrace.analysis.spans import device_phase_edges, of_kind
from jouletrace.run import MODEL_UNIT, Estimate, Run, tables
from jouletrace.sensor.windows.repeated import repeated_energy

METHOD = "trace"
PATTERN = r"(?i)\bnccl|^nccl"
ALONE, BESIDE, OTHERS = 1, 2, 3
"""States: communication by itself, beside other kernels; others by themselves."""

_GAP_NS = 50_000
"""Kernels closer than this follow one another: a GPU doesn't fall to rest between them."""

_MOST_STRETCHES = 100_000

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class States:
    """Segments of one state each, in succession, none empty.

    Attributes:
        start, end: In ns since the Unix epoch, shape (n,).
        state: ``ALONE``, ``BESIDE`` or ``OTHERS``, shape (n,).
    """

    start: Ints
    end: Ints
    state: Ints

    def seconds(self, state: int) -> float:
        """Time in a state, in all."""
        here = self.state == state
        return float((self.end - self.start)[here].sum()) / 1e9


def add_communication(run: Run, figures: Figures) -> None:
    """Add a unit a device for communication, and one each for its time by itself and beside other kernels.

    Figures are those of one step, where steps were marked, else of the traced segment.
    """
    kernels = of_kind(run, "kernel")
    if len(kernels) == 0:
        return
    name, names = tables.decoded(kernels["name"])
    moving = np.append([re.search(PATTERN, text) is not None for text in names], False)[name].astype(bool)
    owner, owners = tables.decoded(kernels["device"])
    start, end = (kernels[edge].to_numpy().astype(np.int64) for edge in ("start_ns", "end_ns"))
    order = np.argsort(owner, kind="stable")
    places = np.searchsorted(owner[order], np.arange(len(owners) + 1))
    free = 1 + figures.last_unit()
    for device in run.devices:
        if device.id not in owners:
            continue
        number = owners.index(device.id)
        here = order[places[number] : places[number + 1]]
        ours, others = here[moving[here]], here[~moving[here]]
        if not len(ours):
            continue
        found = states(start[ours], end[ours], start[others], end[others])
        _add(run, figures, device.id, found, free)
        free += 3


def states(moving_start: Ints, moving_end: Ints, other_start: Ints, other_end: Ints) -> States:
    """Lay out time by what ran.

    Args:
        moving_start: Starts of kernels that communicate, in ns, shape (n,).
        moving_end: Their ends.
        other_start: Starts of all others, shape (m,).
        other_end: Their ends.
    """
    a, b = _union(moving_start, moving_end, 0)
    c, d = _union(other_start, other_end, _GAP_NS)
    edges = np.unique(np.concatenate([a, b, c, d]))
    if len(edges) < 2:
        return States(*(np.empty(0, np.int64) for _ in range(3)))
    start, end = edges[:-1], edges[1:]
    moving, other = _covers(a, b, start), _covers(c, d, start)
    state = np.select([moving & other, moving, other], [BESIDE, ALONE, OTHERS], 0)
    keep = state > 0
    return States(start[keep], end[keep], state[keep].astype(np.int64))


def _union(start: Ints, end: Ints, gap_ns: int) -> tuple[Ints, Ints]:
    """Segments that the spans cover; idle time up to a length between them is bridged."""
    if len(start) == 0:
        return start, end
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    new = np.append(True, start[1:] > end[:-1] + gap_ns)
    return start[new], end[np.append(new[1:], True)]


def _covers(start: Ints, end: Ints, at: Ints) -> NDArray[np.bool_]:
    """Whether each time lies within a segment; the segments are disjoint and in order."""
    place = np.searchsorted(start, at, side="right") - 1
    inside = np.zeros(len(at), bool)
    some = place >= 0
    inside[some] = at[some] < end[place[some]]
    return inside


def _steps_within(run: Run, device: str) -> int:
    """Number of steps in the traced segments of a device: it had done all work at both ends of each."""
    steps = of_kind(run, "iteration")
    ends = steps.filter(pc.equal(steps["device"], device))["end_ns"].to_numpy()
    edges = zip(*device_phase_edges(run, "tracing", device), strict=True)
    return sum(int(((ends > since) & (ends <= until)).sum()) for since, until in edges)


def _prefix(run: Run, device: str) -> str:
    """What rows of a device begin with: its rank, or nothing if there is but one device."""
    for member in run.settings.get("ranks", ()):
        if device in member["devices"]:
            return f"{member['name']}/"
    return f"{device}/" if len(run.devices) > 1 else ""


def _add(run: Run, figures: Figures, device: str, found: States, id: int) -> None:
    steps = _steps_within(run, device)
    times, name = max(steps, 1), f"{_prefix(run, device)}communication"
    energies = _energies(run, device, found)
    flags = ["traced"] if steps else ["traced", "whole_stretch"]
    whole = figures.unit(id, "range", name, MODEL_UNIT, count=times)
    seconds = found.seconds(ALONE) + found.seconds(BESIDE)
    figures.add(whole, "time_s", Estimate(seconds / times, n=times, method=METHOD), flags)
    alone_only = found.seconds(BESIDE) == 0
    energy = energies[ALONE].scaled(1 / times) if alone_only else Estimate.null("ran_beside_others", METHOD)
    figures.add(whole, "energy_total_j", energy, flags)
    for i, (state, words) in enumerate(((ALONE, "by itself"), (BESIDE, "beside other kernels")), start=1):
        unit = figures.unit(id + i, "range", f"{name}, {words}", whole, count=times)
        figures.add(unit, "time_s", Estimate(found.seconds(state) / times, n=times, method=METHOD), flags)
        figures.add(unit, "energy_total_j", energies[state].scaled(1 / times), flags)


def _energies(run: Run, device: str, found: States) -> dict[int, Estimate]:
    """The GPU's energy in each state, over all its segments."""
    record = power_record(run, device)
    if record is None:
        return dict.fromkeys((ALONE, BESIDE), Estimate.null(no_power_reason(run, device), METHOD))
    if len(found.start) > _MOST_STRETCHES:
        return dict.fromkeys((ALONE, BESIDE), Estimate.null("edges_too_dense", METHOD))
    there = np.unique(found.state)
    each = repeated_energy(*record, found.start, found.end, np.searchsorted(there, found.state))
    counts = {int(state): int((found.state == state).sum()) for state in there}
    energies = {int(state): one.scaled(counts[int(state)]) for state, one in zip(there, each, strict=True)}
    nothing = Estimate(0.0, 0.0, 0.0, 0, METHOD)
    return {state: energies.get(state, nothing) for state in (ALONE, BESIDE)}
