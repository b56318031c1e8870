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
from scipy.sparse import csr_matrix, vstack

from jouletrace.attribution.cuts import Cuts, share_of
from jouletrace.attribution.log_chain import log_energies
from jouletrace.attribution.look import Look, first_look, jolts_of, timing
from jouletrace.attribution.prior import Prior
from jouletrace.attribution.solve import Energies, Problem, Unknowns, Unseen, joined, mixture
from jouletrace.attribution.swing import CHANCES, DENSITIES_S, spread_prior, swing_prior
from jouletrace.sensor.shares import Floats, Response, Timeline, shares

_STEP = 0.25
"""Longest segment inside a burst over the longer of window and time between readings: a level that walks is resolved,
on an H100 at less than half of its memory."""

_LIKELY = 2e-3
"""Grid points with less of the prior's weight are left out."""

_UNLIKELY = 9.0
"""Delays are left out that are so much less likely than the best one, as logarithm, at a first look."""

_CLASS = 1.5
"""Factor by which lengths of spans differ that share a prior over hidden offsets."""


def attribute(
    times_s: Floats,
    values_w: Floats,
    spans: ArrayLike,
    *,
    response: Response,
    bursts: ArrayLike | None = None,
    timeline: Timeline | None = None,
    prior: Prior = Prior(),  # noqa: B008  # frozen
    period_s: float | None = None,
    samples_s: Floats | None = None,
    rows: bool = False,
) -> Energies:
    """Energies of spans from the readings of any sensor.

    Args:
        times_s: Times of the readings, increasing, shape (n,).
        values_w: Their values, shape (n,).
        spans: Starts and ends whose energies are asked for, shape (s, 2).
        response: What a reading shows of power. Where that is the power of its moment, the readings are a log
            (``log_chain``), for which bursts, a timeline and a period don't count.
        bursts: Disjoint segments with a level of their own, in order, shape (b, 2): the spans, or all of the timeline,
            if None.
        timeline: What ran when; powers of its kinds above idle are unknowns.
        prior: What is believed of power.
        period_s: Period of the swing in the bursts, if it is known: the length of an iteration.
        samples_s: Times of the sensor's momentary samples, shape (m,), if they are known: with a timeline, kernels far
            shorter than a sample are then known as well as long ones.
        rows: Whether energies of the timeline's kinds come after those of the spans.
    """
    spans = np.asarray(spans, np.float64).reshape(-1, 2)
    if not response.width_s:
        return log_energies(times_s - response.delay_s, values_w, spans, response.noise_w)
    if bursts is None:
        bursts = spans if timeline is None else [[timeline.start_s[0], timeline.end_s.max()]]
    bursts = np.asarray(bursts, np.float64).reshape(-1, 2)
    some = slice(None, None, response.stride)
    response = replace(response, period_s=response.period_s * response.stride)

    def case(one: Response) -> _Case:
        return _Case.of(times_s[some], values_w[some], spans, bursts, one, timeline, prior, samples_s, rows)

    delays = response.delays(float(np.median(np.diff(bursts))))
    cases = [case(one) for one, _ in delays]
    seem = np.array([one.look.log_evidence for one in cases]) + np.log([weight for _, weight in delays])
    likely = np.flatnonzero(seem > seem.max() - _UNLIKELY)
    return joined([cases[i].energies(period_s) for i in likely], np.array([delays[i][1] for i in likely]))


@dataclass
class _Case:
    """The readings under one response, with a first look at them."""

    cuts: Cuts
    response: Response
    prior: Prior
    timeline: Timeline | None
    sampled: bool  # whether moments of samples are known
    problem: Problem  # readings and spans, above the base
    base_w: float
    seconds: Floats  # shape (spans,)
    look: Look

    @classmethod
    def of(
        cls,
        times_s: Floats,
        values_w: Floats,
        spans: Floats,
        bursts: Floats,
        response: Response,
        timeline: Timeline | None,
        prior: Prior,
        samples_s: Floats | None,
        rows: bool,
    ) -> _Case:
        """Arguments are those of ``attribute``."""
        read_s = times_s - response.delay_s
        step_s = max(response.period_s, response.window_s)
        step_s *= _STEP if timeline is None else 1.0  # a timeline shows what is faster
        cuts = Cuts.of(read_s, response.begins(read_s), spans, bursts, step_s)
        base_w, readings = float(np.median(values_w[:5])), len(times_s)
        cover, seconds, part_s = share_of(cuts.time_s, spans), np.diff(spans)[:, 0], None
        unknowns = Unknowns(np.zeros((readings, 0)), np.zeros((len(spans), 0)), np.zeros(0), np.zeros(0))
        if timeline is None and len(bursts) > 1:
            # Half of the variance of their levels is in common: what some bursts show counts for those between windows
            every = Timeline(bursts[:, 0], bursts[:, 1], np.zeros(len(bursts), np.int64))
            prior = replace(prior, level_w=prior.level_w / np.sqrt(2))
            wanted, variance = cover @ every.seconds(cuts.time_s), np.array([prior.level_w**2])
            unknowns = Unknowns(shares(read_s, every, response), wanted, np.zeros(1), variance)
        if timeline is not None:
            part_s = timeline.seconds(cuts.time_s)
            if rows:
                cover = vstack([cover, csr_matrix((part_s / cuts.h[:, None]).T)]).tocsr()
                seconds = np.append(seconds, part_s.sum(axis=0))
            # A kind's row has nothing of other kinds, which run at other times in its segments
            wanted = np.vstack([(cover[: len(spans)] @ part_s), np.diag(part_s.sum(axis=0))])[: len(seconds)]
            mean_w, sd_w = (np.full(timeline.kinds, value) for value in prior.power_w)
            unknowns = Unknowns(shares(read_s, timeline, response, samples_s), wanted, mean_w, sd_w**2)
            prior = replace(prior, level_w=1.0)  # powers are unknowns of their own
        problem = Problem(values_w - base_w, np.full(readings, response.noise_w), cover, unknowns)
        look = first_look(cuts, problem, response, prior, part_s)
        return cls(cuts, response, prior, timeline, samples_s is not None, problem, base_w, seconds, look)

    def energies(self, period_s: float | None) -> Energies:
        """Energies under all sizes of swing and slow change."""
        cuts, look, response, timeline, problem = self.cuts, self.look, self.response, self.timeline, self.problem
        unknowns = problem.unknowns
        if timeline is None:
            edge_s, step_w, unsettled_w = (
                cuts.bursts.ravel(),
                np.outer(look.height_w, [1.0, -1.0]).ravel(),
                look.unsettled_w,
            )
        else:
            above_w = look.power_w[timeline.kind]
            edge_s, step_w = np.append(timeline.start_s, timeline.end_s), np.append(above_w, -above_w)
            unsettled_w = (timeline.running(cuts.time_s[cuts.seen]) - unknowns.shown) @ look.power_w
        # The last sample falls anywhere before a reading's moment: uniform, times what the state still lacks
        late = 1 / 12
        if timeline is None or not self.sampled:
            look.jolt = jolts_of(cuts, edge_s, step_w, response)
        else:  # unless the delay is known to a fraction of a sample: then some readings have one more or one less
            late = min(late, response.delay_sd_s / response.sample_s)
        owed = timing(cuts, look.level_w + self.base_w, response)
        sampled_w = unsettled_w * response.weight * np.sqrt(late)
        noise_w = np.sqrt(response.noise_w**2 + sampled_w**2 + owed.noise_w**2)
        unknown = np.maximum([response.delay_sd_s, response.width_sd], 1e-9) ** 2
        problem = replace(
            problem,
            noise_w=noise_w,
            unknowns=unknowns.beside(Unknowns(owed.slope, np.zeros((len(self.seconds), 2)), np.zeros(2), unknown)),
        )
        if timeline is None:
            weights, unseen = _swings(cuts, problem.spans, look, response, self.prior, period_s)
        else:
            weights, unseen = spread_prior(self.prior), None
        grid = [
            (d, slow, local, weight * share)
            for d, weight in enumerate(weights.tolist())
            if weight > _LIKELY
            for slow, local, share in self.prior.slow
        ]
        if unseen is not None:
            unseen = replace(unseen, sizes=unseen.sizes[[d for d, *_ in grid]])
        chains = [look.chain(float(DENSITIES_S[d]), slow, local) for d, slow, local, _ in grid]
        result = mixture(chains, np.array([weight for *_, weight in grid]), problem, unseen)
        base_j = self.base_w * self.seconds
        return replace(result, mean_j=result.mean_j + base_j, tried_j=result.tried_j + base_j)


def _swings(
    cuts: Cuts, cover: csr_matrix, look: Look, response: Response, prior: Prior, period_s: float | None
) -> tuple[Floats, Unseen]:
    """Weights of the densities, shape (d,), and the offsets that swings of each hide from the spans."""
    within = csr_matrix(cover.multiply(cuts.h) @ share_of(cuts.time_s, cuts.bursts).T)  # seconds, shape (spans, bursts)
    burst_s = float(np.median(cuts.length_s))
    seconds = np.asarray(within.sum(axis=1)).ravel() / np.maximum(np.diff(within.indptr), 1)
    lengths_s, which = _classes(np.where(seconds > 0, seconds, burst_s))
    weights, offsets = swing_prior(lengths_s, burst_s, response, prior, period_s)
    return weights, Unseen(csr_matrix(within.multiply(look.height_w)), offsets[:, :, which], CHANCES)


def _classes(seconds: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """Lengths that stand for ``seconds``, shape (l,), and the index of each one's, of the shape of ``seconds``."""
    _, which = np.unique(np.round(np.log(seconds) / np.log(_CLASS)), return_inverse=True)
    return np.bincount(which, seconds) / np.bincount(which), which
