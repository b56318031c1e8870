"""The sources of spread: hosts, GPUs, runs, or within a run. Nested random effects, with intervals.

A reading is ``mean + host + gpu + run + rest``, where the last four are independent and normal. Their variances follow
from sums of squares of means, each level's against the level above (unweighted means: Thomas and Hultquist 1978, The
Annals of Statistics 6:582). Intervals are generalised confidence intervals (Weerahandi 1993, JASA 88:899): each mean
square over its expectation is a chi-square over its degrees of freedom, so draws of chi-squares give draws of the
variances. (A bootstrap over hosts or GPUs would have too low a coverage, since there are few of them.)

Successive windows of a run may be correlated; what they have in common then counts as a difference between runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtr, chdtri

from jouletrace.arrays import Floats, Ints
from jouletrace.run import Estimate

LEVELS = ("node", "gpu", "run", "within")
DRAWS = 8000
METHOD = "nested random effects"

ALONE = {
    "node": "one_node",
    "gpu": "one_gpu_a_node",
    "run": "one_run_a_gpu",
    "within": "one_window_a_run",
}
"""Why a level's variance can't be estimated: no unit of the level above contains two of its units."""


@dataclass(frozen=True)
class Component:
    """The contribution of one of ``LEVELS``: standard deviation in the readings' unit, and share of the variance."""

    level: str
    sd: Estimate
    share: Estimate


@dataclass(frozen=True)
class Split:
    """The variances of all levels, and possible true means of the GPUs.

    Attributes:
        components: In the order of ``LEVELS``.
        gpu: Code of the GPU of each of ``means``, sorted, shape (gpus,).
        means: Mean of each GPU: of the means of its runs, shape (gpus,).
        runs: Number of these runs, shape (gpus,).
        noise: Draws of the variance of each mean about the GPU's own, shape (DRAWS, gpus).
    """

    components: tuple[Component, ...]
    gpu: Ints
    means: Floats
    runs: Ints
    noise: Floats

    def true_means(self, seed: int = 1) -> Floats:
        """Draws of the means of the GPUs that an infinitely long measurement would give, shape (DRAWS, gpus).

        Noise makes the best and the worst of many appear further apart than they are. Each mean is therefore shrunk
        towards the overall mean, by the ratio of the differences between GPUs to its own uncertainty. The model is a
        one-way random-effects model of the means with a non-negative variance between GPUs (Box and Tiao 1973, Bayesian
        Inference in Statistical Analysis, section 5.2).
        """
        rng = np.random.default_rng(seed)
        noise, k = self.noise, len(self.means)
        if k == 1:
            return np.asarray(self.means + np.sqrt(noise) * rng.standard_normal(noise.shape))
        square = float(np.var(self.means, ddof=1)) * (k - 1)
        common = np.maximum(noise.mean(axis=1), 1e-300)
        if square == 0:
            return np.broadcast_to(self.means, noise.shape)
        # chi-squares for which the variance between GPUs isn't negative
        chi = chdtri(k - 1, 1 - rng.random(len(noise)) * chdtr(k - 1, square / common))
        between = np.maximum(square / np.maximum(chi, 1e-300) - common, 0.0)[:, None]
        known = 1 / np.maximum(between + noise, 1e-300)
        centre = (known * self.means).sum(axis=1) / known.sum(axis=1)
        centre += rng.standard_normal(len(centre)) / np.sqrt(known.sum(axis=1))
        trust = between * known
        middle = centre[:, None] + trust * (self.means - centre[:, None])
        return np.asarray(middle + np.sqrt(trust * noise) * rng.standard_normal(noise.shape))


def split(values: Floats, node: Ints, gpu: Ints, run: Ints, seed: int = 0) -> Split | None:
    """Split the variance of readings, one per window, shape (n,); None without one.

    ``node``, ``gpu`` and ``run`` are their codes, shape (n,); no two hosts share a GPU, and no two GPUs a run.
    """
    if not len(values):
        return None
    rng = np.random.default_rng(seed)
    _, first, place = np.unique(run, return_index=True, return_inverse=True)
    count = np.bincount(place)
    means = np.bincount(place, values) / count
    parents = [np.unique(own, return_inverse=True)[1] for own in (gpu[first], node[first])]
    codes = [np.arange(len(means)), *parents, np.zeros(len(means), np.int64)]
    variance, n = np.zeros((4, 1 + DRAWS)), np.zeros(4, int)  # of each level: the estimate, then draws
    square = float(((values - means[place]) ** 2).sum())
    variance[3], n[3] = _between(rng, square, len(values) - len(means), 0.0)
    weight, of_level = np.ones(len(means)), means
    for below, level in enumerate((2, 1, 0)):  # runs in GPUs, GPUs in hosts, hosts
        parent = codes[below + 1][np.unique(codes[below], return_index=True)[1]]
        children = np.bincount(parent)
        above = np.bincount(parent, of_level) / children
        kept = (1 - 1 / children)[codes[below + 1]]
        lower = (kept * weight**2 / count).sum() * variance[3]
        for k in range(below):
            lower += (np.bincount(codes[k], np.sqrt(kept) * weight) ** 2).sum() * variance[2 - k]
        square = float(((of_level - above[parent]) ** 2).sum())
        variance[level], n[level] = _between(rng, square, int((children - 1).sum()), lower)
        of_level, weight = above, weight / children[codes[below + 1]]
        if level == 2:
            of_gpus, weights = above, weight
    variance = np.maximum(variance, 0.0)
    noise = variance[3, :, None] * np.bincount(codes[1], weights**2 / count)
    noise += variance[2, :, None] * np.bincount(codes[1], weights**2)
    return Split(_components(variance, n), np.unique(gpu), of_gpus, np.bincount(codes[1]), noise[1:])


def _between(
    rng: np.random.Generator, square: float, freedom: int, lower: Floats | float
) -> tuple[Floats | float, int]:
    """Variance of a level, the estimate first, from its sum of squares less the contributions of lower levels."""
    if not freedom:
        return 0.0, 0
    return square / np.append(freedom, rng.chisquare(freedom, DRAWS)) - lower / freedom, freedom + 1


def _components(variance: Floats, n: Ints) -> tuple[Component, ...]:
    """The contribution of each level, from its variance (the estimate, then draws), shape (4, 1 + DRAWS)."""
    whole = variance.sum(axis=0)
    share = np.divide(variance, whole, out=np.zeros_like(variance), where=whole > 0)
    found = []
    for k, level in enumerate(LEVELS):
        sd = _estimate(np.sqrt(variance[k]), int(n[k])) if n[k] else Estimate.null(ALONE[level], METHOD)
        part = _estimate(share[k], int(n[k])) if whole[0] > 0 else Estimate.null("no_spread", METHOD)
        found.append(Component(level, sd, part if n[k] else sd))
    return tuple(found)


def _estimate(values: Floats, n: int) -> Estimate:
    value = float(values[0])
    low, high = (float(end) for end in np.quantile(values[1:], [0.025, 0.975]))
    return Estimate(value, min(low, value), max(high, value), n, METHOD)
