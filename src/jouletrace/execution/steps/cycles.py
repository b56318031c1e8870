"""Readings of the SMs' cycle counters, which give the real clock of a GPU between two of them.

The driver reports the requested clock, in steps of 15 MHz. An H100 that reported 1795 MHz ran a step
at its power cap at 1656 MHz, and one that reported 1980 MHz ran another at 1974 or 1987 MHz at different times
(docs/results/clocks-h100.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Cycles:
    """A reading.

    Attributes:
        sm: Number of each SM that responded, ascending, shape (n,).
        count: Its cycle counter, shape (n,).
        time_ns: The GPU's own time of the reading, shape (n,).
    """

    sm: NDArray[np.int64]
    count: NDArray[np.int64]
    time_ns: NDArray[np.int64]

    def mean_mhz(self, earlier: Cycles) -> float | None:
        """Mean clock since an earlier reading, over the SMs that responded both times.

        Returns:
            In MHz; None if no SM responded twice, or a counter or time didn't advance.
        """
        _, now, then = np.intersect1d(self.sm, earlier.sm, return_indices=True)
        passed_ns, passed = self.time_ns[now] - earlier.time_ns[then], self.count[now] - earlier.count[then]
        if not len(passed) or passed_ns.min() <= 0 or passed.min() <= 0:
            return None
        return float(np.mean(passed / passed_ns) * 1e3)
