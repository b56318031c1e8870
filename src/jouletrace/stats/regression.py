"""Least squares with a weak prior, and a covariance that holds when what is left is correlated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Prior:
    """What is known before: ``rows @ x`` is about ``target``, each with unit variance.

    Attributes:
        rows: Shape (p, n).
        target: Shape (p,).
    """

    rows: Array
    target: Array

    @classmethod
    def of(cls, centre: Array, spread: Array) -> Prior:
        """Independent normal priors: mean and standard deviation of each unknown, shape (n,)."""
        return cls(np.diag(1 / spread), centre / spread)

    @classmethod
    def by(cls, centre: Array, covariance: Array) -> Prior:
        """A normal prior with a mean, shape (n,), and a covariance, shape (n, n)."""
        rows = np.linalg.inv(np.linalg.cholesky(covariance))
        return cls(rows, rows @ centre)

    def beside(self, other: Prior) -> Prior:
        """This on the first unknowns and ``other`` on those that follow."""
        rows = np.zeros((len(self.rows) + len(other.rows), self.rows.shape[1] + other.rows.shape[1]))
        rows[: len(self.rows), : self.rows.shape[1]] = self.rows
        rows[len(self.rows) :, self.rows.shape[1] :] = other.rows
        return Prior(rows, np.concatenate([self.target, other.target]))


def solve(design: Array, target: Array, prior: Prior, noise: float) -> Array:
    """The most likely ``x`` of ``target = design @ x + noise``, with a prior; shape (n,).

    Args:
        design: Shape (m, n).
        target: Shape (m,).
        prior: On ``x``.
        noise: Standard deviation of independent noise of the target.
    """
    rows = np.vstack([design, noise * prior.rows])
    return np.asarray(np.linalg.lstsq(rows, np.concatenate([target, noise * prior.target]), rcond=None)[0])


def equivalent_noise(left: Array) -> float:
    """Standard deviation of independent noise that would say as little about a mean as correlated residuals do.

    By the correlation of neighbours, as for an autoregressive process of first order: sqrt((1 + r) / (1 - r)) times
    their own standard deviation.
    """
    r = float(np.clip(np.corrcoef(left[:-1], left[1:])[0, 1], 0, 0.9)) if np.ptp(left) > 0 else 0.0
    return float(max(np.std(left), 1e-6) * np.sqrt((1 + r) / (1 - r)))


def posterior(design: Array, prior: Prior, noise: float) -> Array:
    """Covariance of ``x`` if the noise were independent, shape (n, n): what the design alone allows."""
    return np.asarray(np.linalg.inv(design.T @ design / noise**2 + prior.rows.T @ prior.rows))


def sandwich(design: Array, left: Array, prior: Prior, noise: float, lags: int) -> Array:
    """Covariance of ``x`` from the residuals themselves, however they are correlated and wherever they are larger.

    The bread is the curvature with the prior, the meat the scores' long-run covariance by Newey and West (1987) up to
    ``lags``, and the prior's own. A residual is taken as if its reading hadn't been used, by its leverage, as in HC3
    of MacKinnon and White (1985).

    Args:
        design: Shape (m, n), in order of time.
        left: Residuals, shape (m,).
        prior: On ``x``.
        noise: As in ``solve``.
        lags: Largest lag; correlations beyond it are taken for none.
    """
    bread = np.linalg.inv(design.T @ design + noise**2 * prior.rows.T @ prior.rows)
    leverage = np.einsum("ij,jk,ik->i", design, bread, design)
    scores = design * (left / (1 - np.minimum(leverage, 0.9)))[:, None]
    meat = scores.T @ scores
    for lag in range(1, min(lags, len(left) - 1) + 1):
        both = scores[:-lag].T @ scores[lag:]
        meat += (1 - lag / (lags + 1)) * (both + both.T)
    return np.asarray(bread @ (meat + noise**4 * prior.rows.T @ prior.rows) @ bread)


def quantile95(share: float) -> float:
    """How many standard errors of ``sandwich`` hold 95 %, where its lags are a share of all readings.

    1.96 for a share of none; more for others, as the long-run covariance is itself estimated (Kiefer and Vogelsang
    2005, Bartlett's kernel).
    """
    return 1.96 + 2.9694 * share + 0.4160 * share**2 - 0.5324 * share**3
