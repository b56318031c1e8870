"""Quantiles of distributions by ``scipy.special``: ``scipy.stats`` takes half a second to import, in every process."""

from __future__ import annotations

import math

from scipy.special import ndtri, stdtrit


def normal(p: float) -> float:
    """The ``p`` quantile of the standard normal distribution."""
    return float(ndtri(p))


SD_OVER_MAD = 1 / normal(0.75)
"""Standard deviation of a normal distribution over its median absolute deviation."""


def student(p: float, df: float) -> float:
    """The ``p`` quantile of Student's t with ``df`` degrees of freedom, which may be infinite."""
    return float(stdtrit(df, p)) if math.isfinite(df) else normal(p)
