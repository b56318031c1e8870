"""Correlated noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def wander(rng: np.random.Generator, count: int, step: float, correlation: float) -> NDArray[np.float64]:
    """A stationary random walk (Ornstein and Uhlenbeck's) of mean 0 and standard deviation 1.

    Args:
        rng: Draws it.
        count: Number of values.
        step: Distance from one value to the next.
        correlation: Distance at which values correlate by 1/e, in the unit of ``step``.
    """
    from scipy.signal import lfilter  # slow to import

    keep = np.exp(-step / correlation)
    noise = rng.standard_normal(count) * np.sqrt(1 - keep**2)
    noise[0] /= np.sqrt(1 - keep**2)
    return np.asarray(lfilter([1.0], [1.0, -keep], noise), dtype=np.float64)
