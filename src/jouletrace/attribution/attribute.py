"""Energies of any spans from readings of power: the one estimator.

    readings = shares * powers + level + swing + noise

Time is cut where readings and spans have edges. A chain (``chains``) says how power and the sensor's state go on from
cut to cut; one banded system (``solve``) then gives all energies with their joint covariance. Sizes that aren't known,
of swings and of slow change, are summed over a grid, weighed by prior and readings.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix, vstack

from jouletrace.attribution.cuts import Cuts, share_of
from jouletrace.attribution.look import Look, derivatives, first_look, jolts_of
from jouletrace.attribution.prior import Prior
from jouletrace.attribution.solve import Energies, Problem, Unknowns, Unseen, mixture
from jouletrace.attribution.swing import CHANCES, DENSITIES_S, spread_prior, swing_prior
from jouletrace.sensor.shares import Floats, Response, Timeline, shares

STEP_S = 0.005
"""Longest segment inside a burst: a level that walks is resolved at less than half of an H100's memory."""

_LIKELY = 2e-3
"""Grid points with less of the prior's weight are left out."""

_CLASS = 1.5
"""Factor by which lengths of spans and bursts differ that share a prior over hidden offsets."""


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
    times_sd_s: Floats | None = None,
) -> Energies:
    """Energies of spans from the readings of a sensor with an exponential memory.

    Args:
        times_s: Times of the readings, increasing, shape (n,).
        values_w: Their values, shape (n,).
        spans: Starts and ends whose energies are asked for, shape (s, 2).
        response: What a reading shows of power.
        bursts: Disjoint segments with a level of their own, in order, shape (b, 2): the spans, or all of the timeline,
            if None.
        timeline: What ran when; powers of its kinds above idle are unknowns.
        prior: What is believed of power.
        period_s: Period of the swing in the bursts, if it is known: the length of an iteration.
        samples_s: Times of the sensor's momentary samples, shape (m,), if they are known: with a timeline, kernels far
            shorter than a sample are then known as well as long ones.
        rows: Whether energies of the timeline's kinds come after those of the spans.
        times_sd_s: Standard deviations of the readings' times, shape (n,), where stamps came late (``Grid.unsure_s``).
    """
    spans = np.asarray(spans, np.float64).reshape(-1, 2)
    if bursts is None:
        bursts = spans if timeline is None else [[timeline.start_s[0], timeline.end_s.max()]]
    step_s = STEP_S if timeline is None else response.period_s  # a timeline shows what is faster
    cuts = Cuts.of(times_s - response.delay_s, spans, np.asarray(bursts, np.float64).reshape(-1, 2), step_s)
    base_w, readings = float(np.median(values_w[:5])), len(times_s)
    cover, seconds, part_s = share_of(cuts.time_s, spans), np.diff(spans)[:, 0], None
    unknowns = Unknowns(np.zeros((readings, 0)), np.zeros((len(spans), 0)), np.zeros(0), np.zeros(0))
    if timeline is not None:
        part_s = timeline.seconds(cuts.time_s)
        if rows:
            cover = vstack([cover, csr_matrix((part_s / cuts.h[:, None]).T)]).tocsr()
            seconds = np.append(seconds, part_s.sum(axis=0))
        # A kind's row has nothing of other kinds, which run at other times in its segments
        wanted = np.vstack([(cover[: len(spans)] @ part_s), np.diag(part_s.sum(axis=0))])[: len(seconds)]
        mean_w, sd_w = (np.full(timeline.kinds, value) for value in prior.power_w)
        unknowns = Unknowns(shares(cuts.time_s[cuts.seen], timeline, response, samples_s), wanted, mean_w, sd_w**2)
        prior = replace(prior, level_w=1.0)  # powers are unknowns of their own
    problem = Problem(values_w - base_w, np.full(readings, response.noise_w), cover, unknowns)
    look = first_look(cuts, problem, response, prior, part_s)
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
    if timeline is None or samples_s is None:
        look.jolt = jolts_of(cuts, edge_s, step_w, response)
    else:  # unless the delay is known to a fraction of a sample: then some readings have one more or one less
        late = min(late, response.delay_sd_s / response.sample_s)
    noise_w = np.hypot(response.noise_w, unsettled_w * response.weight * np.sqrt(late))
    if times_sd_s is not None:  # a reading follows the power at the pace of what it still lacks
        noise_w = np.hypot(noise_w, unsettled_w * times_sd_s / response.rise_s)
    timing = np.array([response.delay_sd_s, response.rise_sd])
    slope = Unknowns(derivatives(cuts, look.level_w, response), np.zeros((len(seconds), 2)), np.zeros(2), timing**2)
    problem = replace(problem, noise_w=noise_w, unknowns=unknowns.beside(slope))
    if timeline is None:
        weights, unseen = _swings(cuts, cover, look, response, prior, period_s)
        aliased = None if period_s else _swings(cuts, cover, look, response, prior, response.period_s)[1]
    else:
        weights, unseen, aliased = spread_prior(prior), None, None
    grid = [
        (d, slow, local, weight * share)
        for d, weight in enumerate(weights.tolist())
        if weight > _LIKELY
        for slow, local, share in prior.slow
    ]
    if unseen is not None:
        unseen = replace(unseen, sizes=unseen.sizes[[d for d, *_ in grid]])
    if aliased is not None:
        aliased = replace(aliased, sizes=aliased.sizes[[d for d, *_ in grid]])
    chains = [look.chain(float(DENSITIES_S[d]), slow, local) for d, slow, local, _ in grid]
    result = mixture(chains, np.array([weight for *_, weight in grid]), problem, unseen, aliased)
    return replace(result, mean_j=result.mean_j + base_w * seconds, tried_j=result.tried_j + base_w * seconds)


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
