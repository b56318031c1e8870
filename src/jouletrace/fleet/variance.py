"""Where spread comes from: hosts, GPUs, runs, or within a run. Nested random effects, with intervals.

A reading is ``mean + host + gpu + run + rest``, each of the four independent and normal. Their variances
follow from sums of squares of means, each level's against the level above (unweighted means: Thomas and
Hultquist 1978, The Annals of Statistics 6:582; exact where all have as many below them). Intervals are
generalised confidence intervals (Weerahandi 1993, JASA 88:899): each mean square over its expectation is a
chi-square over its degrees of freedom, so drawing chi-squares draws what the variances may be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr, chdtri

from jouletrace.run import Estimate

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

LEVELS = ("node", "gpu", "run", "within")
DRAWS = 8000
METHOD = "nested random effects"

ALONE = {
    "node": "one_node",
    "gpu": "one_gpu_a_node",
    "run": "one_run_a_gpu",
    "within": "one_window_a_run",
}
"""Why a level's variance can't be told: nothing on it occurs twice under the same level above."""


@dataclass(frozen=True)
class Component:
    """What a level contributes.

    Attributes:
        level: One of ``LEVELS``.
        sd: Standard deviation, in the unit of the readings.
        share: Of the whole variance.
    """

    level: str
    sd: Estimate
    share: Estimate


@dataclass(frozen=True)
class Split:
    """The variances of all levels, and draws of what they may be.

    Attributes:
        components: In the order of ``LEVELS``.
        draws: Variances that the data leaves possible, shape (DRAWS, 4); below zero cut off. Where a level can't
            be told its column is 0, and what it contributes is in the level below it.
        gpu: Code of the GPU of each of ``means``, sorted, shape (gpus,).
        means: Mean of each GPU: of the means of its runs, shape (gpus,).
        weights: Variance of each mean as a combination of those of runs and within, shape (gpus, 2).
    """

    components: tuple[Component, ...]
    draws: Floats
    gpu: Codes
    means: Floats
    weights: Floats

    def true_means(self, seed: int = 1) -> Floats:
        """What the means of the GPUs may be if they were measured for ever, shape (DRAWS, gpus).

        Noise makes the best and the worst of many look further apart than they are: each mean is drawn
        towards that of all, by how much GPUs differ against how well each is known. A one-way random-effects
        model of the means, its variance between GPUs at least nothing (Box and Tiao 1973, Bayesian Inference
        in Statistical Analysis, section 5.2).
        """
        rng = np.random.default_rng(seed)
        noise: Floats = self.draws[:, 2:] @ self.weights.T
        k = len(self.means)
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


def split(values: Floats, node: Codes, gpu: Codes, run: Codes, seed: int = 0) -> Split | None:
    """Split the variance of readings.

    Args:
        values: Readings, shape (n,): one a window.
        node: Code of the host of each, shape (n,).
        gpu: Of the GPU; no two hosts have the same.
        run: Of the run; no two GPUs have the same.
        seed: Of the draws.

    Returns:
        The split; None without a reading.
    """
    if not len(values):
        return None
    square, freedom, expected = np.zeros(4), np.zeros(4), np.zeros((4, 4))
    means, below = values.astype(np.float64), np.zeros((len(values), 4))
    codes = [node, gpu, run]
    gpu_means: Any = None
    for level in (3, 2, 1, 0):
        below[:, level] = 1.0
        if level == 0:
            parent = np.zeros(len(means), np.int64)
        else:
            names, parent = np.unique(codes[level - 1], return_inverse=True)
        count = np.bincount(parent)
        above = np.bincount(parent, means) / count
        freedom[level] = float((count - 1).sum())
        if freedom[level] > 0:
            square[level] = float(((means - above[parent]) ** 2).sum()) / freedom[level]
            kept = (1 - 1 / count)[parent]
            expected[level] = (kept[:, None] * below).sum(axis=0) / freedom[level]
        if level == 0:
            break
        first = np.unique(parent, return_index=True)[1]
        codes = [code[first] for code in codes[: level - 1]] + codes[level - 1 :]
        below = np.stack([np.bincount(parent, below[:, k]) for k in range(4)], axis=1) / (count**2)[:, None]
        means = above
        if level == 2:
            gpu_means = (names, above, below[:, 2:].copy())
    return _solved(square, freedom, expected, gpu_means, seed)


def _solved(square: Floats, freedom: Floats, expected: Floats, gpus: Any, seed: int) -> Split:
    seen = freedom > 0
    # a level that can't be told apart is left out; what it does is in the mean squares of those that can
    system = np.where(seen[:, None] & seen[None, :], expected, 0.0) + np.diag(np.where(seen, 0.0, 1.0))
    found = np.linalg.solve(system, np.where(seen, square, 0.0))
    rng = np.random.default_rng(seed)
    chi = np.stack([rng.chisquare(df, DRAWS) if df > 0 else np.ones(DRAWS) for df in freedom], axis=1)
    drawn = np.where(seen, square * freedom / chi, 0.0)
    draws = np.clip(np.linalg.solve(system, drawn.T).T, 0.0, None)
    variances = np.clip(found, 0.0, None)
    whole, wholes = variances.sum(), draws.sum(axis=1)
    components = []
    for k, level in enumerate(LEVELS):
        if not seen[k]:
            nothing = Estimate.null(ALONE[level], METHOD)
            components.append(Component(level, nothing, nothing))
            continue
        low, high = np.quantile(draws[:, k], [0.025, 0.975])
        n = int(freedom[k]) + 1
        value = float(np.sqrt(variances[k]))
        sd = Estimate(value, min(float(np.sqrt(low)), value), max(float(np.sqrt(high)), value), n, METHOD)
        components.append(Component(level, sd, _share(variances[k], whole, draws[:, k], wholes, n)))
    names, means, weights = gpus
    return Split(tuple(components), draws, names, means, weights)


def _share(variance: float, whole: float, draws: Floats, wholes: Floats, n: int) -> Estimate:
    if whole <= 0:
        return Estimate.null("no_spread", METHOD)
    share = float(variance / whole)
    parts = np.divide(draws, wholes, out=np.zeros_like(draws), where=wholes > 0)
    low, high = np.quantile(parts, [0.025, 0.975])
    return Estimate(share, min(float(low), share), max(float(high), share), n, METHOD)
