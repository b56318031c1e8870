"""The interface of a step, which every pass of a profile runs repeatedly and times.

A step is one iteration of a workload prepared on a device: a captured CUDA graph, an eager
call, a call on the CPU, or a schedule of kernels on a simulated GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from jouletrace.arrays import Floats

if TYPE_CHECKING:
    from jouletrace.simulator.boards import Schedule


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

    def latencies(self, n: int) -> Floats:
        """Seconds of each of ``n`` iterations, shape (n,), by the device's own events.

        An iteration's latency runs from its start to its end on the device, with the host's
        launch included where the device had to wait for it.
        """

    def describe(self) -> dict[str, Any]:
        """Facts about its preparation for readers of the figures (capture, attention, threads)."""

    def close(self) -> None:
        """Free its memory on the device."""


@runtime_checkable
class FlushedStep(Protocol):
    """A step that flushes the L2 cache before each iteration, also within ``replay``."""

    def flush_only(self) -> Step:
        """A step whose iterations consist of the flush alone."""


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


@dataclass(frozen=True)
class Cycles:
    """A reading.

    Attributes:
        sm: Number of each SM that responded, ascending, shape (n,).
        count: Its cycle counter, shape (n,).
        time_ns: The GPU's own time of the reading, shape (n,).
    """

    sm: Ints
    count: Ints
    time_ns: Ints

    def mean_mhz(self, earlier: Cycles) -> float | None:
        """Mean clock in MHz since an earlier reading, over the SMs that responded both times.

        None if no SM responded twice, or a counter or time didn't advance.
        """
        _, now, then = np.intersect1d(self.sm, earlier.sm, return_indices=True)
        passed_ns, passed = self.time_ns[now] - earlier.time_ns[then], self.count[now] - earlier.count[then]
        if not len(passed) or passed_ns.min() <= 0 or passed.min() <= 0:
            return None
        return float(np.mean(passed / passed_ns) * 1e3)


T = TypeVar("T")


def counted_replay(step: Step, n: int) -> tuple[Interval, float | None]:
    """Run ``n`` iterations; see ``counted``.

    Returns:
        The result of ``replay``, and the mean SM clock.
    """
    return counted(step, lambda: step.replay(n))


def counted(step: Step, replay: Callable[[], T]) -> tuple[T, float | None]:
    """Run iterations, and read the device's cycle counters before and after, outside of their interval.

    The first reading on a device loads the kernel that reads them: make it before a ramp, not between ramp and window.

    Returns:
        The result of ``replay``, and the mean SM clock between the readings in MHz; None where it can't be determined.
    """
    if not isinstance(step, CountsCycles):
        return replay(), None
    before = step.cycles()
    ran = replay()
    after = step.cycles() if before is not None else None
    return ran, after.mean_mhz(before) if before is not None and after is not None else None


@runtime_checkable
class Simulated(Protocol):
    """A step on a simulated GPU."""

    @property
    def schedule(self) -> Schedule:
        """The kernels of an iteration, as the GPU runs them."""


def schedule_of(step: Step) -> Schedule:
    """The kernels of an iteration of a step on a simulated GPU."""
    assert isinstance(step, Simulated)
    return step.schedule


Ints = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Node:
    """A node of a model that a runtime executes; nodes fused into others are excluded.

    Attributes:
        name: Its name in the runtime's own graph.
        op: Kind of operator.
        shapes: Shapes and types, or the implementation, as far as the runtime reports them.
    """

    name: str
    op: str
    shapes: str = ""


@dataclass(frozen=True)
class NodeTimes:
    """Executions of nodes in iterations with the runtime's counters on.

    Attributes:
        nodes: Every node that ran.
        node: Index into ``nodes`` of each execution, shape (m,).
        iteration: Number of the iteration of each execution, shape (m,).
        start_ns, end_ns: Start and end of each execution since the Unix epoch, shape (m,).
        began_ns, ended_ns: Start and end of each iteration, shape (n,).
        starts_known: Whether starts were reported; else executions are laid end to end, in their order.
        mean_of: Number of iterations of which each iteration here is the mean, where the runtime reports only means.
    """

    nodes: tuple[Node, ...]
    node: Ints
    iteration: Ints
    start_ns: Ints
    end_ns: Ints
    began_ns: Ints
    ended_ns: Ints
    starts_known: bool
    mean_of: int = 1


@runtime_checkable
class KnowsNodes(Protocol):
    """A step whose runtime times the nodes of its model."""

    def node_times(self, n: int) -> NodeTimes:
        """Run ``n`` iterations with the counters on."""
