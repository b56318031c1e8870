"""Work: what iterations cost the GPU beyond idle power over the host's time, from energies of one solve.

    energy = work * iterations + (idle power at that time + excess where the host works) * time + scatter

Spans without iterations show idle power, which drifts and wanders between them; the host's times, which differ, show
the same of the others. Energies come with their joint covariance. Sizes of scatter and walk are summed over a grid,
weighed by how well the energies agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag

from jouletrace.attribution.solve import KEPT, Energies
from jouletrace.sensor.shares import Floats, Timeline

TOLERANCE_W = 2.0
"""Largest difference of the windows' slope from idle power, unless less than its own uncertainty."""

_EXCESS_W, _UNKNOWN = 0.3, 1e4
"""Standard deviations before the energies, of the excess and of an unknown of which nothing is known. Idle power before
and after host-bound programs differs by 0.4 W on H100s (root mean square): as much as load warms the die."""

_SCATTER = np.geomspace(1e-3, 0.3, 12)
"""Standard deviations of a window's work over its mean: from nothing that matters to a branch that few windows take."""

_WALK = np.array([0.0, 0.05, 0.15, 0.5])
"""Idle power's walk about its drift in W per square root of a second, up to that of ``Prior``."""

Interval = tuple[float, float, float]
"""Value, low and high end of 95 %."""


@dataclass(frozen=True)
class Outcome:
    """Two ways to the same quantity."""

    code: str
    agree: bool
    difference: Interval


@dataclass(frozen=True)
class Work:
    """Work and idle power with their joint distribution."""

    unknowns: Energies  # idle power in W, its excess, its drift in W/s; work of each sort in J; then that by kinds
    outcomes: tuple[Outcome, ...]

    @property
    def reason(self) -> str | None:
        """Code of the first disagreement, with which no work has an interval; None without one."""
        return next((one.code for one in self.outcomes if not one.agree), None)


def work(
    energies: Energies,
    spans_s: Floats,
    counts: Floats,
    timeline: Timeline | None = None,
    iterations: float = 1.0,
) -> Work:
    """Work per iteration, at the pace at which iterations ran.

    Args:
        energies: Of the spans, by ``attribute``; with a timeline those of its kinds after them.
        spans_s: Starts and ends, shape (s, 2): some before and after the iterations, in which the GPU is idle.
        counts: Iterations of each sort in each span, shape (s, k). With a sort of its own for each span, work is the
            span's active energy.
        timeline: What ran when: the energies of its kinds, less idle power, are work in another way.
        iterations: In the timeline.
    """
    spans_s, counts = np.asarray(spans_s, np.float64), np.asarray(counts, np.float64)
    fit = _Fit.of(energies, spans_s, counts, timeline, iterations)
    free = fit.solved(_UNKNOWN)
    excess = _interval(free, np.eye(free.mean_j.shape[1])[1])
    outcomes = [Outcome("idle_apart", abs(excess[0]) <= max(TOLERANCE_W, excess[2] - excess[0]), excess)]
    if timeline is not None:
        apart = _interval(free, np.concatenate([np.zeros(3), counts.sum(axis=0) / counts.sum(), [-1.0]]))
        outcomes.append(Outcome("work_apart", apart[1] <= 0 <= apart[2], apart))
    return Work(fit.solved(_EXCESS_W), tuple(outcomes))


def _interval(found: Energies, row: Floats) -> Interval:
    mean, low, high = (float(one[0]) for one in found.interval(row))
    return mean, low, high


@dataclass(frozen=True)
class _Fit:
    """Generalised least squares of energies."""

    energies: Energies
    lever: Floats  # shape (rows, energies): rows are spans, then an iteration by the timeline
    design: Floats  # shape (rows, unknowns)
    scatter: Floats  # shape (rows, rows), in J²: of work that scatters by its mean
    walk: Floats  # shape (rows, rows), in J²: of idle power that walks by 1 W in a second

    @classmethod
    def of(
        cls, energies: Energies, spans_s: Floats, counts: Floats, timeline: Timeline | None, iterations: float
    ) -> _Fit:
        """Rows of the spans and of the timeline's iteration, with the same idle power and the same scatter."""
        spans, each, middle_s = len(spans_s), counts.sum(axis=1), spans_s.mean(axis=1)
        others = energies.mean_j.shape[1] - spans
        lever, summed, time_s = np.eye(spans, spans + others), np.eye(spans), np.diag(np.diff(spans_s)[:, 0])
        if timeline is not None:
            lever = block_diag(np.eye(spans), np.full((1, others), 1 / iterations))
            summed = np.vstack([summed, (each > 0) / each.sum()])
            busy_s = float((timeline.end_s - timeline.start_s).sum()) / iterations
            time_s = np.vstack([time_s, busy_s * each / each.sum()])  # energies of kinds have idle power in them
            counts = block_diag(counts, [[1.0]])
        idle = time_s @ np.stack([np.ones(spans), each > 0, middle_s - middle_s.mean()], axis=1)
        start = np.linalg.lstsq(np.column_stack([each, time_s[:spans].sum(axis=1)]), energies.weight @ energies.mean_j[:, :spans], rcond=None)[0][0]
        some = np.count_nonzero(each) > counts.shape[1]  # else each window has work of its own, which shows no scatter
        scatter = summed @ np.diag(some * start**2 * each * each.mean()) @ summed.T
        since_s = middle_s - middle_s.min()
        walk = time_s @ np.minimum.outer(since_s, since_s) @ time_s.T
        return cls(energies, lever, np.hstack([idle, counts]), scatter, walk)

    def solved(self, excess_w: float) -> Energies:
        """The unknowns as a mixture over the energies' own and over sizes of scatter and walk."""
        sd = np.full(self.design.shape[1], _UNKNOWN)
        sd[1] = excess_w
        sizes = (_SCATTER**2)[:, None, None, None] * self.scatter + (_WALK**2)[:, None, None] * self.walk
        log, means, covariances = [], [], []
        for chance, value, joint in self._parts():
            every = joint + sizes.reshape(-1, *joint.shape)
            data = np.broadcast_to(np.column_stack([self.design, value]), (len(every), len(value), len(sd) + 1))
            weighed = np.linalg.solve(every, data)
            precision = self.design.T @ weighed[..., :-1] + np.diag(sd**-2)
            covariance, moment = np.linalg.inv(precision), weighed[..., -1] @ self.design
            mean = np.einsum("gij,gj->gi", covariance, moment)
            chi2 = weighed[..., -1] @ value - (moment * mean).sum(axis=1)
            log_det = np.linalg.slogdet(every)[1] + np.linalg.slogdet(precision)[1]
            log.append(np.log(chance) - 0.5 * (chi2 + log_det))
            means.append(mean)
            covariances.append(covariance)
        weight = np.exp(np.concatenate(log) - np.max(log))
        kept = weight > KEPT * weight.sum()
        mean, covariance = np.concatenate(means), np.concatenate(covariances)
        return Energies(weight[kept] / weight[kept].sum(), mean[kept], covariance[kept], np.zeros(0), mean)

    def _parts(self) -> Iterator[tuple[float, Floats, Floats]]:
        """Weight, means and covariance of the rows, of each part of the energies' mixture."""
        unseen = self.energies.unseen
        for g, weight in enumerate(self.energies.weight.tolist()):
            value, joint = self.lever @ self.energies.mean_j[g], self.lever @ self.energies.covariance[g] @ self.lever.T
            if unseen is None:
                yield weight, value, joint
                continue
            for chance, size in zip(unseen.chances.tolist(), unseen.sizes[g], strict=True):
                hidden = self.lever @ unseen.share.multiply(size[:, None]).toarray()
                yield weight * chance, value, joint + hidden @ hidden.T
