"""95 % intervals: of means and medians, under autocorrelation, of differences, ratios and sums.

An interval here is what chance and the sensor's model leave open. The gain of a GPU's sensor,
which no software can see, is in none of them: it is stated apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from jouletrace.arrays import Floats
from jouletrace.errors import BadInputError
from jouletrace.run import Estimate
from jouletrace.stats.quantiles import student

_TAIL = 0.975
TOO_FEW = "too_few_independent"
"""Reason of a percentile that too few independent values have."""

Z95 = 1.959963984540054
"""Standard deviations of a normal distribution in a 95 % half-width."""


_SMALL = 1e-3
"""Share of the largest error from which on a rectangular one counts as such, and a normal one as wider than that: both
change a half-width by less than a millionth of it."""


def expanded(half: float, limits: Sequence[float]) -> float:
    """95 % half-width of a sum of independent errors: a normal one, and rectangular ones within limits.

    1.96 combined standard uncertainties would lie beyond the limit of a rectangular one alone (± 5.7 of ± 5), of which
    95 % are ± 4.75. So the sum has its own distribution (JCGM 101:2008, 5.2 and 6.4.2), here in closed form.

    Args:
        half: 95 % half-width of the normal error.
        limits: Largest sizes of the rectangular ones, in the same unit.
    """
    least = _SMALL * max([half, *limits])
    wide = [limit for limit in limits if limit > least]
    sd = max(
        math.hypot(half / Z95, *(limit / math.sqrt(3) for limit in limits if limit <= least)), least if wide else 0.0
    )
    corners = [
        (math.prod(signs), sum(sign * limit for sign, limit in zip(signs, wide, strict=True)))
        for signs in product((1, -1), repeat=len(wide))
    ]

    def within(k: float) -> float:
        """Probability of a sum of at most ``k``: the mean of the normal distribution function over the limits."""
        rises = sum(sign * _integral((k + at) / sd, len(wide)) for sign, at in corners)
        return rises * math.prod(sd / (2 * limit) for limit in wide)

    low, high = 0.0, Z95 * sd + sum(wide)
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) < _TAIL else (low, middle)
    return high


def _integral(z: float, times: int) -> float:
    """The distribution function of a standard normal variable at ``z``, integrated up to it so many times."""
    before, below = math.exp(-z * z / 2) / math.sqrt(2 * math.pi), (1 + math.erf(z / math.sqrt(2))) / 2
    for n in range(1, times + 1):
        before, below = below, (z * below + before) / n
    return below


def effective_n(values: ArrayLike) -> float:
    """Number of independent values that a correlated series is worth for its mean.

    The smaller of two: n / (1 + 2 ∑ρ) with the sum cut by the initial monotone sequence of Geyer
    (1992), and n (1 - ρ) / (1 + ρ) with the lag-one correlation corrected for its bias of
    -(1 + 4ρ) / n (Marriott and Pope 1954), which short series need. Never more than n, since
    negative correlation is too good to be believed, nor less than 1.
    """
    x = _finite(values)
    n = len(x)
    if n < 3:
        return float(n)
    x = x - x.mean()
    variance = float(x @ x)
    if variance <= 0:
        return float(n)
    rho = float(x[1:] @ x[:-1]) / variance
    rho = max(rho + (1 + 4 * rho) / n, 0.0)
    worth = n * (1 - rho) / (1 + rho)
    if n < 20:
        return float(np.clip(worth, 1.0, n))
    size = 2 << n.bit_length()  # a power of two, with as many zeros as values
    spectrum = np.fft.rfft(x, size)
    rho_all = np.fft.irfft(np.abs(spectrum) ** 2, size)[: n // 4 * 2] / variance
    pairs = rho_all.reshape(n // 4, 2).sum(axis=1)
    # Sums of neighbouring pairs of a reversible chain also decrease; from the first that isn't positive on none counts.
    total = 2 * float(np.maximum(np.minimum.accumulate(pairs), 0.0).sum()) - 1
    return float(np.clip(min(worth, n / max(total, 1.0)), 1.0, n))


def least_n(p: float) -> int:
    """Independent values that the interval of a percentile needs: of fewer, all are on one side of it in over 2.5 %."""
    return math.ceil(math.log(1 - _TAIL) / math.log(max(p, 1 - p)))


def percentile(values: Floats, p: float, method: str) -> Estimate:
    """The ``p`` percentile of finite values in their order, shape (n >= 1,), with a 95 % interval.

    The interval is the narrowest pair of order statistics beyond which the percentile lies with at most 2.5 %
    probability on either side, whatever the distribution (Conover, Practical Nonparametric Statistics, section 3.2).
    Values above a percentile come in groups: ranks are those of as many independent values as the series of "above it"
    is worth. If that is fewer than ``least_n``, even the largest may lie below: null (``TOO_FEW``), but for a median,
    the middle of few values too, which has no interval then.
    """
    value = float(np.quantile(values, p))
    worth = math.floor(effective_n(values > value) + 1e-9)
    if worth < least_n(p):
        return Estimate(value, n=len(values), method=method) if p == 0.5 else Estimate.null(TOO_FEW, method)
    from scipy.special import bdtr  # slow to import, in every process

    below = bdtr(np.arange(worth), worth, p)  # P(at most k of them lie below the percentile)
    low, high = np.searchsorted(below, 1 - _TAIL, side="right"), np.searchsorted(below, _TAIL)
    ends = np.quantile(values, [low / (worth + 1), (high + 1) / (worth + 1)], method="weibull")
    return Estimate(value, min(float(ends[0]), value), max(float(ends[1]), value), len(values), method)


def mean_estimate(
    values: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    correlated: bool = False,
    common_sd: float = 0.0,
    method: str = "windows",
) -> Estimate:
    """Mean with its t-interval.

    Args:
        values: One value a window, shape (n,), n >= 2.
        weights: Weights such as durations, shape (n,); equal if None.
        correlated: True if neighbours may be correlated (samples of a record, not windows).
        common_sd: Standard uncertainty that all values share, such as ``sd_model_j``: it does not
            shrink with n, and enters in quadrature.
        method: Goes into the estimate.

    Returns:
        The estimate; without an interval, hence null, for fewer than two values with a weight ("too_few_values").

    Raises:
        BadInputError: If a value isn't finite or weights don't fit.
    """
    x = _finite(values)
    if len(x) < 2:
        return Estimate.null("too_few_values", method)
    w = np.ones(len(x)) if weights is None else _finite(weights)
    if w.shape != x.shape or np.any(w < 0) or w.sum() <= 0:
        raise BadInputError(f"mean: {len(w)} weights do not go with {len(x)} values, or are negative or all zero")
    x, w = x[w > 0], w[w > 0] / w.sum()
    n = len(x)
    if n < 2:
        return Estimate.null("too_few_values", method)
    mean = float(w @ x)
    worth = max(effective_n(x), 1.5) if correlated else float(n)
    # s²/n with equal weights. Otherwise a value pulls the mean towards itself by its weight, which is undone, and few
    # heavy ones leave few degrees of freedom.
    variance = float((w / (1 - w)) ** 2 @ (x - mean) ** 2) * (n - 1) ** 2 / n / (worth - 1)
    free = min(worth, 1 / float(w @ w)) - 1
    half = float(np.hypot(student(_TAIL, max(free, 1.0)) * np.sqrt(variance), Z95 * common_sd))
    return Estimate(mean, mean - half, mean + half, n, method)


def standard_error(estimate: Estimate) -> tuple[float, float]:
    """Standard error and degrees of freedom behind an interval; infinitely many if n < 2."""
    free = float(estimate.n - 1) if estimate.n >= 2 else np.inf
    half = estimate.half_width or 0.0
    return half / student(_TAIL, free), free


def total(estimates: Sequence[Estimate], signs: Sequence[float] | None = None, method: str = "sum") -> Estimate:
    """Sum of independent estimates, each times its sign (or factor), by Welch and Satterthwaite.

    Null if any of them is, with its reason. It has the flags of all of them, and their budgets together.
    """
    factors = [1.0] * len(estimates) if signs is None else list(signs)
    flags = tuple(dict.fromkeys(flag for estimate in estimates for flag in estimate.flags))
    for estimate in estimates:
        if estimate.value is None:
            return replace(Estimate.null(estimate.reason or "no_value", method), flags=flags)
    parts = [standard_error(estimate) for estimate in estimates]
    value = sum(f * (e.value or 0.0) for f, e in zip(factors, estimates, strict=True))
    variances = [(f * sd) ** 2 for f, (sd, _) in zip(factors, parts, strict=True)]
    free = satterthwaite(variances, [free for _, free in parts])
    half = float(student(_TAIL, free) * np.sqrt(float(sum(variances))))
    n = min((e.n for e in estimates), default=0) if not np.isfinite(free) else round(free) + 1
    causes = dict.fromkeys(cause for estimate in estimates for cause in estimate.budget)
    each = list(zip(factors, estimates, strict=True))
    budget = {cause: math.hypot(*(f * e.budget.get(cause, 0.0) for f, e in each)) for cause in causes}
    return Estimate(value, value - half, value + half, n, method, flags=flags, budget=budget)


def difference(a: Estimate, b: Estimate, method: str = "difference") -> Estimate:
    """A - b of independent estimates, by Welch."""
    return total([a, b], [1.0, -1.0], method)


def ratio(a: Estimate, b: Estimate, method: str = "ratio") -> Estimate:
    """A / b of independent estimates, with Fieller's interval (Fieller 1954).

    Null ("denominator_near_zero") if the interval of ``b`` holds zero: then no finite interval
    covers the ratio. It is not symmetric about the value.
    """
    for estimate in (a, b):
        if estimate.value is None:
            return Estimate.null(estimate.reason or "no_value", method)
    x, y = a.value or 0.0, b.value or 0.0
    if y == 0:
        return Estimate.null("denominator_near_zero", method)
    (sx, fx), (sy, fy) = standard_error(a), standard_error(b)
    free = satterthwaite([sx**2, (x / y * sy) ** 2], [fx, fy])  # at the ratio itself
    ends = fieller(x, y, sx, sy, student(_TAIL, free))
    if ends is None:
        return Estimate.null("denominator_near_zero", method)
    return Estimate(x / y, *ends, min(a.n, b.n) if not np.isfinite(free) else round(free) + 1, method)


def fieller(x: float, y: float, sx: float, sy: float, t: float) -> tuple[float, float] | None:
    """Ends of the interval of x / y from standard errors of both and Student's quantile (Fieller 1954).

    None where no finite interval covers the ratio: that of ``y`` holds zero.
    """
    g = (t * sy / y) ** 2
    if g >= 1:
        return None
    value = x / y
    half = t / abs(y) * float(np.sqrt(max(sx**2 * (1 - g) + value**2 * sy**2, 0.0))) / (1 - g)
    middle = value / (1 - g)
    return min(middle - half, value), max(middle + half, value)


def satterthwaite(variances: Sequence[float], free: Sequence[float]) -> float:
    """Degrees of freedom of a sum of variances from those of each; infinity where all are 0 or known."""
    shrink = sum(v**2 / f for v, f in zip(variances, free, strict=True))
    return float(sum(variances)) ** 2 / shrink if shrink > 0 else np.inf


def _finite(values: ArrayLike) -> Floats:
    x = np.asarray(values, np.float64)
    if x.ndim != 1 or not np.all(np.isfinite(x)):
        raise BadInputError("interval: values must be one row of finite numbers; leave nulls out knowingly")
    return x
