"""Work and host of a profile whose times scatter: what an iteration costs the GPU, and idle power over the host's time.

The host of a later run is as fast as it is that day: energy per iteration moves with it, and work doesn't. Both follow
from the energies of windows and of idle time beside them, in one solve:

    energy = work * iterations + (idle power at that time + excess where the host works) * time + scatter

Spans without iterations show idle power, which wanders between them; the host's times, which differ, show the same of
the others. Sizes of scatter and walk are summed over a grid, weighed by how well the energies agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from jouletrace.analysis.between_runs import steady
from jouletrace.analysis.iterations import bursts_of, of_variant
from jouletrace.analysis.model import settled
from jouletrace.analysis.power import energies
from jouletrace.arrays import Floats, Ints
from jouletrace.attribution.outcome import Outcome
from jouletrace.attribution.prior import Prior
from jouletrace.attribution.solve import KEPT, Energies
from jouletrace.run import Estimate, Run
from jouletrace.run.estimate import widened
from jouletrace.stats.interval import Z95, mean_estimate

WORK, IDLE = "energy_work_j", "power_idle_at_work_w"
METHOD = "work and idle power"

SOURCE = "windows and idle time, jointly"
"""Source of the uncertainty of both."""


Process = tuple[Estimate, Estimate]
"""Work per iteration in J and idle power while iterations run in W, of one process."""

TOLERANCE_W = 2 * Prior.excess_w
"""Largest difference of the windows' slope from idle power, unless less than its own uncertainty."""

_UNKNOWN = 1e4
"""Standard deviation, before the energies, of an unknown of which nothing is known."""

_SCATTER = np.geomspace(1e-3, 0.3, 12)
"""Standard deviations of a window's work over its mean: from nothing that matters to a branch that few windows take."""

_WALK = np.array([0.05, 0.15, 0.5, 1.5])
"""Idle power's walk in W per square root of a second: from none that readings show in 10 s to one of 5 W."""


def work_and_idle(run: Run) -> dict[str, Estimate]:
    """Work per iteration in J, and idle power at work in W, by metric; none where the host doesn't limit."""
    if steady(run) or not run.devices or len(of_variant(run, "flush")):
        return {}
    both = zip((WORK, IDLE), zip(*_processes(run), strict=True), strict=False)
    figures = {name: _together(each) for name, each in both}
    return {
        name: figure if figure.half_width is None else replace(figure, budget={SOURCE: figure.half_width / Z95})
        for name, figure in figures.items()
    }


def _together(each: Sequence[Estimate]) -> Estimate:
    """The mean over processes, whose errors may be shared; null if one is."""
    missing = next((figure for figure in each if figure.value is None), None)
    if missing is not None or len(each) == 1:
        return missing or each[0]
    mean = mean_estimate(np.array([figure.value for figure in each]), method="runs")
    return widened(mean, float(np.mean([figure.half_width or 0.0 for figure in each])))


def _processes(run: Run) -> list[Process]:
    """Of each process that measured windows with idle time before or after them."""
    table = of_variant(run, "untouched")
    table = table.filter(pc.and_kleene(pc.is_valid(table["energy_j"]), pc.greater(table["replays"], 0)))
    start, end = (table[name].to_numpy() for name in ("start_ns", "end_ns"))
    count, block = table["replays"].to_numpy(), pc.fill_null(table["block"], 0).to_numpy()
    names, first, last = settled(run, run.devices[0].id)
    idle = np.char.startswith(names, "context idle")
    first, last = first[idle], last[idle]
    processes, begun = [], np.iinfo(np.int64).min
    blocks = sorted(np.unique(block).tolist(), key=lambda number: start[block == number].min())
    for after, number in enumerate(blocks):
        mine = block == number
        until = start[block == blocks[after + 1]].min() if after + 1 < len(blocks) else np.iinfo(np.int64).max
        near = (first >= begun) & (last <= until)
        spans = np.stack([np.append(first[near], start[mine]), np.append(last[near], end[mine])], axis=1)
        counts = np.append(np.zeros(near.sum()), count[mine])
        begun = end[mine].max()
        if (process := _solved(run, spans, counts, (spans[:, 0].min(), spans[:, 1].max()))) is not None:
            processes.append(process)
    return processes


def _solved(run: Run, spans_ns: Ints, counts: Floats, within: tuple[int, int]) -> Process | None:
    """Of spans, shape (s, 2), with their iterations, 0 of those in which the GPU idles; None without energies."""
    bursts = bursts_of(run)
    mine = (bursts[:, 1] > within[0]) & (bursts[:, 0] < within[1])
    start, end = spans_ns.T
    solved = energies(run, run.devices[0].id, start, end, bursts[mine])
    if solved.energies is None or not solved.has_energy.all():
        return None
    result = work(solved.energies, (spans_ns - spans_ns.min()) / 1e9, counts)
    if result.reason is not None:
        none = Estimate.null(result.reason, METHOD)
        return none, none
    mean, low, high = result.unknowns.interval(np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]))
    n = int((counts > 0).sum())
    by_iteration, idle = zip(mean.tolist(), low.tolist(), high.tolist(), strict=True)
    return Estimate(*by_iteration, n, METHOD), Estimate(*idle, n, METHOD)


class Work(NamedTuple):
    """Work and idle power with their joint distribution."""

    unknowns: Energies  # idle power in the middle and its excess in W, and work in J
    outcome: Outcome  # of the check that the windows' slope is idle power

    @property
    def reason(self) -> str | None:
        """Code of the disagreement with which work has no interval; None without one."""
        return None if self.outcome.passed else self.outcome.code


def work(energies: Energies, spans_s: Floats, counts: Floats) -> Work:
    """Work per iteration, at the pace at which iterations ran.

    Args:
        energies: Of the spans, by ``attribute``.
        spans_s: Starts and ends, shape (s, 2): some before and after the iterations, in which the GPU is idle.
        counts: Iterations in each span, shape (s,).
    """
    informed, idle = _informed(energies, *_rows(energies, spans_s, counts)), bool((counts == 0).any())
    excess, row = _posterior(_UNKNOWN, *informed), np.array([0.0, 1.0, 0.0])
    (mean,), (low,), (high,) = excess.interval(row)
    _, (least,), (most,) = excess.interval(row, 0.99)  # one healthy check of a hundred fails
    passed = idle and bool(least <= 0 <= most or abs(mean) <= TOLERANCE_W)
    code = "idle_apart" if idle else "idle_unseen"
    return Work(_posterior(Prior.excess_w, *informed), Outcome(code, passed, (float(mean), float(low), float(high))))


def _rows(energies: Energies, spans_s: Floats, counts: Floats) -> tuple[Floats, Floats, Floats]:
    """Shares of the unknowns in each span, (s, 3); covariances in J², (s, s).

    The first is of work that scatters by its mean, the second of idle power that walks by 1 W in a second.
    """
    busy, middle_s, lasts_s = counts > 0, spans_s.mean(axis=1), np.diff(spans_s)[:, 0]
    alike = np.stack([counts, lasts_s], axis=1)
    work_j = np.linalg.lstsq(alike, energies.weight @ energies.mean_j, rcond=None)[0][0]
    scatter = np.diag((np.count_nonzero(busy) > 1) * work_j**2 * counts * counts[busy].mean())
    since_s = middle_s - middle_s.mean()  # two walks from the middle, independent of each other
    far_s = (np.add.outer(np.abs(since_s), np.abs(since_s)) - np.abs(np.subtract.outer(since_s, since_s))) / 2
    return np.stack([lasts_s, lasts_s * busy, counts], axis=1), scatter, far_s * np.outer(lasts_s, lasts_s)


def _informed(energies: Energies, design: Floats, scatter: Floats, walk: Floats) -> list[Floats]:
    """Log-likelihood without the unknowns, (g,), information on them, (g, 3, 3), and moment, (g, 3), of g sizes."""
    sizes = ((_SCATTER**2)[:, None, None, None] * scatter + (_WALK**2)[:, None, None] * walk).reshape(-1, *walk.shape)
    informed = []
    for weight, value, errors in zip(*energies.components(), strict=True):
        every, data = errors + sizes, np.column_stack([design, value])
        weighed = np.linalg.solve(every, np.broadcast_to(data, (len(every), *data.shape)))
        log = np.log(weight) - (weighed[..., -1] @ value + np.linalg.slogdet(every)[1]) / 2
        informed.append((log, design.T @ weighed[..., :-1], weighed[..., -1] @ design))
    return [np.concatenate(column) for column in zip(*informed, strict=True)]


def _posterior(excess_w: float, log: Floats, information: Floats, moment: Floats) -> Energies:
    """The unknowns by generalised least squares, as a mixture."""
    precision = np.full(moment.shape[1], _UNKNOWN**-2)
    precision[1] = excess_w**-2
    covariance = np.linalg.inv(information + np.diag(precision))
    mean = np.einsum("gij,gj->gi", covariance, moment)
    log = log + ((moment * mean).sum(axis=1) + np.linalg.slogdet(covariance)[1]) / 2
    weight = np.exp(log - log.max())
    kept = weight > KEPT * weight.sum()
    return Energies(weight[kept] / weight[kept].sum(), mean[kept], covariance[kept])
