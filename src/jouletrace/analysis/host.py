"""Work and host of a profile whose times scatter: what an iteration costs the GPU, and idle power over the host's time.

The host of a later run is as fast as it is that day: energy per iteration moves with it, and work doesn't.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from jouletrace.analysis.between_runs import steady
from jouletrace.analysis.iterations import bursts_of, of_variant
from jouletrace.analysis.model import settled
from jouletrace.analysis.power import energies
from jouletrace.arrays import Floats, Ints
from jouletrace.attribution.work import work
from jouletrace.run import Estimate, Run
from jouletrace.run.estimate import widened
from jouletrace.stats.interval import Z95, mean_estimate

WORK, IDLE = "energy_work_j", "power_idle_at_work_w"
METHOD = "work and idle power"

SOURCE = "windows and idle time, jointly"
"""Source of the uncertainty of both."""


Process = tuple[Estimate, Estimate]
"""Work per iteration in J and idle power while iterations run in W, of one process."""


def work_and_idle(run: Run) -> dict[str, Estimate]:
    """Work per iteration in J, and idle power at work in W, by metric; none where the host doesn't limit."""
    if steady(run) or not run.devices or len(of_variant(run, "flush")):
        return {}
    both = zip((WORK, IDLE), zip(*_processes(run), strict=True), strict=False)
    found = {name: _together(each) for name, each in both}
    return {
        name: one if one.half_width is None else replace(one, budget={SOURCE: one.half_width / Z95})
        for name, one in found.items()
    }


def _together(each: Sequence[Estimate]) -> Estimate:
    """The mean over processes, whose errors may be shared; null if one is."""
    missing = next((one for one in each if one.value is None), None)
    if missing is not None or len(each) == 1:
        return missing or each[0]
    mean = mean_estimate(np.array([one.value for one in each]), method="runs")
    return widened(mean, float(np.mean([one.half_width or 0.0 for one in each])))


def _processes(run: Run) -> list[Process]:
    """Of each process that measured windows with idle time before or after them."""
    table = of_variant(run, "untouched")
    table = table.filter(pc.and_kleene(pc.is_valid(table["energy_j"]), pc.greater(table["replays"], 0)))
    start, end = (table[name].to_numpy() for name in ("start_ns", "end_ns"))
    count, block = table["replays"].to_numpy(), pc.fill_null(table["block"], 0).to_numpy()
    names, first, last = settled(run, run.devices[0].id)
    idle = np.char.startswith(names, "context idle")
    first, last = first[idle], last[idle]
    found, begun = [], np.iinfo(np.int64).min
    blocks = sorted(np.unique(block).tolist(), key=lambda one: start[block == one].min())
    for place, one in enumerate(blocks):
        mine = block == one
        until = start[block == blocks[place + 1]].min() if place + 1 < len(blocks) else np.iinfo(np.int64).max
        near = (first >= begun) & (last <= until)
        spans = np.stack([np.append(first[near], start[mine]), np.append(last[near], end[mine])], axis=1)
        counts = np.append(np.zeros(near.sum()), count[mine])
        begun = end[mine].max()
        if (process := _solved(run, spans, counts, (spans[:, 0].min(), spans[:, 1].max()))) is not None:
            found.append(process)
    return found


def _solved(run: Run, spans_ns: Ints, counts: Floats, within: tuple[int, int]) -> Process | None:
    """Of spans, shape (s, 2), with their iterations, 0 of those in which the GPU idles; None without energies."""
    bursts = bursts_of(run)
    mine = (bursts[:, 1] > within[0]) & (bursts[:, 0] < within[1])
    start, end = spans_ns.T
    found = energies(run, run.devices[0].id, start, end, bursts[mine])
    if found.energies is None or not found.known.all():
        return None
    result = work(found.energies, (spans_ns - spans_ns.min()) / 1e9, counts)
    if result.reason is not None:
        none = Estimate.null(result.reason, METHOD)
        return none, none
    mean, low, high = result.unknowns.interval(np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]))
    n = int((counts > 0).sum())
    by_iteration, idle = zip(mean.tolist(), low.tolist(), high.tolist(), strict=True)
    return Estimate(*by_iteration, n, METHOD), Estimate(*idle, n, METHOD)
