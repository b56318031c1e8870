"""Variances of many arms that have few windows each.

A variance from two or three windows is worth little, and one pooled over all arms is wrong where
arms differ (some variants of a capped step fall below the cap and are far quieter). Between the
two stands empirical Bayes: arms' variances are taken as draws from a scaled inverse chi-square
distribution, whose scale and width all arms tell together; each arm's own variance is then
shrunk towards it, by as much as the arms are alike (G. K. Smyth, "Linear models and empirical
Bayes methods", Statistical Applications in Genetics and Molecular Biology 3, 2004).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, polygamma

Floats = NDArray[np.float64]

_LEAST_DF = 0.5
_MANY = 1e6


@dataclass(frozen=True)
class Moderated:
    """Variances shrunk towards what is common.

    Attributes:
        variance: Of each arm, shape (arms,).
        df: Degrees of freedom of each, shape (arms,).
    """

    variance: Floats
    df: Floats


def moderate(variance: Floats, df: Floats) -> Moderated:
    """Shrink variances towards a common one.

    Args:
        variance: Estimated variance of each arm, shape (arms,); ignored where ``df`` is 0.
        df: Its degrees of freedom, shape (arms,), whole numbers or not.

    Returns:
        Moderated variances. With no degrees of freedom at all they are NaN with none.
    """
    total = float(df.sum())
    if total <= 0:
        return Moderated(np.full_like(variance, np.nan), np.zeros_like(df))
    pooled = float(df @ np.where(df > 0, variance, 0.0)) / total
    tells = (df >= _LEAST_DF) & (variance > 0)
    if pooled <= 0 or tells.sum() < 3:
        return Moderated(np.full_like(variance, pooled), np.full_like(df, total))
    # Of a scaled chi-square, log(s²) has mean log(σ²) + ψ(d/2) - log(d/2) and variance ψ'(d/2).
    half = df[tells] / 2
    logs = np.log(variance[tells]) - digamma(half) + np.log(half)
    own = polygamma(1, half)
    weight = 1 / own
    centre = float(weight @ logs / weight.sum())
    # What the logs spread beyond their own noise, by moments (DerSimonian and Laird 1986).
    spread = float(weight @ (logs - centre) ** 2) - (len(logs) - 1)
    excess = spread / float(weight.sum() - weight @ weight / weight.sum())
    if excess <= 1e-9:
        return Moderated(np.full_like(variance, pooled), np.full_like(df, total))
    prior_df = 2 * _inverse_trigamma(excess)
    if prior_df >= total:  # the prior can't be known better than by all windows
        return Moderated(np.full_like(variance, pooled), np.full_like(df, total))
    weight = 1 / (own + excess)
    centre = float(weight @ logs / weight.sum())
    prior = math.exp(centre + float(digamma(prior_df / 2)) - math.log(prior_df / 2))
    known = np.where(df > 0, variance, 0.0)
    return Moderated((prior_df * prior + df * known) / (prior_df + df), np.minimum(prior_df + df, total))


def _inverse_trigamma(value: float) -> float:
    """The x at which ψ'(x) = ``value``, by Newton's method on 1/ψ', which is nearly straight."""
    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x = min(max(x + step, x / 4), _MANY)
        if abs(step) < 1e-8 * x:
            break
    return x
