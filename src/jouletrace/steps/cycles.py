"""Readings of the SMs' cycle counters: the clock at which a GPU really ran between two of them.

What the driver reports is the clock that was asked for, in steps of 15 MHz. An H100 that reports 1980 MHz ran a step
that fills it at 1925 MHz, and one step at 1978.0 or 1980.1 MHz from one moment to the next, at 1 % more power.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Cycles:
    """A reading.

    Attributes:
        sm: Number of each SM that answered, ascending, shape (n,).
        count: Its cycle counter, shape (n,).
        time_ns: The GPU's own time when it was read, shape (n,).
    """

    sm: NDArray[np.int64]
    count: NDArray[np.int64]
    time_ns: NDArray[np.int64]

    def mean_mhz(self, earlier: Cycles) -> float | None:
        """Mean clock since an earlier reading, over the SMs that answered both times; None if none did."""
        _, now, then = np.intersect1d(self.sm, earlier.sm, return_indices=True)
        passed_ns = self.time_ns[now] - earlier.time_ns[then]
        if not len(passed_ns) or passed_ns.min() <= 0:
            return None
        return float(np.mean((self.count[now] - earlier.count[then]) / passed_ns) * 1e3)
