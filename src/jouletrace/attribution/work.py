"""Work: what iterations cost the GPU beyond idle power over the host's time, from energies of one solve.

    energy = work * iterations + (idle power at that time + excess where the host works) * time + scatter

Spans without iterations show idle power, which wanders between them; the host's times, which differ, show the same of
the others. Energies come with their joint covariance. Sizes of scatter and walk are summed over a grid, weighed by how
well the energies agree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jouletrace.arrays import Floats
from jouletrace.attribution.outcome import Outcome
from jouletrace.attribution.prior import Prior
from jouletrace.attribution.solve import KEPT, Energies

TOLERANCE_W = 2 * Prior.excess_w
"""Largest difference of the windows' slope from idle power, unless less than its own uncertainty."""

_UNKNOWN = 1e4
"""Standard deviation, before the energies, of an unknown of which nothing is known."""

_SCATTER = np.geomspace(1e-3, 0.3, 12)
"""Standard deviations of a window's work over its mean: from nothing that matters to a branch that few windows take."""

_WALK = np.array([0.05, 0.15, 0.5, 1.5])
"""Idle power's walk in W per square root of a second: from none that readings show in 10 s to one of 5 W."""


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
    found = []
    for weight, value, errors in zip(*energies.components(), strict=True):
        every, data = errors + sizes, np.column_stack([design, value])
        weighed = np.linalg.solve(every, np.broadcast_to(data, (len(every), *data.shape)))
        log = np.log(weight) - (weighed[..., -1] @ value + np.linalg.slogdet(every)[1]) / 2
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
    return Energies(weight[kept] / weight[kept].sum(), mean[kept], covariance[kept])
