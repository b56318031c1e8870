"""How much successive windows of a run resemble one another, and what that makes of their mean.

Windows are taken as a first-order autoregressive series about the mean of their run and about the course that all
runs have in common, such as warming up: the correlation of two of them is rho to the power of their distance. One rho
is estimated for all runs, since a run has few windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from jouletrace.run import Estimate

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

METHOD = "lag-one autocorrelation"
CASES = 25
"""Values of rho, equally likely, by which what isn't known of it enters intervals."""

SCORES = ndtri((np.arange(CASES) + 0.5) / CASES)
"""Of these values, as of a normal distribution."""

_LEAST = 3
"""Windows of a run from which on it shows anything: of two, one is as far above their mean as the other below."""

_SURE = 0.99
_GRID = np.linspace(-0.5, 0.98, 297)


@dataclass(frozen=True)
class Autocorrelation:
    """What is known of rho, and what windows vary by about the mean of their run and the common course.

    Attributes:
        rho: Correlation of a window with the next in its run, at least 0: negative ones are too good to be believed.
        cases: Values that it may have, equally likely, in order, shape (CASES,); zeros where nothing is known.
        seen: Whether it is more than 0, with a probability of 99 %.
        windows: Windows of each run, shape (runs,).
        squares: Sum of squares of what windows vary by.
        sizes: Windows of a run, each number once, shape (k,).
        worth: How many runs of each size are behind ``squares``, less one where a common course was taken out.
    """

    rho: Estimate
    cases: Floats
    seen: bool
    windows: Codes
    squares: float
    sizes: Codes
    worth: Floats

    @cached_property
    def effective(self) -> float:
        """How many independent windows the windows of a run are worth for its mean, on average."""
        return float((self.windows / inflation(self.rho.value or 0.0, self.windows)).mean())

    def expected(self, rho: float) -> float:
        """What ``squares`` is expected to be, over the variance of a window."""
        return float((self.worth * (self.sizes - inflation(rho, self.sizes))).sum())

    def freedom(self, rho: float) -> float:
        """Degrees of freedom of ``squares``; n - 1 a run where rho is 0.

        Twice its squared mean over its variance, both from the eigenvalues of the windows' correlations less their
        means (Box 1954, Annals of Mathematical Statistics 25:290).
        """
        n, f = self.sizes, inflation(rho, self.sizes)
        if rho == 0:
            return self.expected(0.0)
        places = [np.arange(1, size + 1) for size in n]
        sums = [(((1 + rho - rho**i - rho ** (len(i) + 1 - i)) / (1 - rho)) ** 2).sum() for i in places]
        of_squares = n * inflation(rho**2, n) - 2 / n * np.array(sums) + f**2
        return float((self.worth * (n - f)).sum() ** 2 / (self.worth * of_squares).sum())


def inflation(rho: float, n: Codes) -> Floats:
    """Variance of the mean of n successive windows over that of as many independent ones, shape as ``n``.

    1 + 2 sum over k of (1 - k/n) rho^k (Bayley and Hammersley 1946, JRSS Supplement 8:184), summed up.
    """
    if rho == 0:
        return np.ones(len(n))
    return np.asarray((1 + rho) / (1 - rho) - 2 * rho * (1 - rho**n) / (n * (1 - rho) ** 2))


def autocorrelation(residuals: Floats, run: Codes) -> Autocorrelation:
    """Estimate rho from how windows lie about the mean of their run.

    Sums of products of neighbours and of squares, over all runs, are held against what they are expected to be for
    windows less their own mean, which makes neighbours look less alike than they are (Marriott and Pope 1954,
    Biometrika 41:390).

    Args:
        residuals: Each window less the mean of its run, those of a run in order of time, shape (n,).
        run: Of each, from 0 on, sorted, shape (n,).
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
        return Autocorrelation(nothing, np.zeros(CASES), False, windows, squares, sizes, worth)
    beside = np.where(of[1:] == of[:-1], x[1:] * x[:-1], 0.0)
    ratio = float(beside.sum()) / of_counted
    ratios = np.array([_ratio(rho, sizes[tell], worth[tell]) for rho in _GRID])

    def rho_of(values: Floats) -> Floats:
        return np.maximum(np.interp(values, ratios, _GRID), 0.0)

    value = float(rho_of(np.array([ratio]))[0])
    pairs = float((worth * (sizes - 1))[tell].sum())
    off = np.bincount(of[1:], beside, len(windows)) - ratio * np.bincount(of, x**2, len(windows))
    several = int(runs[tell].sum())
    between = float(off @ off) / of_counted**2 * several / max(several - 1, 1)  # by how runs differ
    sd = np.sqrt(max((1 - value**2) / pairs, between))
    low, high = (float(end) for end in rho_of(ratio + sd * ndtri(np.array([0.025, 0.975]))))
    seen = bool(ratio - float(np.interp(0.0, _GRID, ratios)) > ndtri(_SURE) / np.sqrt(pairs))
    rho = Estimate(value, min(low, value), max(high, value), len(x), METHOD)
    return Autocorrelation(rho, rho_of(ratio + sd * SCORES), seen, windows, squares, sizes, worth)


def _course(residuals: Floats, run: Codes, windows: Codes) -> Floats:
    """What runs of as many windows have in common at each place in time, shape as ``residuals``; 0 of single runs."""
    place = np.arange(len(run)) - (np.cumsum(windows) - windows)[run]
    _, key = np.unique(windows[run] * (int(windows.max(initial=0)) + 1) + place, return_inverse=True)
    count = np.bincount(key)
    return np.asarray(np.where(count > 1, np.bincount(key, residuals) / count, 0.0)[key])


def _ratio(rho: float, sizes: Codes, worth: Floats) -> float:
    """What the sum of products of neighbours over the sum of squares comes to."""
    f = inflation(rho, sizes)
    first = (1 - rho**sizes) / (1 - rho)  # sum of the correlations of the first window with all of its run
    products = (sizes - 1) * rho - f * (sizes + 1) / sizes + 2 * first / sizes
    return float((worth * products).sum() / (worth * (sizes - f)).sum())
