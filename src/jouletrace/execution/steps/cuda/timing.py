"""Timing of iterations on a GPU: the only module with events and synchronisation.

``launch`` is always a function that enqueues one iteration on the current stream and returns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.execution.steps.base import Interval

if TYPE_CHECKING:
    import torch

AHEAD = 256
"""Most iterations that the host enqueues ahead of the device while latencies are taken."""


def timed_replay(launch: Callable[[], None], n: int, device: torch.device) -> Interval:
    """Enqueue ``n`` iterations between two synchronisations, without any other work."""
    import torch

    with torch.cuda.device(device):
        torch.cuda.synchronize()
        start = time.time_ns()
        for _ in range(n):
            launch()
        torch.cuda.synchronize()
        return Interval(start, time.time_ns())


def iteration_seconds(launch: Callable[[], None], n: int, device: torch.device) -> NDArray[np.float64]:
    """Seconds of each of ``n`` iterations by CUDA events, shape (n,).

    Events lie on the device's timeline. The event that ends an iteration also starts
    the next, so that no time is lost in between and the latencies add up to the whole. Where the
    device waits for the host (eager mode at small batch), the wait belongs to the iteration whose
    kernels it waited for, and the latency is the end-to-end time of a caller. Where the host is
    ahead, it is the device's own time.

    Args:
        launch: Enqueues one iteration.
        n: Number of timed iterations. One more runs first, untimed, so that the first has a predecessor too.
        device: The GPU.
    """
    import torch

    with torch.cuda.device(device):
        event: Any = torch.cuda.Event  # untyped
        events = [event(enable_timing=True) for _ in range(n + 1)]
        torch.cuda.synchronize()
        launch()
        events[0].record()
        for i in range(1, n + 1):
            launch()
            events[i].record()
            # Queried rarely, and half a queue behind, so that the device never runs out of work.
            if i > AHEAD and i % (AHEAD // 2) == 1:
                events[i - AHEAD // 2].synchronize()
        torch.cuda.synchronize()
        milliseconds = [start.elapsed_time(end) for start, end in pairwise(events)]
    return np.array(milliseconds, dtype=np.float64) / 1e3
