"""Many hypotheses at once, and many variances at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from jouletrace.arrays import Floats

_MANY = 1e6

_TIE = 1e-9
"""Relative difference of two probabilities that rounding can make of one."""


def holm(p: Sequence[float], alpha: float) -> list[tuple[bool, float]]:
    """The hypotheses rejected with a family-wise error of ``alpha``, and the level of each.

    S. Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6, 1979; it
    holds whatever the dependence between the tests.

    Returns:
        For each: whether it is rejected, and the level at which it was tested. Those after the
        first that isn't rejected were tested at its level. Equal ones share the lowest of their levels.
    """
    order = sorted(range(len(p)), key=lambda i: p[i])
    results: list[tuple[bool, float]] = [(False, alpha)] * len(p)
    going, level = True, alpha
    for rank, i in enumerate(order):
        if going and not (rank and math.isclose(p[i], p[order[rank - 1]], rel_tol=_TIE)):
            level = alpha / (len(p) - rank)
            going = p[i] <= level
        results[i] = (going, level)
    return results


def spreads_differ(a: Floats, b: Floats, alpha: float) -> bool:
    """True if relative spreads of two series, shapes (m,) and (n,), differ by an F test; so if a mean may be zero."""
    from scipy import special  # slow to import, in every process

    if min(a.mean(), b.mean()) <= 0:
        return True
    square, other_square = (float(group.var(ddof=1) / group.mean() ** 2) for group in (a, b))
    if not square or not other_square:
        return bool(square or other_square)
    free = (len(a) - 1, len(b) - 1)
    return bool(
        2 * min(special.fdtr(*free, square / other_square), special.fdtrc(*free, square / other_square)) < alpha
    )


def moderated(variance: Floats, df: float) -> tuple[Floats, float]:
    """Variances of many series with few values each, shrunk towards a common value.

    A variance from three values is poorly determined, and one pooled over all series is wrong where these differ.
    Empirical Bayes lies in between: variances are assumed to be draws from a scaled inverse chi-square distribution,
    whose scale and width are estimated from all (G. K. Smyth, "Linear models and empirical Bayes methods",
    Statistical Applications in Genetics and Molecular Biology 3, 2004).

    Args:
        variance: Estimated variance of each series, shape (series,).
        df: Degrees of freedom of each.

    Returns:
        Moderated variances, shape (series,), and their degrees of freedom.
    """
    from scipy import special  # slow to import, in every process

    total, positive = df * len(variance), variance[variance > 0]
    pooled = np.full_like(variance, variance.mean())
    if len(positive) < 3:
        return pooled, total
    # For a scaled chi-square, log(s²) has mean log(σ²) + ψ(d/2) - log(d/2) and variance ψ'(d/2).
    logs = np.log(positive) - float(special.digamma(df / 2)) + math.log(df / 2)
    excess = float(logs.var(ddof=1)) - float(special.polygamma(1, df / 2))
    prior_df = 2 * _inverse_trigamma(excess) if excess > 1e-9 else math.inf
    if prior_df >= total:  # the prior can't be determined better than by all values
        return pooled, total
    prior = math.exp(float(logs.mean()) + float(special.digamma(prior_df / 2)) - math.log(prior_df / 2))
    return (prior_df * prior + df * variance) / (prior_df + df), min(prior_df + df, total)


def _inverse_trigamma(value: float) -> float:
    """The x at which ψ'(x) = ``value``, by Newton's method on 1/ψ', which is nearly straight."""
    from scipy import special  # slow to import, in every process

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(special.polygamma(2, x))
        x = min(max(x + step, x / 4), _MANY)
        if abs(step) < 1e-8 * x:
            break
    return x
