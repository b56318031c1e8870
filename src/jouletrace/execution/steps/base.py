"""The interface of a step, which every pass of a profile runs repeatedly and times.

A step is one iteration of a workload prepared on a device: a captured CUDA graph, an eager
call, a call on the CPU, or a schedule of kernels on a simulated GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from jouletrace.execution.steps.cycles import Cycles


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval on the device's clock, in nanoseconds since the Unix epoch."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """Its length in seconds."""
        return (self.end_ns - self.start_ns) / 1e9


class Step(Protocol):
    """One iteration of a workload, ready to run."""

    mode: str
    """"graph", "eager", "compile", "cpu" or "simulated"."""

    def replay(self, n: int) -> Interval:
        """Run ``n`` iterations back to back and wait for them, with no other work in between.

        The interval starts when the first iteration may start and ends when the last one has
        ended; the device is idle before and after.
        """

    def latencies(self, n: int) -> NDArray[np.float64]:
        """Seconds of each of ``n`` iterations, shape (n,), by the device's own events.

        An iteration's latency runs from its start to its end on the device, with the host's
        launch included where the device had to wait for it.
        """

    def describe(self) -> dict[str, Any]:
        """Facts about its preparation for readers of the figures (capture, attention, threads)."""

    def close(self) -> None:
        """Free its memory on the device."""


@runtime_checkable
class InStreams(Protocol):
    """A step that runs several iterations at once."""

    streams: int
    """Number of concurrent iterations."""


@runtime_checkable
class CountsCycles(Protocol):
    """A step on a device whose cycle counters can be read."""

    def cycles(self) -> Cycles | None:
        """Values of the counters once the device has finished its queue; None if it doesn't report them."""
