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
from scipy.sparse import csr_matrix

from jouletrace.attribution.cuts import Cuts, share_of
from jouletrace.attribution.look import Look, derivatives, first_look, jolts_of
from jouletrace.attribution.prior import Prior
from jouletrace.attribution.solve import Energies, Problem, Unknowns, Unseen, mixture
from jouletrace.attribution.swing import CHANCES, DENSITIES_S, swing_prior
from jouletrace.sensor.shares import Floats, Response

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
    prior: Prior = Prior(),  # noqa: B008  # frozen
    period_s: float | None = None,
    times_sd_s: Floats | None = None,
) -> Energies:
    """Energies of spans from the readings of a sensor with an exponential memory.

    Args:
        times_s: Times of the readings, increasing, shape (n,).
        values_w: Their values, shape (n,).
        spans: Starts and ends whose energies are asked for, shape (s, 2).
        response: What a reading shows of power.
        bursts: Disjoint segments with a level of their own, in order, shape (b, 2): the spans if None.
        prior: What is believed of power.
        period_s: Period of the swing in the bursts, if it is known: the length of an iteration.
        times_sd_s: Standard deviations of the readings' times, shape (n,), where stamps came late (``Grid.unsure_s``).
    """
    spans = np.asarray(spans, np.float64).reshape(-1, 2)
    bursts = spans if bursts is None else np.asarray(bursts, np.float64).reshape(-1, 2)
    cuts = Cuts.of(times_s - response.delay_s, spans, bursts, STEP_S)
    base_w, noise_w = float(np.median(values_w[:5])), np.full(len(times_s), response.noise_w)
    cover, seconds = share_of(cuts.time_s, spans), np.diff(spans)[:, 0]
    none = np.zeros(0)
    problem = Problem(
        values_w - base_w, noise_w, cover, Unknowns(noise_w[:, None][:, :0], np.zeros((len(spans), 0)), none, none)
    )
    look = first_look(cuts, problem, response, prior)
    look.jolt = jolts_of(cuts, cuts.bursts.ravel(), np.outer(look.height_w, [1.0, -1.0]).ravel(), response)
    # The last sample falls anywhere before a reading's moment: uniform, times what the state still lacks
    noise_w = np.hypot(noise_w, look.unsettled_w * response.weight / np.sqrt(12))
    if times_sd_s is not None:  # a reading follows the power at the pace of what it still lacks
        noise_w = np.hypot(noise_w, look.unsettled_w * times_sd_s / response.rise_s)
    timing = np.array([response.delay_sd_s, response.rise_sd])
    slopes = Unknowns(derivatives(cuts, look.level_w, response), np.zeros((len(spans), 2)), np.zeros(2), timing**2)
    problem = replace(problem, noise_w=noise_w, unknowns=slopes)
    weights, unseen = _swings(cuts, cover, look, response, prior, period_s)
    aliased = None if period_s else _swings(cuts, cover, look, response, prior, response.period_s)[1]
    grid = [
        (d, slow, local, weight * share)
        for d, weight in enumerate(weights.tolist())
        if weight > _LIKELY
        for slow, local, share in prior.slow
    ]
    taken = [d for d, *_ in grid]
    unseen = replace(unseen, sizes=unseen.sizes[taken])
    if aliased is not None:
        aliased = replace(aliased, sizes=aliased.sizes[taken])
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
