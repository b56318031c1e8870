"""The rows to judge: a metric of a unit in each run of both sides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.compare.contrast import METHOD
from jouletrace.compare.match import Key
from jouletrace.run import Estimate
from jouletrace.stats.interval import mean_estimate
from jouletrace.stats.quantiles import student

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Figures:
    """A metric of a unit in each run of a side; NaN where it is missing.

    Attributes:
        value: Shape (runs,).
        within: Standard error that the run states, shape (runs,).
        reason: Why it is missing in every run.
    """

    value: Floats
    within: Floats
    reason: str = "not_measured"

    def scaled(self, factor: float) -> Figures:
        """The same figures per another count."""
        return Figures(self.value * factor, self.within * factor, self.reason)

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
        mean, half = float(known[0]), 1.96 * float(self.within[np.isfinite(self.value)][0])
        if not math.isfinite(half):
            return Estimate(mean, n=1, method=METHOD)
        return Estimate(mean, mean - half, mean + half, 1, METHOD)


def of_side(estimates: Sequence[Estimate | None]) -> Figures:
    """A metric from the figures of each run."""
    value, within = np.full(len(estimates), np.nan), np.full(len(estimates), np.nan)
    reason = "not_measured"
    for i, one in enumerate(estimates):
        if one is None or one.value is None:
            reason = (one.reason if one is not None else None) or reason
            continue
        value[i] = one.value
        if one.half_width is not None:
            within[i] = one.half_width / (student(0.975, one.n - 1) if one.n > 1 else 1.96)
    return Figures(value, within, reason)


@dataclass(frozen=True)
class Entry:
    """A row to judge.

    Attributes:
        key: The unit, as in B.
        metric: Name in ``run.metrics``.
        a, b, past: Figures of both sides and of the history.
        flags: How the unit differs between the sides.
    """

    key: Key
    metric: str
    a: Figures
    b: Figures
    past: Figures
    flags: tuple[str, ...]

    @property
    def measured(self) -> bool:
        """Whether both sides have a figure."""
        return bool(len(self.a.known) and len(self.b.known))

    @property
    def stated(self) -> bool:
        """Whether a side states a figure, or why it is missing."""
        return bool(len(self.a.known) or len(self.b.known)) or self.a.reason != "not_measured"
