"""A contrast of two means: interval of their ratio, tests, and the detectable change.

The ratio's interval is Fieller's: it contains the ratios r for which B - r A doesn't differ significantly from zero.
Interval and test therefore never contradict each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from jouletrace.run import Estimate
from jouletrace.stats.interval import fieller
from jouletrace.stats.quantiles import student

METHOD = "runs"
_SEEN = 4.0
"""Standard errors from which on A isn't zero, however few degrees of freedom they have."""

POWER = 0.9
"""Probability with which a change of ``detectable`` size is detected."""


@dataclass(frozen=True)
class Contrast:
    """Means of two sides and their uncertainty.

    Attributes:
        a, b: Means.
        var_a, var_b: Variances of these means.
        df: Degrees of freedom behind the variances; infinity where they are known.
        gain: Relative error that the sides don't share and chance doesn't explain, such as the gain of two sensors: B
            is up to 1 + gain times too high or too low.
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
        return self._tail(-self._statistic(ratio / (1 + self.gain)))

    def change(self, alpha: float) -> Estimate:
        """B / A - 1 with its interval of confidence 1 - ``alpha``.

        It has none where that would be without end, as of two runs that scatter, and is null where A may be zero.
        """
        ends = self._ends(alpha / 2)
        if ends is None and self.a > _SEEN * math.sqrt(self.var_a):
            return Estimate(self.b / self.a - 1, n=self._n, method=METHOD)
        if ends is None:
            return Estimate.null("denominator_near_zero", METHOD)
        return with_gain(Estimate(self.b / self.a - 1, ends[0] - 1, ends[1] - 1, self._n, METHOD), self.gain)

    def bound(self, level: float, *, lower: bool) -> float | None:
        """One-sided bound of B / A - 1 of confidence 1 - ``level``; None where A may be zero.

        It is the change at which ``p_above`` equals ``level``, or ``p_below`` for an upper bound.
        """
        ends = self._ends(level)
        if ends is None:
            return None
        return (ends[0] / (1 + self.gain) if lower else ends[1] * (1 + self.gain)) - 1

    def difference(self, alpha: float) -> Estimate:
        """B - A with its interval of confidence 1 - ``alpha``."""
        half = student(1 - alpha / 2, self.df) * math.sqrt(self.var_a + self.var_b)
        ends = [self.b * by - self.a for by in (1 / (1 + self.gain), 1 + self.gain)]
        return Estimate(self.b - self.a, min(ends) - half, max(ends) + half, self._n, METHOD)

    def detectable(self, alpha: float) -> float | None:
        """Smallest relative change that a test at ``alpha`` detects with probability ``POWER``; None if A is zero."""
        if self.a <= 0:
            return None
        quantiles = student(1 - alpha / 2, self.df) + student(POWER, self.df)
        return quantiles * math.sqrt(self.var_a + self.var_b) / self.a + self.gain

    def _ends(self, tail: float) -> tuple[float, float] | None:
        """The ends of B / A without gain, each with a probability of error of ``tail``; None where A may be zero."""
        t = student(1 - tail, self.df)
        ends = fieller(self.b, self.a, math.sqrt(self.var_b), math.sqrt(self.var_a), t) if self.a > 0 else None
        return ends if ends is None or self.b < 0 else (max(ends[0], 0.0), ends[1])  # nothing falls by over 100 %

    @property
    def _n(self) -> int:
        return round(self.df) + 1 if math.isfinite(self.df) else 0

    def _statistic(self, ratio: float) -> float:
        apart, variance = self.b - ratio * self.a, self.var_b + ratio**2 * self.var_a
        if variance > 0:
            return apart / math.sqrt(variance)
        return 0.0 if apart == 0 else math.copysign(math.inf, apart)

    def _tail(self, statistic: float) -> float:
        from scipy import special  # slow to import, in every process

        return float(special.stdtr(self.df, -statistic) if math.isfinite(self.df) else special.ndtr(-statistic))


def with_gain(change: Estimate, gain: float) -> Estimate:
    """A relative change (B / A - 1) with the gain error between two sensors in its interval."""
    if change.value is None or change.low is None or change.high is None:
        return change
    ends = [(1 + end) * by - 1 for end in (change.low, change.high) for by in (1 / (1 + gain), 1 + gain)]
    low, high = min(*ends, change.value), max(*ends, change.value)
    return Estimate(change.value, low, high, change.n, change.method)
