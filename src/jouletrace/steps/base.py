"""The seam of every experiment: something that can be run again and again and timed.

A step is one iteration of a workload made ready on a device: a captured CUDA graph, an eager
call, a call on the CPU, or a schedule of kernels on a simulated board.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import NotPossibleError
from jouletrace.steps.cycles import Cycles
from jouletrace.steps.units import Unit


@dataclass(frozen=True, slots=True)
class Interval:
    """A stretch of time on the device's clock, in nanoseconds since the Unix epoch."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """Its length in seconds."""
        return (self.end_ns - self.start_ns) / 1e9


class Step(Protocol):
    """One iteration of a workload, ready to run.

    ``profile`` needs the methods here; experiments on parts of a step need those of
    ``VariableStep`` too.
    """

    mode: str
    """"graph", "eager", "compile", "cpu" or "simulated"."""

    def replay(self, n: int) -> Interval:
        """Run ``n`` iterations back to back and wait for them; nothing else happens in between.

        The interval starts when the first iteration may start and ends when the last one has
        ended, the device idle before and after.
        """

    def latencies(self, n: int) -> NDArray[np.float64]:
        """Seconds of each of ``n`` iterations, shape (n,), by the device's own events.

        An iteration's latency runs from its start to its end on the device, with the host's
        launch included where the device had to wait for it.
        """

    def describe(self) -> dict[str, Any]:
        """What a reader must know about how it was made ready (capture, attention, threads)."""

    def close(self) -> None:
        """Free what it holds on the device."""


@runtime_checkable
class FlushedStep(Protocol):
    """A step that flushes the L2 cache before each iteration, inside ``replay`` too."""

    def flush_only(self) -> Step:
        """A step whose iterations are the flushes alone."""


@runtime_checkable
class InStreams(Protocol):
    """A step that runs several iterations at once."""

    streams: int
    """How many."""


@runtime_checkable
class CountsCycles(Protocol):
    """A step on a device whose cycle counters can be read."""

    def cycles(self) -> Cycles | None:
        """Where they stand, once the device has done what it was given; None if it doesn't tell."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Something an iteration launches on the device, as its capture says.

    Attributes:
        unit: Whose it is; None if no operator's.
        kind: "kernel", "memcpy", "memset" or another kind of graph node.
        name: Name of the kernel, mangled or plain; "" where it isn't known.
        grid, block: Launch configuration; zeros where it isn't known.
    """

    unit: Unit | None
    kind: str
    name: str
    grid: tuple[int, ...] = (0, 0, 0)
    block: tuple[int, ...] = (0, 0, 0)


@runtime_checkable
class KnowsLaunches(Protocol):
    """A step that knows what an iteration launches: where kernels can be told to be whose."""

    def launches(self) -> list[Launch]:
        """All that an iteration launches, in the order of its capture."""


@runtime_checkable
class TracesItself(Protocol):
    """A step that says itself when its kernels ran: one on a simulated board."""

    def kernel_times(self, n: int) -> NDArray[np.int64]:
        """Run ``n`` iterations; starts and ends of their kernels in ns since the Unix epoch, shape (n, kernels, 2)."""


DETACHED = -1
"""A multiplicity: launched once, for nobody; later operators get the stored output, as with 0."""


class VariantRefusedError(NotPossibleError):
    """A unit of this step can't be changed in this way; another way may do.

    Attributes:
        reason: A short code, for tables (``REFUSALS`` has them all).
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


REFUSALS: dict[str, str] = {
    "compiled": "compiled code plans its buffers: its kernels can be repeated on a GPU, but not taken out",
    "in_place": "it writes over its input and has no form that writes elsewhere: it can't be repeated",
    "overwritten": "its output is written over by an operator that has no form that writes elsewhere",
    "host_output": "it hands numbers on through the host, which a captured graph can't",
    "no_pacing": "steps on the CPU aren't paced",
    "interleaved": "kernels of one of its calls run before and after others: they can't be repeated together",
    "not_finite": "repeated, it writes over what it reads until numbers are no longer finite",
}
"""Why a variant may be refused, by code."""


@runtime_checkable
class OnlyRepeated(Protocol):
    """A step whose units can be repeated, but not removed."""

    def remarks(self) -> list[tuple[str, str]]:
        """Code and text of what a reader should know of that, once all variants have been made."""


class Variant(Step, Protocol):
    """A step with some of its units removed or repeated.

    Attributes:
        changes: How often each changed unit is launched for once; what isn't in it is unchanged.
    """

    @property
    def changes(self) -> Mapping[Unit, int]:
        """How often each changed unit is launched for once in the model."""

    def check(self) -> None:
        """Raise unless all other kernels are those of the untouched step, launched alike.

        Raises:
            JouletraceError: If they aren't; names the first one that differs.
        """


class VariableStep(Variant, Protocol):
    """An untouched step whose units can be removed or repeated: what experiments work on.

    ``replay`` and ``latencies`` run it as the user would, with nothing in between. What a unit costs
    is the difference between a variant and ``variant({})``, which is made in the same way as a
    variant and changes nothing. For a graph the two references are the same kernels, and their
    difference is the null experiment; in eager mode and on the CPU ``variant({})`` carries the
    host time by which variants find their units.
    """

    def units(self) -> list[Unit]:
        """Its parts, in the order of their first call; together they launch all that it launches."""

    def variant(self, changes: Mapping[Unit, int]) -> Variant:
        """A fresh step, made ready and not yet run, with each unit launched so often for once.

        Args:
            changes: Multiplicities by unit: 0 removes (later operators get the stored output of an
                ordinary pass), 1 changes nothing, r launches r times and keeps one result. ``DETACHED``
                launches once and hands on the stored output: less that, 0 tells what the unit costs and
                nothing of what later operators pay to fetch from memory what they'd find in the cache.

        Raises:
            BadInputError: If a unit isn't one of the step, or a multiplicity is below ``DETACHED``.
            VariantRefusedError: If a unit can't be changed so; ``reason`` is the code for tables.
        """

    def empty(self) -> Variant:
        """The variant without any unit: what is left is launch, and what no operator accounts for."""

    def paced(self, spin_s: float, pieces: int = 1) -> VariableStep:
        """The same step with a kernel at its end that waits for ``spin_s`` and draws little power.

        Long enough, it keeps the step and all its variants below the power cap, so that they run
        at one clock. It belongs to this step, and is closed by itself.

        Args:
            spin_s: Seconds in all.
            pieces: Into how many short waits to split it, spread over the iteration; at most. A step
                whose host launches each operator leaves it in one piece, as following operators
                would slow the host.

        Raises:
            BadInputError: If ``spin_s`` is negative.
            VariantRefusedError: On the CPU.
        """
