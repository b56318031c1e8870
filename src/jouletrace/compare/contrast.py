"""A contrast of two means: interval of their ratio, tests, and the detectable change.

The ratio's interval is Fieller's (Fieller 1954): it contains the ratios r for which B - r A doesn't differ
significantly from zero. Interval and test therefore never contradict each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import special

from jouletrace.run import Estimate
from jouletrace.sensor.gain import with_gain
from jouletrace.stats.quantiles import student

METHOD = "runs"
ALPHA = 0.05
"""Probability of at least one false alarm among all verdicts of a comparison."""

POWER = 0.9
"""Probability with which a change of ``detectable`` size is detected."""


@dataclass(frozen=True)
class Contrast:
    """Means of two sides and their uncertainty.

    Attributes:
        a, b: Means.
        var_a, var_b: Variances of these means.
        df: Degrees of freedom behind the variances; infinity where they are known.
        gain: Relative error that the sides don't share and chance doesn't explain: the gain of two sensors.
    """

    a: float
    b: float
    var_a: float
    var_b: float
    df: float
    gain: float = 0.0

    def p(self, ratio: float = 1.0) -> float:
        """Two-sided probability of such a difference if B were ``ratio`` times A; sensor gain is excluded."""
        return min(1.0, 2 * self._tail(abs(self._statistic(ratio))))

    def p_above(self, ratio: float) -> float:
        """Probability of this or a higher B if it were at most ``ratio`` times A, whatever the gain."""
        return self._tail(self._statistic(ratio * (1 + self.gain)))

    def p_below(self, ratio: float) -> float:
        """Probability of this or a lower B if it were at least ``ratio`` times A, whatever the gain."""
        return self._tail(-self._statistic(ratio * (1 - self.gain)))

    def change(self, alpha: float) -> Estimate:
        """B / A - 1 with its interval of confidence 1 - ``alpha``; null where A may be zero."""
        t = self._quantile(1 - alpha / 2)
        if self.a <= 0 or (near := t**2 * self.var_a / self.a**2) >= 1:
            return Estimate.null("denominator_near_zero", METHOD)
        value = self.b / self.a
        half = t / self.a * math.sqrt(max(self.var_b * (1 - near) + value**2 * self.var_a, 0.0)) / (1 - near)
        middle = value / (1 - near)
        low, high = min(middle - half, value), max(middle + half, value)
        return with_gain(Estimate(value - 1, low - 1, high - 1, self._n, METHOD), self.gain)

    def difference(self, alpha: float) -> Estimate:
        """B - A with its interval of confidence 1 - ``alpha``."""
        half = self._quantile(1 - alpha / 2) * math.sqrt(self.var_a + self.var_b) + self.gain * abs(self.b)
        value = self.b - self.a
        return Estimate(value, value - half, value + half, self._n, METHOD)

    def detectable(self, alpha: float) -> float | None:
        """Smallest relative change that a test at ``alpha`` detects with probability ``POWER``; None if A is zero."""
        if self.a <= 0:
            return None
        quantiles = self._quantile(1 - alpha / 2) + self._quantile(POWER)
        return quantiles * math.sqrt(self.var_a + self.var_b) / self.a + self.gain

    @property
    def _n(self) -> int:
        return round(self.df) + 1 if math.isfinite(self.df) else 0

    def _statistic(self, ratio: float) -> float:
        apart, variance = self.b - ratio * self.a, self.var_b + ratio**2 * self.var_a
        if variance > 0:
            return apart / math.sqrt(variance)
        return 0.0 if apart == 0 else math.copysign(math.inf, apart)

    def _tail(self, statistic: float) -> float:
        return float(special.stdtr(self.df, -statistic) if math.isfinite(self.df) else special.ndtr(-statistic))

    def _quantile(self, share: float) -> float:
        return student(share, self.df)


def holm(p: Sequence[float], alpha: float) -> list[tuple[bool, float]]:
    """The hypotheses rejected with a family-wise error of ``alpha``, and the level of each.

    S. Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6, 1979; it
    holds whatever the dependence between the tests.

    Returns:
        For each: whether it is rejected, and the level at which it was tested. Those after the
        first that isn't rejected were tested at its level.
    """
    order = sorted(range(len(p)), key=lambda i: p[i])
    found: list[tuple[bool, float]] = [(False, alpha)] * len(p)
    going, level = True, alpha
    for rank, i in enumerate(order):
        if going:
            level = alpha / (len(p) - rank)
            going = p[i] <= level
        found[i] = (going, level)
    return found
