"""Work: what iterations cost the GPU beyond idle power over the host's time, from energies of one solve.

    energy = work * iterations + (idle power at that time + excess where the host works) * time + scatter

Spans without iterations show idle power, which wanders between them; the host's times, which differ, show the same of
the others. Energies come with their joint covariance. Sizes of scatter and walk are summed over a grid, weighed by how
well the energies agree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag

from jouletrace.arrays import Floats
from jouletrace.attribution.outcome import Outcome
from jouletrace.attribution.solve import KEPT, Energies
from jouletrace.sensor.shares import Timeline

TOLERANCE_W = 2.0
"""Largest difference of the windows' slope from idle power, unless less than its own uncertainty."""

_EXCESS_W, _UNKNOWN = 0.3, 1e4
"""Standard deviations before the energies, of the excess and of an unknown of which nothing is known. Six processes of
an encoder on an H100, with pauses of several lengths, show 0.2 W root mean square, each to ± 0.2 to 0.6 W."""

_SCATTER = np.geomspace(1e-3, 0.3, 12)
"""Standard deviations of a window's work over its mean: from nothing that matters to a branch that few windows take."""

_WALK = np.array([0.05, 0.15, 0.5, 1.5])
"""Idle power's walk in W per square root of a second: from none that readings show in 10 s to one of 5 W."""


_Rows = tuple[Floats, Floats, Floats, Floats]
"""Shares of the energies in each row, (r, e), and of the unknowns, (r, u); covariances in J², (r, r), of work that
scatters by its mean, and of idle power that walks by 1 W in a second."""


class Work(NamedTuple):
    """Work and idle power with their joint distribution."""

    unknowns: Energies  # idle power in the middle and its excess in W; work of each sort in J; then that by kinds
    outcomes: tuple[Outcome, ...]

    @property
    def reason(self) -> str | None:
        """Code of the first disagreement, with which no work has an interval; None without one."""
        return next((one.code for one in self.outcomes if not one.passed), None)


def work(
    energies: Energies, spans_s: Floats, counts: Floats, timeline: Timeline | None = None, iterations: float = 1.0
) -> Work:
    """Work per iteration, at the pace at which iterations ran.

    Args:
        energies: Of the spans, by ``attribute``; with a timeline those of its kinds after them.
        spans_s: Starts and ends, shape (s, 2): some before and after the iterations, in which the GPU is idle.
        counts: Iterations of each sort in each span, (s, k); if each span has its own, work is its active energy.
        timeline: What ran when: the energies of its kinds, less idle power, are work in another way.
        iterations: In the timeline.
    """
    informed = _informed(energies, *_rows(energies, spans_s, counts, timeline, iterations))
    free, idle = _posterior(_UNKNOWN, *informed), bool((counts.sum(axis=1) == 0).any())
    row, each = np.eye(free.mean_j.shape[1]), counts.sum(axis=0) / counts.sum()
    excess = _compared(free, "idle_apart" if idle else "idle_unseen", row[1])
    outcomes = [excess._replace(passed=idle and (excess.passed or abs(excess.estimate[0]) <= TOLERANCE_W))]
    if timeline is not None:
        outcomes.append(_compared(free, "work_apart", each @ row[2:-1] - row[-1]))
    return Work(_posterior(_EXCESS_W, *informed), tuple(outcomes))


def _compared(found: Energies, code: str, row: Floats) -> Outcome:
    """A sum of unknowns that should be zero: one healthy check of a hundred fails."""
    (mean,), (low,), (high,) = found.interval(row)
    _, (least,), (most,) = found.interval(row, 0.99)
    return Outcome(code, bool(least <= 0 <= most), (float(mean), float(low), float(high)))


def _rows(energies: Energies, spans_s: Floats, counts: Floats, timeline: Timeline | None, iterations: float) -> _Rows:
    """Of the spans, then of an iteration by the timeline."""
    (spans, sorts), each, middle_s = counts.shape, counts.sum(axis=1), spans_s.mean(axis=1)
    lever, summed, time_s = np.eye(spans, energies.mean_j.shape[1]), np.eye(spans), np.diag(np.diff(spans_s)[:, 0])
    alike = np.stack([each, time_s.sum(axis=1)], axis=1)
    work_j = np.linalg.lstsq(alike, energies.weight @ energies.mean_j[:, :spans], rcond=None)[0][0]
    if timeline is not None:
        lever = np.vstack([lever, (1 - lever.sum(axis=0)) / iterations])
        summed = np.vstack([summed, (each > 0) / each.sum()])
        busy_s = float((timeline.end_s - timeline.start_s).sum()) / iterations
        time_s = np.vstack([time_s, busy_s * each / each.sum()])  # energies of kinds have idle power in them
        counts = block_diag(counts, [[1.0]])
    some = np.count_nonzero(each) > sorts  # else each window has work of its own, which shows no scatter
    scatter = summed @ np.diag(some * work_j**2 * each * each[each > 0].mean()) @ summed.T
    since_s = middle_s - middle_s.mean()  # two walks from the middle, independent of each other
    far_s = (np.add.outer(np.abs(since_s), np.abs(since_s)) - np.abs(np.subtract.outer(since_s, since_s))) / 2
    design = np.hstack([time_s @ np.stack([np.ones(spans), each > 0], axis=1), counts])
    return lever, design, scatter, time_s @ far_s @ time_s.T


def _informed(energies: Energies, lever: Floats, design: Floats, scatter: Floats, walk: Floats) -> list[Floats]:
    """Log-likelihood without the unknowns, (g,), information on them, (g, u, u), and moment, (g, u), of g sizes."""
    sizes = ((_SCATTER**2)[:, None, None, None] * scatter + (_WALK**2)[:, None, None] * walk).reshape(-1, *walk.shape)
    found, unseen = [], energies.unseen
    for g, weight in enumerate(energies.weight.tolist()):
        value, seen = lever @ energies.mean_j[g], lever @ energies.covariance[g] @ lever.T
        errors = [(1.0, 0 * seen)]
        if unseen is not None:
            hidden = [lever @ unseen.share.multiply(size[:, None]).toarray() for size in unseen.sizes[g]]
            errors = [(chance, one @ one.T) for chance, one in zip(unseen.chances.tolist(), hidden, strict=True)]
        for chance, error in errors:
            every, data = seen + error + sizes, np.column_stack([design, value])
            weighed = np.linalg.solve(every, np.broadcast_to(data, (len(every), *data.shape)))
            log = np.log(weight * chance) - (weighed[..., -1] @ value + np.linalg.slogdet(every)[1]) / 2
            found.append((log, design.T @ weighed[..., :-1], weighed[..., -1] @ design))
    return [np.concatenate(one) for one in zip(*found, strict=True)]


def _posterior(excess_w: float, log: Floats, information: Floats, moment: Floats) -> Energies:
    """The unknowns by generalised least squares, as a mixture."""
    precision = np.full(moment.shape[1], _UNKNOWN**-2)
    precision[1] = excess_w**-2
    covariance = np.linalg.inv(information + np.diag(precision))
    mean = np.einsum("gij,gj->gi", covariance, moment)
    log = log + ((moment * mean).sum(axis=1) + np.linalg.slogdet(covariance)[1]) / 2
    weight = np.exp(log - log.max())
    kept = weight > KEPT * weight.sum()
    return Energies(weight[kept] / weight[kept].sum(), mean[kept], covariance[kept], np.zeros(0), mean)
