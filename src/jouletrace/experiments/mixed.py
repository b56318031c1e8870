"""One model for all windows of an experiment: arms, captures, drift and noise.

The logarithm of a window's energy per iteration is taken as

    y = θ(arm) + drift(time) + capture + noise

with a level θ for each arm, a drift common to all arms that wanders as a random walk (heat and
the board's own wander multiply whatever runs, hence the logarithm), an offset of each capture (the
same work, captured afresh, need not cost quite the same) and independent noise. How large drift and
capture offsets are against the noise the windows tell themselves, by restricted maximum
likelihood (Patterson and Thompson 1971). A covariate, a quantity seen in each window that only noise
moves, is regressed on where there is one. So every window helps to follow the drift, a window next
to a reference counts for more than one far from any, and the covariance between arms, which a sum
of parts needs since all parts share one reference, comes out exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize

from jouletrace.experiments.moderate import Moderated, moderate

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

_SMALLEST, _LARGEST = 1e-6, 10.0
"""Of capture and drift over noise: beyond that, noise can't be told from a drift that follows every window."""

_EXACT = 1e-8
"""Relative spread below which windows are taken to agree exactly."""

_STARTS = (1e-3, 0.1)
_ROUNDS = 2


@dataclass(frozen=True)
class Fit:
    """Levels of arms and where their uncertainty comes from.

    Attributes:
        level: θ of each arm, shape (arms,), at the experiment's mean drift.
        weights: How each level is made of the windows, shape (arms, windows): level = weights @ y.
        arm: Arm of each window, shape (windows,).
        capture: Capture of each window, shape (windows,).
        noise: Noise variance of each arm's windows, with its degrees of freedom.
        capture_variance: Variance of a capture's offset.
        drift_variance: Variance of the drift's step between neighbouring windows.
        slope: Coefficient of the covariate; 0 without one.
        walk: Covariance of a drift whose step has variance one, shape (windows, windows).
        doubt: Variances of the estimates of those two variances.
    """

    level: Floats
    weights: Floats
    arm: Indices
    capture: Indices
    noise: Moderated
    capture_variance: float
    drift_variance: float
    slope: float
    walk: Floats
    doubt: tuple[float, float]

    def variance(self, gradient: Floats) -> tuple[float, float]:
        """Variance of ``gradient @ level``, and the variance of that estimate of it.

        The second is what Satterthwaite's degrees of freedom 2 v² / var(v) want.

        Args:
            gradient: Shape (arms,).
        """
        by_window = gradient @ self.weights
        by_arm = np.bincount(self.arm, by_window**2, len(self.level))
        noise = self.noise.variance * by_arm
        by_capture = np.bincount(self.capture, by_window)
        capture = float(by_capture @ by_capture)
        drift = max(float(by_window @ self.walk @ by_window), 0.0)
        variance = float(noise.sum()) + capture * self.capture_variance + drift * self.drift_variance
        doubt = float((2 * noise**2 / self.noise.df).sum()) + capture**2 * self.doubt[0] + drift**2 * self.doubt[1]
        return variance, doubt


def fit(y: Floats, arm: Indices, capture: Indices, time_s: Floats, covariate: Floats | None = None) -> Fit:
    """Fit the model.

    Args:
        y: Logarithms, shape (windows,).
        arm: Index of each window's arm, shape (windows,); every arm from 0 on occurs.
        capture: Index of each window's capture, shape (windows,).
        time_s: Middle of each window, shape (windows,).
        covariate: Shape (windows,); levels are those where it is 0.
    """
    n, arms = len(y), int(arm.max()) + 1
    plain = design = np.eye(arms)[arm]
    if covariate is not None and _tells(covariate, arm, arms):
        design = np.column_stack([design, covariate])
    same_capture = (capture[:, None] == capture[None, :]).astype(np.float64)
    walk = _walk(time_s)
    noise = np.ones(n)
    free = n - design.shape[1]
    if free < 2:
        return _without_spread(y, plain, arm, capture)
    means = (plain.T @ y) / plain.sum(axis=0)
    centred = y - plain @ means
    scale = float(centred @ centred) / free
    spreads = scale > _EXACT**2
    several = bool(np.any(same_capture.sum(axis=0) > 1)) and bool(np.any(same_capture < plain @ plain.T))
    ratios = (0.0, 0.0)
    moderated = Moderated(np.full(arms, scale), np.full(arms, float(free)))
    sigma2 = scale
    for _ in range(_ROUNDS if spreads else 0):
        ratios = _ratios(centred, design, noise, same_capture, walk, several)
        covariance = np.diag(noise) + ratios[0] * same_capture + ratios[1] * walk
        projection, _ = _project(covariance, design)
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
    covariance = np.diag(noise) + ratios[0] * same_capture + ratios[1] * walk
    projection, weights = _project(covariance, design)
    found = weights @ centred
    return Fit(
        level=means + found[:arms],
        weights=weights[:arms],
        arm=arm,
        capture=capture,
        noise=moderated,
        capture_variance=ratios[0] * sigma2,
        drift_variance=ratios[1] * sigma2,
        slope=float(found[arms]) if len(found) > arms else 0.0,
        walk=walk,
        doubt=_doubt(projection / sigma2, noise, same_capture, walk) if spreads else (0.0, 0.0),
    )


def _doubt(projection: Floats, noise: Floats, same_capture: Floats, walk: Floats) -> tuple[float, float]:
    """Variances of the REML estimates of capture and drift variance, from the information matrix."""
    parts = [projection * noise, projection @ same_capture, projection @ walk]
    information = np.array([[0.5 * float(np.sum(a * b.T)) for b in parts] for a in parts])
    covariance = linalg.pinvh(information)
    return float(covariance[1, 1]), float(covariance[2, 2])


def _ratios(
    y: Floats, design: Floats, noise: Floats, same_capture: Floats, walk: Floats, several: bool
) -> tuple[float, float]:
    """Variances of capture offsets and of the drift's step over that of the noise, by REML.

    Without ``several`` captures of an arm, nor several windows of a capture, offsets can't be told.
    """
    bounds = [(np.log(_SMALLEST), np.log(_LARGEST))] * (2 if several else 1)

    def deviance(logs: Floats) -> float:
        capture, drift = (np.exp(logs[0]), np.exp(logs[1])) if several else (0.0, np.exp(logs[0]))
        return _deviance(np.diag(noise) + capture * same_capture + drift * walk, y, design)

    tries = [
        optimize.minimize(deviance, np.full(len(bounds), np.log(start)), method="L-BFGS-B", bounds=bounds)
        for start in _STARTS
    ]
    found = np.exp(min(tries, key=lambda t: float(t.fun)).x)
    found = np.where(found <= 1.01 * _SMALLEST, 0.0, found)
    return (float(found[0]), float(found[1])) if several else (0.0, float(found[0]))


def _deviance(covariance: Floats, y: Floats, design: Floats) -> float:
    """Minus twice the restricted log likelihood, the common variance profiled out."""
    factor = linalg.cholesky(covariance, lower=True, check_finite=False)
    white = linalg.solve_triangular(factor, np.column_stack([design, y]), lower=True, check_finite=False)
    triangle = linalg.qr(white, mode="r", check_finite=False)[0]
    arms = design.shape[1]
    residual = float(triangle[arms, arms] ** 2)
    free = len(y) - arms
    log_design = 2 * float(np.log(np.abs(np.diag(triangle)[:arms])).sum())
    log_covariance = 2 * float(np.log(np.diag(factor)).sum())
    return float(free * math.log(max(residual, 1e-300)) + log_covariance + log_design)


def _project(covariance: Floats, design: Floats) -> tuple[Floats, Floats]:
    """The matrix that takes levels out of data, weighted, and the one that makes levels of them."""
    inverse = linalg.cho_solve(linalg.cho_factor(covariance, lower=True), np.eye(len(covariance)))
    weighted = inverse @ design
    weights = linalg.solve(design.T @ weighted, weighted.T, assume_a="pos")
    return inverse - weighted @ weights, np.asarray(weights, np.float64)


def _walk(time_s: Floats) -> Floats:
    """Covariance of a random walk whose step between neighbouring windows has variance one.

    Its mean over the windows is taken out: levels then stand for the experiment as a whole.
    """
    order = np.sort(time_s)
    step = float(np.median(np.diff(order))) if len(order) > 1 else 1.0
    since = (time_s - order[0]) / (step if step > 0 else 1.0)
    covariance = np.minimum(since[:, None], since[None, :])
    centred = covariance - covariance.mean(axis=0)
    return np.asarray(centred - centred.mean(axis=1)[:, None], np.float64)


def _tells(covariate: Floats, arm: Indices, arms: int) -> bool:
    """Whether a covariate varies within arms, so that its coefficient can be told."""
    within = covariate - _mean(covariate, arm, arms)[arm]
    return bool(within @ within > 1e-12 * len(covariate)) and len(covariate) - arms >= 3


def _mean(values: Floats, arm: Indices, arms: int) -> Floats:
    return np.asarray(np.bincount(arm, values, arms) / np.bincount(arm, minlength=arms), np.float64)


def _without_spread(y: Floats, design: Floats, arm: Indices, capture: Indices) -> Fit:
    """Plain means where there are too few windows to tell of any spread: no interval comes of it."""
    weights = (design / design.sum(axis=0)).T
    arms = design.shape[1]
    unknown = Moderated(np.full(arms, np.nan), np.full(arms, np.nan))
    return Fit(weights @ y, weights, arm, capture, unknown, 0.0, 0.0, 0.0, np.zeros((len(y), len(y))), (0.0, 0.0))
