"""Least squares with a weak prior, and the noise of correlated residuals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LinearPrior:
    """Prior knowledge: ``rows @ x`` is ``target`` with unit variance, row by row."""

    rows: Array  # shape (p, n)
    target: Array  # shape (p,)

    @classmethod
    def independent(cls, centre: Array, spread: Array) -> LinearPrior:
        """Independent normal priors: mean and standard deviation of each unknown, shape (n,)."""
        return cls(np.diag(1 / spread), centre / spread)

    @classmethod
    def by(cls, centre: Array, covariance: Array) -> LinearPrior:
        """A normal prior with a mean, shape (n,), and a covariance, shape (n, n)."""
        rows = np.linalg.inv(np.linalg.cholesky(covariance))
        return cls(rows, rows @ centre)

    def beside(self, other: LinearPrior) -> LinearPrior:
        """This on the first unknowns and ``other`` on those that follow."""
        rows = np.zeros((len(self.rows) + len(other.rows), self.rows.shape[1] + other.rows.shape[1]))
        rows[: len(self.rows), : self.rows.shape[1]] = self.rows
        rows[len(self.rows) :, self.rows.shape[1] :] = other.rows
        return LinearPrior(rows, np.concatenate([self.target, other.target]))


def solve(design: Array, target: Array, prior: LinearPrior, noise: float) -> Array:
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
