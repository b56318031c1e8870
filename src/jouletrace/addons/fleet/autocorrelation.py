"""Correlation of successive windows of a run, and its effect on the uncertainty of their mean.

Windows are modelled as a first-order autoregressive series about the mean of their run and about a course common to
all runs, such as warming up: the correlation of two windows is rho to the power of their distance. A single rho
is estimated for all runs, since a run has few windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from jouletrace.run import Estimate

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

METHOD = "lag-one autocorrelation"
_LEAST = 3
"""Least number of windows of a run for an estimate: of two, one lies as far above their mean as the other below."""

_SURE = 0.99
_GRID = np.linspace(-0.5, 0.98, 297)


@dataclass(frozen=True)
class Autocorrelation:
    """The estimate of rho, and the variation of windows about the mean of their run and the common course.

    Attributes:
        rho: Correlation of a window with the next one in its run, at least 0: negative estimates aren't credible.
        seen: Whether it exceeds 0 with a probability of 99 %.
        windows: Number of windows of each run, shape (runs,).
        squares: Sum of squares of the windows' deviations.
        sizes, worth: The distinct numbers of windows per run, shape (k,), and the number of runs with each, less one
            where a common course was removed.
        ratio, sd: Sum of products of neighbours over ``squares``, and its standard deviation; 0 where they are unknown.
        ratios: Expected ratio for each correlation of the grid.
    """

    rho: Estimate
    seen: bool
    windows: Codes
    squares: float
    sizes: Codes
    worth: Floats
    ratio: float = 0.0
    sd: float = 0.0
    ratios: Floats | None = None

    @property
    def effective(self) -> float:
        """Number of independent windows that determine a run's mean equally well, on average."""
        return float((self.windows / inflation(self.rho.value or 0.0, self.windows)).mean())

    def draws(self, rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        """Possible values of rho, and normal scores of the possible ``squares`` for each; each of shape (n,).

        A record whose windows happen to be less correlated than rho also happens to vary less: the correlation of
        these two deviations is about rho itself (0.6 to 0.9 in simulations with 0.7 and 0.9).
        """
        score, other = rng.standard_normal((2, n))
        if self.ratios is None:
            return np.zeros(n), other
        rho = np.maximum(np.interp(self.ratio + self.sd * score, self.ratios, _GRID), 0.0)
        value = self.rho.value or 0.0
        return rho, np.sqrt(1 - value**2) * other - value * score

    def expected(self, rho: Floats) -> Floats:
        """Expectation of ``squares`` over the variance of a window, for each rho."""
        return np.asarray((self.sizes - inflation(rho[:, None], self.sizes)) @ self.worth)

    def freedom(self, rho: Floats) -> Floats:
        """Degrees of freedom of ``squares`` for each rho; n - 1 per run where it is 0.

        Twice its squared mean over its variance (Box 1954, Annals of Mathematical Statistics 25:290); the windows at
        both ends of a run are treated like those in its middle.
        """
        column = rho[:, None]
        of_squares = self.sizes * inflation(column**2, self.sizes) - inflation(column, self.sizes) ** 2
        return np.asarray(self.expected(rho) ** 2 / (of_squares @ self.worth))


def inflation(rho: ArrayLike, n: Codes) -> Floats:
    """Variance of the mean of n successive windows over that of n independent ones.

    1 + 2 sum over k of (1 - k/n) rho^k (Bayley and Hammersley 1946, JRSS Supplement 8:184), summed up.
    """
    rho = np.asarray(rho, np.float64)
    return np.asarray((1 + rho) / (1 - rho) - 2 * rho * (1 - rho**n) / (n * (1 - rho) ** 2))


def autocorrelation(residuals: Floats, run: Codes) -> Autocorrelation:
    """Estimate rho from the deviations of windows from the mean of their run.

    Sums of products of neighbours and of squares, over all runs, are compared with their expectations for
    windows less their own mean, which reduces the apparent correlation of neighbours (Marriott and Pope 1954,
    Biometrika 41:390).

    Args:
        residuals: Each window less the mean of its run, in order of time within a run, shape (n,).
        run: Run of each window, from 0 on, sorted, shape (n,).
    """
    windows = np.bincount(run)
    x = residuals - _course(residuals, run, windows)
    sizes, runs = np.unique(windows, return_counts=True)
    worth = np.where(runs > 1, runs - 1.0, 1.0)
    squares = float(x @ x)
    counted = (windows >= _LEAST)[run]
    x, of, tell = x[counted], run[counted], sizes >= _LEAST
    of_counted = float(x @ x)
    if of_counted <= 0:
        nothing = Estimate.null("no_spread" if len(x) else "too_few_windows", METHOD)
        return Autocorrelation(nothing, False, windows, squares, sizes, worth)
    beside = np.where(of[1:] == of[:-1], x[1:] * x[:-1], 0.0)
    ratio = float(beside.sum()) / of_counted
    ratios = _ratios(sizes[tell], worth[tell])
    pairs = float((worth * (sizes - 1))[tell].sum())
    off = np.bincount(of[1:], beside, len(windows)) - ratio * np.bincount(of, x**2, len(windows))
    several = int(runs[tell].sum())
    between = float(off @ off) / of_counted**2 * several / max(several - 1, 1)  # from differences between runs
    value = max(float(np.interp(ratio, ratios, _GRID)), 0.0)
    sd = float(np.sqrt(max((1 - value**2) / pairs, between)))
    low, high = np.maximum(np.interp(ratio + sd * ndtri([0.025, 0.975]), ratios, _GRID), 0.0).tolist()
    seen = bool(ratio - float(np.interp(0.0, _GRID, ratios)) > ndtri(_SURE) / np.sqrt(pairs))
    rho = Estimate(value, min(low, value), max(high, value), len(x), METHOD)
    return Autocorrelation(rho, seen, windows, squares, sizes, worth, ratio, sd, ratios)


def _course(residuals: Floats, run: Codes, windows: Codes) -> Floats:
    """The common course of runs with equally many windows, shape as ``residuals``; 0 for single runs."""
    place = np.arange(len(run)) - (np.cumsum(windows) - windows)[run]
    _, key = np.unique(windows[run] * (int(windows.max(initial=0)) + 1) + place, return_inverse=True)
    count = np.bincount(key)
    return np.asarray(np.where(count > 1, np.bincount(key, residuals) / count, 0.0)[key])


def _ratios(sizes: Codes, worth: Floats) -> Floats:
    """Expected ratio of the sum of products of neighbours to that of squares, for each rho of the grid."""
    rho = _GRID[:, None]
    f = inflation(rho, sizes)
    first = (1 - rho**sizes) / (1 - rho)  # sum of the correlations of the first window with all windows of its run
    products = (sizes - 1) * rho - f * (sizes + 1) / sizes + 2 * first / sizes
    return np.asarray((products @ worth) / ((sizes - f) @ worth))
