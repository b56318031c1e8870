"""How long a window must be, from how readings spread within windows.

An H100's reading is made of samples some 0.8 ms apart. A step of about that length is seen at almost the same phase for
a whole reading, then at the next one: readings swing by 5 % with a beat of 0.1 s (DeiT-B, batch 1: 0.806 ms), and a
window that doesn't hold whole beats is off by what is left over, 0.8 % of half a second. What is left over doesn't grow
with the window: one twice as long is off by half of it, where two windows would be off by 0.7 of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_CALM = 0.02
"""Relative standard deviation of readings within a window up to which half a second will do."""

_MOST = 3.0
_FEWEST_WINDOWS = 80
"""Windows that an experiment must have time for."""


def spread_within(
    stamps_ns: NDArray[np.int64], power_w: Floats, edges_ns: Sequence[tuple[int, int]], lead_ns: int
) -> float:
    """Relative standard deviation of readings within windows: the median over these; 0 where none has three readings.

    Args:
        stamps_ns: Of the power record, shape (n,).
        power_w: Its readings, shape (n,).
        edges_ns: Start and end of each window.
        lead_ns: Left out at the start of each: readings that still tell of what was before.
    """
    found = []
    for start, end in edges_ns:
        inside = power_w[(stamps_ns >= start + lead_ns) & (stamps_ns <= end)]
        if len(inside) >= 3 and inside.mean() > 0:
            found.append(float(inside.std(ddof=1) / inside.mean()))
    return float(np.median(found)) if found else 0.0


def window_length(least_s: float, spread: float, budget_s: float) -> float:
    """Seconds of a window: ``least_s`` on a calm record, up to three times that where readings swing.

    Args:
        least_s: Of a calm record.
        spread: As of ``spread_within``.
        budget_s: Seconds that there are for the experiment.
    """
    wanted_s = least_s * min(max(spread / _CALM, 1.0), _MOST)
    return max(least_s, min(wanted_s, budget_s / _FEWEST_WINDOWS))
