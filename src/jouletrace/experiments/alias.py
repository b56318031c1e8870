"""What the sensor sees of a pause in every iteration, which differs from one period to the next.

An H100's reading is made of samples some 0.8 ms apart. A step that pauses has a period, and over a window samples see
some phases of it more often than others: always the same ones for the same period. Windows of one variant agree with
each other for all that. So the reference is run with several pauses: but for this its energy would lie on a straight
line, each nanosecond of pause costing the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.experiments.arms import NULL, REFERENCE, SLOPE, Arm
from jouletrace.experiments.mixed import Fit

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Alias:
    """By how much levels of paced arms are off, each by an amount of its own.

    Attributes:
        variance: Relative.
        df: Degrees of freedom of that; 0 where nothing tells.
    """

    variance: float = 0.0
    df: int = 0

    def of(self, gradient: Floats, index: Mapping[Arm, int]) -> tuple[float, float]:
        """What it adds to the variance of a sum over arms, and to the variance of that estimate.

        Args:
            gradient: By the logarithm of each arm's level, shape (arms,).
            index: Place of each arm in it.
        """
        if not self.variance:
            return 0.0, 0.0
        # A null experiment has its reference's own period.
        added = self.variance * sum(float(gradient[i]) ** 2 for arm, i in index.items() if arm.kind != NULL)
        return added, 2 * added**2 / self.df


def alias_of(index: Mapping[Arm, int], fit: Fit) -> Alias:
    """From references with three pauses or more; nothing without them."""
    arms = [arm for arm in index if arm.spin_ns and arm.kind in (REFERENCE, SLOPE)]
    df = len(arms) - 2
    if df < 1 or not np.all(np.isfinite(fit.noise.variance)):
        return Alias()
    places = np.array([index[arm] for arm in arms], np.intp)
    value = np.exp(fit.level[places])
    design = np.column_stack([np.ones(len(arms)), [arm.spin_ns / 1e6 for arm in arms]])
    left = np.eye(len(arms)) - design @ np.linalg.pinv(design)  # what a line through them leaves over
    off = left @ value / value
    own = 0.0
    for row in left * value[None, :] / value[:, None]:
        gradient = np.zeros(len(fit.level))
        gradient[places] = row
        own += fit.variance(gradient)[0]
    return Alias(max((float(off @ off) - own) / df, 0.0), df)
