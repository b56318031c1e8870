"""Energies of any spans from readings of power: the one estimator.

    readings = shares * powers + level + swing + noise

Time is cut where readings and spans have edges. A chain (``chains``) says how power and the sensor's state go on from
cut to cut; one banded system (``solve``) then gives all energies with their joint covariance. Sizes that aren't known,
of swings and of slow change, are summed over a grid, weighed by prior and readings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix

from jouletrace.attribution.cuts import Cuts, share_of
from jouletrace.attribution.log_chain import log_energies
from jouletrace.attribution.look import Look, first_look, jolts_of, timing
from jouletrace.attribution.outcome import refuse_overlapping, refuse_unordered
from jouletrace.attribution.prior import Prior
from jouletrace.attribution.solve import Energies, Problem, Unknowns, Unseen, joined, mixture
from jouletrace.attribution.swing import CHANCES, swing_prior
from jouletrace.sensor.shares import Floats, Response, Timeline, shares

_STEP = 0.25
"""Longest segment inside a burst over the longer of window and time between readings: a level that walks is resolved,
on an H100 at less than half of its memory."""

_UNLIKELY = 9.0
"""Delays are left out that are so much less likely than the best one, as logarithm, at a first look."""

_CLASS = 1.5
"""Factor by which lengths of spans and bursts differ that share a prior over hidden offsets."""


def attribute(
    times_s: Floats,
    values_w: Floats,
    spans: ArrayLike,
    *,
    response: Response,
    bursts: ArrayLike | None = None,
    prior: Prior = Prior(),  # noqa: B008  # frozen
    period_s: float | None = None,
    times_sd_s: Floats | None = None,
) -> Energies:
    """Energies of spans from the readings of any sensor.

    Args:
        times_s: Times of the readings, increasing, shape (n,).
        values_w: Their values, shape (n,).
        spans: Starts and ends whose energies are asked for, shape (s, 2).
        response: What a reading shows of power. Where that is the power of its moment, the readings are a log
            (``log_chain``): of what follows, and of what isn't known of the sensor, nothing counts then.
        bursts: Disjoint segments with a level of their own, in order, shape (b, 2): the spans if None.
        prior: What is believed of power.
        period_s: Period of the swing in the bursts, if it is known: the length of an iteration.
        times_sd_s: Standard deviations of the readings' times, shape (n,), where stamps came late (``Grid.unsure_s``).
    """
    refuse_unordered(times_s, values_w)
    spans = np.asarray(spans, np.float64).reshape(-1, 2)
    if not response.width_s:
        return log_energies(times_s - response.delay_s, values_w, spans, response.noise_w)
    bursts = spans if bursts is None else np.asarray(bursts, np.float64).reshape(-1, 2)
    refuse_overlapping(bursts)
    some = slice(None, None, response.stride)
    response = replace(response, period_s=response.period_s * response.stride)
    unsure_s = np.zeros(len(times_s)) if times_sd_s is None else times_sd_s
    delays = response.delays(float(np.median(np.diff(bursts))))
    cases = [_Case.of(times_s[some], values_w[some], unsure_s[some], spans, bursts, one, prior) for one, _ in delays]
    seem = np.array([one.look.log_evidence for one in cases]) + np.log([weight for _, weight in delays])
    likely = np.flatnonzero(seem > seem.max() - _UNLIKELY)
    return joined([cases[i].energies(period_s) for i in likely], np.array([delays[i][1] for i in likely]))


@dataclass
class _Case:
    """The readings under one response, with a first look at them."""

    cuts: Cuts
    response: Response
    prior: Prior
    problem: Problem  # readings and spans, above the base
    base_w: float
    seconds: Floats  # shape (spans,)
    unsure_s: Floats  # shape (readings,)
    look: Look

    @classmethod
    def of(
        cls,
        times_s: Floats,
        values_w: Floats,
        unsure_s: Floats,
        spans: Floats,
        bursts: Floats,
        response: Response,
        prior: Prior,
    ) -> _Case:
        """Arguments are those of ``attribute``."""
        read_s = times_s - response.delay_s
        step_s = _STEP * max(response.period_s, response.window_s)
        cuts = Cuts.of(read_s, response.begins(read_s), spans, bursts, step_s)
        base_w, cover = float(np.median(values_w[:5])), share_of(cuts.time_s, spans)
        # Half of the variance of bursts' levels is in common: what some show counts for those that no window meets
        every = Timeline(bursts[:, 0], bursts[:, 1], np.zeros(len(bursts), np.int64))
        prior = replace(prior, level_w=prior.level_w / np.sqrt(2))
        wanted, variance = cover @ every.seconds(cuts.time_s), np.array([prior.level_w**2])
        common = Unknowns(shares(read_s, every, response), wanted, np.zeros(1), variance)
        problem = Problem(values_w - base_w, np.full(len(times_s), response.noise_w), cover, common)
        look = first_look(cuts, problem, response, prior)
        return cls(cuts, response, prior, problem, base_w, np.diff(spans)[:, 0], unsure_s, look)

    def energies(self, period_s: float | None) -> Energies:
        """Energies under all sizes of swing and slow change."""
        cuts, look, response, problem = self.cuts, self.look, self.response, self.problem
        look.jolt = jolts_of(cuts, cuts.bursts.ravel(), np.outer(look.height_w, [1.0, -1.0]).ravel(), response)
        level_w = look.level_w + self.base_w
        owed = timing(cuts, level_w if self.prior.placed else cuts.means(level_w), response, self.unsure_s)
        # The last sample falls anywhere before a reading's moment: uniform, times what the state still lacks
        late_w = look.unsettled_w * response.weight / np.sqrt(12)
        noise_w = np.sqrt(response.noise_w**2 + owed.noise_w**2 + late_w**2)
        unknown = np.maximum([response.delay_sd_s, response.width_sd], 1e-9) ** 2
        slopes = Unknowns(owed.slope, np.zeros((len(self.seconds), 2)), np.zeros(2), unknown)
        problem = replace(problem, noise_w=noise_w, unknowns=problem.unknowns.beside(slopes))
        weights, unseen = _swings(cuts, problem.spans, look, response, self.prior, period_s)
        aliased = None
        if period_s is None:
            aliased = _swings(cuts, problem.spans, look, response, self.prior, response.period_s)[1]
        grid = [
            (d, slow, local, weight * share)
            for d, weight in enumerate(weights.tolist())
            for slow, local, share in self.prior.slow
        ]
        taken = [d for d, *_ in grid]
        unseen = replace(unseen, sizes=unseen.sizes[taken])
        if aliased is not None:
            aliased = replace(aliased, sizes=aliased.sizes[taken])
        chains = [look.chain(self.prior.densities_s[d], slow, local) for d, slow, local, _ in grid]
        result = mixture(chains, np.array([weight for *_, weight in grid]), problem, unseen, aliased)
        base_j = self.base_w * self.seconds
        return replace(result, mean_j=result.mean_j + base_j, tried_j=result.tried_j + base_j)


def _swings(
    cuts: Cuts, cover: csr_matrix, look: Look, response: Response, prior: Prior, period_s: float | None
) -> tuple[Floats, Unseen]:
    """Weights of the densities, shape (d,), and the offsets that swings of each hide from the spans."""
    within = csr_matrix(cover.multiply(cuts.h) @ share_of(cuts.time_s, cuts.bursts).T)  # seconds, shape (spans, bursts)
    count = np.diff(within.indptr)
    lengths_s = np.full((len(count), 2), np.median(cuts.length_s))
    lengths_s[count > 0] = np.stack([within.sum(axis=1).A1, (within > 0) @ cuts.length_s], axis=1)[count > 0]
    lengths_s /= np.maximum(count, 1)[:, None]
    classes, which = _classes(lengths_s)
    weights, offsets = swing_prior(classes, response, prior, period_s)
    return weights, Unseen(csr_matrix(within.multiply(look.height_w)), offsets[:, :, which], CHANCES)


def _classes(lengths_s: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """Lengths that stand for ``lengths_s``, shape (l, 2), and the index of each one's, shape (spans,)."""
    _, which = np.unique(np.round(np.log(lengths_s) / np.log(_CLASS)), axis=0, return_inverse=True)
    sums = np.stack([np.bincount(which, column) for column in lengths_s.T], axis=1)
    return sums / np.bincount(which)[:, None], which
