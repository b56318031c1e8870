"""A contrast of two means: interval of their ratio, tests, and the detectable change.

The ratio's interval is Fieller's: it contains the ratios r for which B - r A doesn't differ significantly from zero.
Interval and test therefore never contradict each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.run import Estimate
from jouletrace.run.parts import STORED_SCATTER
from jouletrace.sensor.gain import with_gain
from jouletrace.stats.interval import fieller, mean_estimate
from jouletrace.stats.quantiles import student

Floats = NDArray[np.float64]

METHOD = "runs"
ALPHA = 0.05
"""Probability of at least one false alarm among all verdicts of a comparison."""

POWER = 0.9
"""Probability with which a change of ``detectable`` size is detected."""


@dataclass(frozen=True)
class Group:
    """A metric of a part in each run of a side; NaN where it is missing.

    Attributes:
        value: Shape (runs,).
        within: Standard error that the run states, shape (runs,).
        reason: Why it is missing in every run.
        df: Degrees of freedom of the standard error of a single run.
        stored: True if the interval of a single run holds a stored scatter between runs.
    """

    value: Floats
    within: Floats
    reason: str = "not_measured"
    df: float = math.inf
    stored: bool = False

    @classmethod
    def of(cls, estimates: Sequence[Estimate], factor: float, df: float) -> Group:
        """A group from the figure of each run.

        Args:
            estimates: The figures.
            factor: What figures are multiplied by, so that sides refer to the same work.
            df: Most degrees of freedom that an interval may have: those of a stored scatter between runs in it.
        """
        value, within = np.full(len(estimates), np.nan), np.full(len(estimates), np.nan)
        reason = cls.reason
        for i, one in enumerate(estimates):
            if one.value is None:
                reason = one.reason if one.reason and one.reason != cls.reason else reason
                continue
            value[i] = factor * one.value
            if one.half_width is not None:
                df = min(df, one.n - 1 if one.n > 1 else math.inf)
                within[i] = factor * one.half_width / student(0.975, df)
        return cls(value, within, reason, df, all(STORED_SCATTER in one.flags for one in estimates))

    @property
    def known(self) -> Floats:
        """Values of the runs that have the metric."""
        return self.value[np.isfinite(self.value)]

    def mean(self) -> Estimate:
        """Mean of the runs with its t-interval; for a single run its own interval; null where all lack the metric."""
        known = self.known
        if len(known) > 1:
            return mean_estimate(known, method=METHOD)
        if not len(known):
            return Estimate.null(self.reason, METHOD)
        mean, half = float(known[0]), student(0.975, self.df) * float(self.within[np.isfinite(self.value)][0])
        if not math.isfinite(half):
            return Estimate(mean, n=1, method=METHOD)
        return Estimate(mean, mean - half, mean + half, 1, METHOD)


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
        t = student(1 - alpha / 2, self.df)
        ends = fieller(self.b, self.a, math.sqrt(self.var_b), math.sqrt(self.var_a), t) if self.a > 0 else None
        if ends is None:
            return Estimate.null("denominator_near_zero", METHOD)
        return with_gain(Estimate(self.b / self.a - 1, ends[0] - 1, ends[1] - 1, self._n, METHOD), self.gain)

    def difference(self, alpha: float) -> Estimate:
        """B - A with its interval of confidence 1 - ``alpha``."""
        half = student(1 - alpha / 2, self.df) * math.sqrt(self.var_a + self.var_b) + self.gain * abs(self.b)
        value = self.b - self.a
        return Estimate(value, value - half, value + half, self._n, METHOD)

    def detectable(self, alpha: float) -> float | None:
        """Smallest relative change that a test at ``alpha`` detects with probability ``POWER``; None if A is zero."""
        if self.a <= 0:
            return None
        quantiles = student(1 - alpha / 2, self.df) + student(POWER, self.df)
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
        from scipy import special  # slow to import, in every process

        return float(special.stdtr(self.df, -statistic) if math.isfinite(self.df) else special.ndtr(-statistic))
