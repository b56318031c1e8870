"""One model for all windows of an experiment: arms, captures, drift and noise.

The logarithm of a window's energy per iteration is taken as

    y = θ(arm) + drift(time) + block + capture + noise

with a level θ for each arm, a drift common to all arms that wanders as a random walk (heat and
the board's own wander multiply whatever runs, hence the logarithm), an offset of each block, or of
each stretch of one in which the board was the same (on an H100 all graphs of a process run 7 % slower
after some captures, and as before after others; and ``experiments.steady``), an offset of each
capture (the same work, captured afresh, need not cost quite the same) and independent noise. How large
these are against the noise the windows tell themselves, by restricted maximum likelihood (Patterson and
Thompson 1971). A covariate, a quantity seen in each window that only noise moves, is regressed on where
there is one. What a sensor that samples makes of loads that repeat themselves is noise too, of a size known
beforehand for each window (``energy.sampling_rate``) up to a factor that the windows tell. So every window helps
to follow the drift, a window next to a reference counts for more than one far from any, and the covariance
between arms, which a sum of parts needs since all parts share one reference, comes out exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from jouletrace.experiments.moderate import Moderated, moderate

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

_SMALLEST = 1e-6
_LARGEST = {"capture": 10.0, "drift": 10.0, "block": 1e8, "sampling": 1e3}
"""Of each source over noise: beyond that, noise can't be told from a drift that follows every window."""

_EXACT = 1e-8
"""Relative spread below which windows are taken to agree exactly."""

_KNOWN, _KNOWN_FREE = "sampling", 4.0
"""The source of which something is known beforehand, and degrees of freedom for which that counts."""

_STARTS = (1e-3, 0.1)
_ROUNDS = 2


@dataclass(frozen=True)
class Source:
    """Something that moves windows beside their noise.

    Attributes:
        covariance: Of windows moved by it with variance one, shape (windows, windows).
        variance: Of a capture's or a block's offset, or of the drift's step between neighbouring windows.
        doubt: Variance of that estimate.
    """

    covariance: Floats
    variance: float
    doubt: float


@dataclass(frozen=True)
class Fit:
    """Levels of arms and where their uncertainty comes from.

    Attributes:
        level: θ of each arm, shape (arms,), at the experiment's mean drift and block.
        weights: How each level is made of the windows, shape (arms, windows): level = weights @ y.
        arm: Arm of each window, shape (windows,).
        noise: Noise variance of each arm's windows, with its degrees of freedom.
        sources: What else moves windows, by name: "capture", "drift", "block", "sampling".
        slope: Coefficient of the covariate; 0 without one.
    """

    level: Floats
    weights: Floats
    arm: Indices
    noise: Moderated
    sources: Mapping[str, Source]
    slope: float

    def variance(self, gradient: Floats) -> tuple[float, float]:
        """Variance of ``gradient @ level``, and the variance of that estimate of it.

        The second is what Satterthwaite's degrees of freedom 2 v² / var(v) want.

        Args:
            gradient: Shape (arms,).
        """
        by_window = gradient @ self.weights
        by_arm = np.bincount(self.arm, by_window**2, len(self.level))
        noise = self.noise.variance * by_arm
        variance, doubt = float(noise.sum()), float((2 * noise**2 / self.noise.df).sum())
        for source in self.sources.values():
            times = max(float(by_window @ source.covariance @ by_window), 0.0)
            variance += times * source.variance
            doubt += times**2 * source.doubt
        return variance, doubt


def fit(
    y: Floats,
    arm: Indices,
    capture: Indices,
    time_s: Floats,
    covariate: Floats | None = None,
    block: Indices | None = None,
    sampled: Floats | None = None,
) -> Fit:
    """Fit the model.

    Args:
        y: Logarithms, shape (windows,).
        arm: Index of each window's arm, shape (windows,); every arm from 0 on occurs.
        capture: Index of each window's capture, shape (windows,).
        time_s: Middle of each window, shape (windows,).
        covariate: Shape (windows,); levels are those where it is 0.
        block: Block of each window, or stretch of one, shape (windows,); None if all are of one.
        sampled: Variance of each that comes of how the sensor samples, as far as known beforehand, shape (windows,).
    """
    n, arms = len(y), int(arm.max()) + 1
    plain = design = np.eye(arms)[arm]
    if covariate is not None and _tells(covariate, arm, arms):
        design = np.column_stack([design, covariate])
    noise = np.ones(n)
    free = n - design.shape[1]
    if free < 2:
        return _without_spread(y, plain, arm)
    covariances = _covariances(plain, capture, time_s, block)
    means = (plain.T @ y) / plain.sum(axis=0)
    centred = y - plain @ means
    scale = float(centred @ centred) / free
    spreads = scale > _EXACT**2
    if sampled is not None and spreads:
        covariances[_KNOWN] = np.diag(sampled) / scale
    ratios = dict.fromkeys(covariances, 0.0)
    moderated = Moderated(np.full(arms, scale), np.full(arms, float(free)))
    sigma2 = scale
    for _ in range(_ROUNDS if spreads else 0):
        ratios = _ratios(centred, design, noise, covariances, scale)
        projection, _ = _project(_whole(noise, covariances, ratios), design)
        sigma2 = max(float(centred @ projection @ centred) / free, _EXACT**2)
        # The best prediction of each window's noise, and what share of it shows.
        shown = noise[:, None] * projection * noise[None, :]
        residual = noise * (projection @ centred)
        diagonal = np.maximum(np.diag(shown), 0.0)
        spread = np.bincount(arm, residual**2, arms)
        seen = np.bincount(arm, diagonal / noise, arms)
        expected = np.bincount(arm, diagonal, arms)
        own = np.divide(spread, expected, out=np.zeros(arms), where=seen > 1e-3) * _mean(noise, arm, arms)
        moderated = moderate(own, np.where(seen > 1e-3, seen, 0.0))
        if np.all(np.isfinite(moderated.variance)):
            noise = np.clip(moderated.variance / sigma2, 1e-4, 1e4)[arm]
    projection, weights = _project(_whole(noise, covariances, ratios), design)
    variances = {name: ratio * sigma2 for name, ratio in ratios.items()}
    doubts = _doubts(projection / sigma2, noise, covariances, variances) if spreads else dict.fromkeys(covariances, 0.0)
    found = weights @ centred
    return Fit(
        level=means + found[:arms],
        weights=weights[:arms],
        arm=arm,
        noise=moderated,
        sources={name: Source(covariance, variances[name], doubts[name]) for name, covariance in covariances.items()},
        slope=float(found[arms]) if len(found) > arms else 0.0,
    )


def _covariances(plain: Floats, capture: Indices, time_s: Floats, block: Indices | None) -> dict[str, Floats]:
    """Of each source with variance one, shape (windows, windows); of those alone that the windows can tell of."""
    found = {"drift": _walk(time_s)}
    same_capture = _same(capture)
    # Without several captures of an arm, or several windows of a capture, offsets look like noise or levels.
    if np.any(same_capture.sum(axis=0) > 1) and np.any(same_capture < plain @ plain.T):
        found["capture"] = same_capture
    if block is not None:
        same_block = _same(block)
        # Some arm must have windows in several blocks, or blocks look like levels.
        if np.any((same_block == 0) & (plain @ plain.T > 0)):
            found["block"] = _centred(same_block)
    return found


def _same(group: Indices) -> Floats:
    return np.asarray(group[:, None] == group[None, :], np.float64)


def _whole(noise: Floats, covariances: Mapping[str, Floats], ratios: Mapping[str, float]) -> Floats:
    """Covariance of the windows, over the variance of the noise."""
    whole = np.diag(noise)
    for name, covariance in covariances.items():
        whole = whole + ratios[name] * covariance
    return whole


def _doubts(
    projection: Floats, noise: Floats, covariances: Mapping[str, Floats], variances: Mapping[str, float]
) -> dict[str, float]:
    """Variances of the REML estimates of the sources' variances, from the information matrix."""
    parts = [projection * noise, *(projection @ covariance for covariance in covariances.values())]
    information = np.array([[0.5 * float(np.sum(a * b.T)) for b in parts] for a in parts])
    for i, name in enumerate(covariances, 1):
        if name == _KNOWN:
            information[i, i] += _KNOWN_FREE / (2 * max(variances[name], 1e-300) ** 2)
    # Sources differ by many orders of magnitude: brought to one scale first, or the smallest get lost.
    scale = np.sqrt(np.maximum(np.diag(information), 1e-300))
    covariance = linalg.pinvh(information / np.outer(scale, scale), rtol=1e-6) / np.outer(scale, scale)
    return {name: max(float(covariance[i, i]), 0.0) for i, name in enumerate(covariances, 1)}


def _ratios(
    y: Floats, design: Floats, noise: Floats, covariances: Mapping[str, Floats], scale: float
) -> dict[str, float]:
    """Variances of the sources over that of the noise, by REML.

    What is known beforehand, that one of them is about ``scale``, goes in as an inverse chi squared.
    """
    from scipy import optimize  # slow to import, and figures of parts alone need it

    bounds = [(math.log(_SMALLEST), math.log(_LARGEST[name])) for name in covariances]

    def deviance(logs: Floats) -> float:
        ratios = dict(zip(covariances, np.exp(logs), strict=True))
        found, sigma2 = _deviance(_whole(noise, covariances, ratios), y, design)
        if _KNOWN in ratios:
            times = max(ratios[_KNOWN] * sigma2 / scale, 1e-9)
            found += (_KNOWN_FREE + 2) * math.log(times) + _KNOWN_FREE / times
        return found

    tries = [
        optimize.minimize(deviance, np.full(len(bounds), np.log(start)), method="L-BFGS-B", bounds=bounds)
        for start in _STARTS
    ]
    found = np.exp(min(tries, key=lambda t: float(t.fun)).x)
    return {
        name: 0.0 if ratio <= 1.01 * _SMALLEST else float(ratio) for name, ratio in zip(covariances, found, strict=True)
    }


def _deviance(covariance: Floats, y: Floats, design: Floats) -> tuple[float, float]:
    """Minus twice the restricted log likelihood, the common variance profiled out, and that variance."""
    factor = linalg.cholesky(covariance, lower=True, check_finite=False)
    white = linalg.solve_triangular(factor, np.column_stack([design, y]), lower=True, check_finite=False)
    triangle = linalg.qr(white, mode="r", check_finite=False)[0]
    arms = design.shape[1]
    residual = float(triangle[arms, arms] ** 2)
    free = len(y) - arms
    log_design = 2 * float(np.log(np.abs(np.diag(triangle)[:arms])).sum())
    log_covariance = 2 * float(np.log(np.diag(factor)).sum())
    return float(free * math.log(max(residual, 1e-300)) + log_covariance + log_design), residual / free


def _project(covariance: Floats, design: Floats) -> tuple[Floats, Floats]:
    """The matrix that takes levels out of data, weighted, and the one that makes levels of them."""
    inverse = linalg.cho_solve(linalg.cho_factor(covariance, lower=True), np.eye(len(covariance)))
    weighted = inverse @ design
    weights = linalg.solve(design.T @ weighted, weighted.T, assume_a="pos")
    return inverse - weighted @ weights, np.asarray(weights, np.float64)


def _walk(time_s: Floats) -> Floats:
    """Covariance of a random walk whose step between neighbouring windows has variance one."""
    order = np.sort(time_s)
    step = float(np.median(np.diff(order))) if len(order) > 1 else 1.0
    since = (time_s - order[0]) / (step if step > 0 else 1.0)
    return _centred(np.minimum(since[:, None], since[None, :]))


def _centred(covariance: Floats) -> Floats:
    """Of what is left when the mean over the windows is taken out: levels then stand for the experiment as a whole."""
    centred = covariance - covariance.mean(axis=0)
    return np.asarray(centred - centred.mean(axis=1)[:, None], np.float64)


def _tells(covariate: Floats, arm: Indices, arms: int) -> bool:
    """Whether a covariate varies within arms, so that its coefficient can be told."""
    within = covariate - _mean(covariate, arm, arms)[arm]
    return bool(within @ within > 1e-12 * len(covariate)) and len(covariate) - arms >= 3


def _mean(values: Floats, arm: Indices, arms: int) -> Floats:
    return np.asarray(np.bincount(arm, values, arms) / np.bincount(arm, minlength=arms), np.float64)


def _without_spread(y: Floats, design: Floats, arm: Indices) -> Fit:
    """Plain means where there are too few windows to tell of any spread: no interval comes of it."""
    weights = (design / design.sum(axis=0)).T
    arms = design.shape[1]
    unknown = Moderated(np.full(arms, np.nan), np.full(arms, np.nan))
    return Fit(weights @ y, weights, arm, unknown, {}, 0.0)
