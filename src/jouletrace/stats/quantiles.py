"""Quantiles of distributions by ``scipy.special``: ``scipy.stats`` takes half a second to import, in every process.

``scipy.special`` takes a quarter of one: it is imported with the first quantile, which many commands don't need.
"""

from __future__ import annotations

import math


def normal(p: float) -> float:
    """The ``p`` quantile of the standard normal distribution."""
    from scipy.special import ndtri

    return float(ndtri(p))


SD_OVER_MAD = 1.482602218505602
"""Standard deviation of a normal distribution over its median absolute deviation: 1 / normal(0.75)."""


def student(p: float, df: float) -> float:
    """The ``p`` quantile of Student's t with ``df`` degrees of freedom, which may be infinite."""
    from scipy.special import stdtrit

    return float(stdtrit(df, p)) if math.isfinite(df) else normal(p)
