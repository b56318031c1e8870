"""Least squares with a weak prior, and a covariance that holds for correlated residuals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Prior:
    """Prior knowledge: ``rows @ x`` is ``target`` with unit variance, row by row."""

    rows: Array  # shape (p, n)
    target: Array  # shape (p,)

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
    """The most likely ``x`` of ``target = design @ x``, with a prior and noise of this size (its SD); shape (n,)."""
    from scipy.linalg import lstsq  # slow to import, in every process

    rows = np.vstack([design, noise * prior.rows])
    both = np.concatenate([target, noise * prior.target])
    return np.asarray(lstsq(rows, both, lapack_driver="gelsy", check_finite=False)[0])  # half the time of an SVD


def equivalent_noise(residuals: Array, least: float = 1e-6) -> float:
    """Standard deviation of the independent noise that leaves a mean as uncertain as these residuals do.

    It is sqrt((1 + r) / (1 - r)) times their standard deviation, with r the correlation of neighbours, as for a
    first-order autoregressive process. The deviation is ``least`` at least.
    """
    vary = np.ptp(residuals[:-1]) > 0 and np.ptp(residuals[1:]) > 0
    r = float(np.clip(np.corrcoef(residuals[:-1], residuals[1:])[0, 1], 0, 0.9)) if vary else 0.0
    return float(max(np.std(residuals), least) * np.sqrt((1 + r) / (1 - r)))


def posterior(design: Array, prior: Prior, noise: float) -> Array:
    """Covariance of ``x`` for independent noise, shape (n, n): the limit that the design sets."""
    return np.asarray(np.linalg.inv(design.T @ design / noise**2 + prior.rows.T @ prior.rows))


def sandwich(design: Array, residuals: Array, prior: Prior, noise: float, lags: int) -> Array:
    """Covariance of ``x`` from the residuals themselves; robust to correlation and to unequal variance.

    The bread is the curvature with the prior, the meat the scores' long-run covariance by Newey and West (1987) up to
    ``lags``, and the prior's own. Squares of residuals are divided by one minus their leverage, as in HC2 of MacKinnon
    and White (1985): a fit leaves less than the noise where few readings determine it.

    Args:
        design: Shape (m, n), in order of time.
        residuals: Shape (m,).
        prior: On ``x``.
        noise: As in ``solve``.
        lags: Largest lag; correlations beyond it are neglected.
    """
    from scipy.linalg import toeplitz  # slow to import, in every process

    bread = np.linalg.inv(design.T @ design + noise**2 * prior.rows.T @ prior.rows)
    leverage = ((design @ bread) * design).sum(axis=1)
    scores = design * (residuals / np.sqrt(1 - np.minimum(leverage, 0.9)))[:, None]
    meat = scores.T @ (toeplitz(np.maximum(1 - np.arange(len(residuals)) / (lags + 1), 0)) @ scores)
    return np.asarray(bread @ (meat + noise**4 * prior.rows.T @ prior.rows) @ bread)


def quantile95(share: float) -> float:
    """Standard errors of ``sandwich`` in a 95 % half-width, with lags up to this share of the readings.

    It is 1.96 at a share of 0 and grows with it: the long-run covariance is itself an estimate (Kiefer and Vogelsang
    2005, Bartlett's kernel).
    """
    return 1.96 + 2.9694 * share + 0.4160 * share**2 - 0.5324 * share**3
