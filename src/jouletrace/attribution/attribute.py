"""Energies of any spans from readings of power: the one estimator.

    readings = shares * powers + level + swing + noise

Time is cut where readings and spans have edges. A chain (``chains``) says how power and the sensor's state go on from
cut to cut; one banded system (``solve``) then gives all energies with their joint covariance. Sizes that aren't known,
of swings and of slow change, are summed over a grid, weighed by prior and readings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix

from jouletrace.arrays import Floats, Indices
from jouletrace.attribution.chains import Cuts, met, share_of
from jouletrace.attribution.log_chain import log_energies
from jouletrace.attribution.look import Look, first_look, jolts_of, timing, unlike
from jouletrace.attribution.outcome import refuse_overlapping, refuse_unordered
from jouletrace.attribution.prior import KnownSegments, Prior
from jouletrace.attribution.solve import Energies, Problem, Unknowns, Unseen, joined, mixture, solve
from jouletrace.attribution.swing import CHANCES, swing_prior
from jouletrace.sensor.shares import Response, Timeline, shares

_STEP = 0.25
"""Longest segment inside a burst over the longer of window and time between readings: a level that walks is resolved,
on an H100 at less than half of its memory."""

_SHAPES = 2
"""Passes by which readings are taken to the simplest form of a response."""

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
    far: KnownSegments | None = None,
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
        far: Segments far from all edges, whose readings are left out.
    """
    refuse_unordered(times_s, values_w)
    spans = np.asarray(spans, np.float64).reshape(-1, 2)
    if not response.width_s:
        return log_energies(times_s - response.delay_s, values_w, spans, response.noise_w)
    bursts = spans if bursts is None else np.asarray(bursts, np.float64).reshape(-1, 2)
    refuse_overlapping(bursts)
    if response.windows:  # by their prior alone: power that changes within spans looks like another window
        more = partial(attribute, bursts=bursts, prior=prior, period_s=period_s, times_sd_s=times_sd_s, far=far)
        each = [more(times_s, values_w, spans, response=window) for window in response.windows]
        return joined([replace(energies, log_evidence=0.0) for energies in each], np.ones(len(each)))
    some = slice(None, None, response.stride)
    response = replace(response, period_s=response.period_s * response.stride)
    unsure_s = np.zeros(len(times_s)) if times_sd_s is None else times_sd_s
    delays = response.delays(float(np.median(np.diff(bursts))))
    far = far or KnownSegments(np.empty((0, 2)), np.empty(0), np.empty(0))
    readings = times_s[some], values_w[some], unsure_s[some]
    cases = [_Case.from_readings(readings, spans, bursts, far, delayed, prior) for delayed, _ in delays]
    seem = np.array([case.look.log_evidence for case in cases]) + np.log([weight for _, weight in delays])
    likely = [i for i in np.argsort(-seem).tolist() if seem[i] > seem.max() - _UNLIKELY]
    best = cases[likely[0]].energies(period_s)
    # A delay changes little of what is believed of swings and slow change
    others = [cases[i].energies(period_s, best.kept) for i in likely[1:]]
    return joined([best, *others], np.array([delays[i][1] for i in likely]))


@dataclass
class _Case:
    """The readings under one response, with a first look at them."""

    cuts: Cuts
    response: Response
    prior: Prior
    problem: Problem  # readings and spans, above the base
    base_w: float
    seconds: Floats  # shape (spans,), without what is known
    far: KnownSegments
    holds: Floats  # shape (spans, far): 1 where a span holds a known segment
    unsure_s: Floats  # shape (readings,)
    look: Look

    @classmethod
    def from_readings(
        cls,
        readings: tuple[Floats, Floats, Floats],
        spans: Floats,
        bursts: Floats,
        far: KnownSegments,
        response: Response,
        prior: Prior,
    ) -> _Case:
        """Arguments are those of ``attribute``; readings are times, values and how well times are known."""
        times_s, values_w, unsure_s = readings
        read_s = times_s - response.delay_s
        step_s = _STEP * max(response.period_s, response.window_s)
        begin_s = met(response.begins(read_s), read_s)
        spans, bursts, far_s = (met(edges, np.union1d(read_s, begin_s)) for edges in (spans, bursts, far.segments_s))
        far = far._replace(segments_s=far_s)
        cuts = Cuts.from_readings(read_s, begin_s, np.vstack([spans, far.segments_s]), bursts, step_s)
        open_, shut = far.segments_s.T
        holds = ((spans[:, :1] <= open_) & (spans[:, 1:] >= shut)).astype(np.float64)
        base_w, left = prior.base_w(values_w), 1 - share_of(cuts.time_s, far.segments_s).sum(axis=0).A1
        cover = csr_matrix(share_of(cuts.time_s, spans).multiply(left))
        # Half of the variance of bursts' levels is in common: what some show counts for those that no window meets
        every = Timeline(bursts[:, 0], bursts[:, 1], np.zeros(len(bursts), np.int64))
        prior = replace(prior, level_w=prior.level_w / np.sqrt(2))
        wanted, variance = cover @ every.seconds(cuts.time_s), np.array([prior.level_w**2])
        common = Unknowns(shares(read_s, every, response), wanted, np.zeros(1), variance)
        problem = Problem(values_w - base_w, np.full(len(times_s), response.noise_w), cover, common)
        look, read_w = first_look(cuts, problem, response, prior), problem.values_w
        for _ in range(_SHAPES if response.shape else 0):
            problem = replace(problem, values_w=read_w - unlike(cuts, look.level_w, response))
            look = first_look(cuts, problem, response, prior)
        return cls(cuts, response, prior, problem, base_w, cover @ cuts.h, far, holds, unsure_s, look)

    def energies(self, period_s: float | None, some: Indices | None = None) -> Energies:
        """Energies under all sizes of swing and slow change, or ``some`` of them."""
        cuts, look, response, problem = self.cuts, self.look, self.response, self.problem
        look.jolt = jolts_of(cuts, cuts.bursts.ravel(), np.outer(look.height_w, [1.0, -1.0]).ravel(), response)
        # Where readings may say that a burst's level changes
        level_w, moving = look.level_w + self.base_w, any(local > 0 for _, local, _ in self.prior.slow)
        owed, owed_w = timing(cuts, level_w if moving else cuts.means(level_w), response, self.unsure_s)
        # The last sample falls anywhere before a reading's moment: uniform, times what the state still lacks
        late_w = look.unsettled_w * response.weight / np.sqrt(12)
        noise_w = np.sqrt(response.noise_w**2 + owed_w**2 + late_w**2)
        unknown = np.maximum([response.delay_sd_s, response.width_sd], 1e-9) ** 2
        slopes = Unknowns(owed, np.zeros((len(self.seconds), 2)), np.zeros(2), unknown)
        problem = replace(problem, noise_w=noise_w, unknowns=problem.unknowns.beside(slopes))
        over = share_of(cuts.time_s, cuts.bursts)
        above_w = over @ ((look.level_w + self.base_w) * cuts.h) / cuts.length_s - self.prior.idle_w
        swung_w = np.maximum(look.height_w, above_w)
        look.swing = np.where(cuts.inside, swung_w[cuts.burst], 0.0) ** 2
        weights, unseen = self._swings(swung_w, period_s)
        grid = [
            (d, slow, local, weight * share)
            for d, weight in enumerate(weights.tolist())
            for slow, local, share in self.prior.slow
        ]
        grid = grid if some is None else [grid[i] for i in some.tolist()]
        taken = [d for d, *_ in grid]
        unseen = replace(unseen, sizes=unseen.sizes[taken])
        tried = [solve(look.chain(self.prior.densities_s[d], slow, local), problem) for d, slow, local, _ in grid]
        result = mixture(tried, np.array([weight for *_, weight in grid]), unseen)
        more_j = self.base_w * self.seconds + self.holds @ self.far.energies_j
        covariance = result.covariance + (self.holds * self.far.variance) @ self.holds.T
        return replace(result, mean_j=result.mean_j + more_j, covariance=covariance)

    def _swings(self, swung_w: Floats, period_s: float | None) -> tuple[Floats, Unseen]:
        """Weights of the densities, shape (d,), and the offsets that swings of each hide from the spans.

        ``swung_w`` is the power of each burst that may swing, shape (b,). Known segments count to the burst before.
        """
        cuts, (begin, end) = self.cuts, self.far.segments_s.T
        before = np.maximum(np.searchsorted(cuts.bursts[:, 0], begin, side="right") - 1, 0)
        far = csr_matrix((end - begin, (np.arange(len(begin)), before)), (len(begin), len(cuts.bursts)))
        near = self.problem.spans.multiply(cuts.h) @ share_of(cuts.time_s, cuts.bursts).T
        within = csr_matrix(near + csr_matrix(self.holds) @ far)  # seconds of each span in each burst
        count = np.diff(within.indptr)
        lengths_s = np.full((len(count), 2), np.median(cuts.length_s))
        lengths_s[count > 0] = np.stack([within.sum(axis=1).A1, (within > 0) @ cuts.length_s], axis=1)[count > 0]
        lengths_s /= np.maximum(count, 1)[:, None]
        _, which = np.unique(np.round(np.log(lengths_s) / np.log(_CLASS)), axis=0, return_inverse=True)
        sums = np.stack([np.bincount(which, column) for column in lengths_s.T], axis=1)
        weights, offsets = swing_prior(sums / np.bincount(which)[:, None], self.response, self.prior, period_s)
        return weights, Unseen(csr_matrix(within.multiply(swung_w)), offsets[:, :, which], CHANCES)
