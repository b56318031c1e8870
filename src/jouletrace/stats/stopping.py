"""When to stop measuring: a two-stage rule whose interval keeps its coverage.

Stopping as soon as an interval looks narrow enough favours windows that happened to agree, so
such intervals cover too seldom. Stein's two-stage procedure does not: the first stage's variance
alone decides how many windows are needed, and the final interval is built on that variance with
the first stage's degrees of freedom. For normal, independent windows its coverage is exact
(C. Stein, "A two-sample test for a linear hypothesis whose power is independent of the variance",
Annals of Mathematical Statistics 16, 1945).
"""

from __future__ import annotations

import math

import numpy as np

from jouletrace.arrays import Floats
from jouletrace.run import Estimate
from jouletrace.stats.quantiles import student


def windows_needed(first: Floats, target: float) -> int:
    """How many windows in all bring the half-width to ``target`` × mean.

    Args:
        first: Values of the first stage, shape (n0,), n0 ≥ 2.
        target: Wanted half-width relative to the mean.

    Returns:
        At least n0, and at most what no time suffices for. A mean of zero, or values that aren't finite, ask for
        nothing more.
    """
    n0 = len(first)
    mean = float(np.mean(first))
    if not math.isfinite(mean) or mean == 0:
        return n0
    t = student(0.975, n0 - 1)
    relative = t * float(np.std(first, ddof=1)) / abs(mean)
    # A target near the smallest float would make the quotient infinite.
    # at most 1e12 windows are asked for
    return max(n0, math.ceil((relative / max(target, relative / 1e6)) ** 2)) if relative > 0 else n0


def two_stage_estimate(values: Floats, first_stage: int, method: str = "windows") -> Estimate:
    """Mean with Stein's interval: the first stage's spread, all windows' mean.

    Windows that follow a trend or stick together carry less information than independent ones.
    Their effect shows as a spread of the mean beyond what the first stage predicted; where the
    spread of all windows is the larger one, it is used, so the interval never shrinks by drift.

    Args:
        values: One value a window, in the order measured, shape (n,).
        first_stage: How many of them made up the first stage.
        method: Goes into the estimate.
    """
    n = len(values)
    n0 = min(first_stage, n)
    if n == 0:
        return Estimate.null("no_windows", method)
    mean = float(np.mean(values))
    if n0 < 2:
        return Estimate(mean, None, None, n, method)
    half = _half_width(float(np.std(values[:n0], ddof=1)), n0, n)
    half = max(half, _half_width(float(np.std(values, ddof=1)), n, n))
    half *= math.sqrt(_inflation(values))
    return Estimate(mean, mean - half, mean + half, n, method)


def _half_width(sd: float, dof_windows: int, n: int) -> float:
    return student(0.975, dof_windows - 1) * sd / math.sqrt(n)


def _inflation(values: Floats) -> float:
    """Variance of the mean relative to independent windows, from the lag-1 autocorrelation.

    For an AR(1) series it is (1 + r) / (1 - r). The estimate of r from few windows is noisy and
    biased by -1/n, so only what exceeds its own standard error 1/√n counts.
    """
    n = len(values)
    centred = values - np.mean(values)
    power = float(np.dot(centred, centred))
    if n < 4 or power <= 0:
        return 1.0
    r = float(np.dot(centred[1:], centred[:-1])) / power + 1 / n
    excess = min(max(r - 1 / math.sqrt(n), 0.0), 0.9)
    return (1 + excess) / (1 - excess)
