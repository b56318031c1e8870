"""Clocks of hosts against that of the scheduler: a log whose GPUs work later, or earlier, than their jobs run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.signal import correlate

from jouletrace.arrays import Floats, Ints

REACH_S = 14 * 3600
"""Differences that are looked for: those of time zones, too."""

_FEWEST_JOBS, _FEWEST_STEPS = 3, 2
"""Jobs by which a difference is known, and the least one in periods of the readings."""

_CLEAR = 0.25
"""A difference is stated if moving the log gains so much of the time that would be gained if GPUs worked all through
their jobs: they pause, and begin with a lead-in, which shifts where jobs seem to begin but not where they end."""


class Works(NamedTuple):
    """When a GPU works, and when its jobs run.

    Attributes:
        time_ns: Times of its readings, shape (n,).
        sign: 1.0 for a reading at work, -1.0 at rest, shape (n,).
        jobs: Starts and ends of its jobs in ns.
    """

    time_ns: Ints
    sign: Floats
    jobs: Sequence[tuple[int, int]]


def clock_difference_s(gpus: Sequence[Works]) -> int:
    """Seconds by which the clock of a host is ahead of the one of jobs; 0 if no difference is seen.

    By it GPUs work while their jobs run, and rest otherwise, for the longest time.
    """
    if sum(len(gpu.jobs) for gpu in gpus) < _FEWEST_JOBS:
        return 0
    step_ns = max(float(np.median(np.concatenate([np.diff(gpu.time_ns) for gpu in gpus]))), 1e9)
    reach = round(REACH_S * 1e9 / step_ns)
    agrees = np.zeros(2 * reach + 1)
    for gpu in gpus:
        grid = np.arange(gpu.time_ns[0], gpu.time_ns[-1], step_ns)
        latest = np.searchsorted(gpu.time_ns, grid, side="right") - 1
        seen = np.where(grid - gpu.time_ns[latest] < 2 * step_ns, gpu.sign[latest], 0.0)
        wide = grid[0] + np.arange(-reach, len(grid) + reach) * step_ns
        has_job = np.full(len(wide), -1.0)
        for start, end in gpu.jobs:
            has_job[slice(*np.searchsorted(wide, (start, end)))] = 1.0
        agrees += correlate(has_job, seen, mode="valid", method="fft")
    ahead = reach - int(np.argmax(agrees))
    lasts = [min(abs(ahead), (end - start) / step_ns) for gpu in gpus for start, end in gpu.jobs]
    # At each of two edges so long without agreement becomes as long with it
    clear = agrees.max() - agrees[reach] >= _CLEAR * 4 * sum(lasts)
    return round(ahead * step_ns / 1e9) if clear and abs(ahead) >= _FEWEST_STEPS else 0
