"""What an experiment needs of a step, and nothing more: any object of this form will do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self, runtime_checkable


class Unit(Protocol):
    """Launches of one operator on the same shapes in the same module. Hashable."""

    @property
    def op(self) -> str:
        """Operator."""

    @property
    def shapes(self) -> str:
        """Input shapes and types."""

    @property
    def module(self) -> str:
        """Qualified name of the module."""

    @property
    def count(self) -> int:
        """Launches in an iteration."""

    @property
    def backward(self) -> bool:
        """Whether autograd launches it."""

    @property
    def phase(self) -> str:
        """What of an iteration it belongs to."""

    @property
    def sites(self) -> Sequence[tuple[str, int]]:
        """Calls of the module in which it is launched, and how often in each; empty where they aren't known."""

    @property
    def place(self) -> int:
        """How many other units are launched before it."""


class Stretch(Protocol):
    """A stretch of time on the device's clock, in nanoseconds since the Unix epoch."""

    @property
    def start_ns(self) -> int:
        """Its start."""

    @property
    def end_ns(self) -> int:
        """Its end."""


class Replayable(Protocol):
    """Something captured that can be run back to back."""

    def replay(self, n: int) -> Stretch:
        """Run ``n`` iterations and wait for them."""

    def check(self) -> None:
        """Raise unless it has the kernels of the step that it was made from, its changes apart."""

    def close(self) -> None:
        """Free what it holds on the device."""


class VariableStep(Replayable, Protocol):
    """A step whose parts can be removed and repeated, and which can be paced below a power cap.

    ``variant`` and ``paced`` make something fresh: neither changes the step itself.
    """

    def units(self) -> Sequence[Any]:
        """Its parts, each a ``Unit``, in the order of their first launch."""

    def variant(self, changes: Mapping[Any, int]) -> Replayable:
        """A fresh capture with each unit in ``changes`` launched so often for once; 0 removes it, -1 detaches it.

        Without changes it is a capture of the step as it is.

        Raises:
            NotPossibleError: If these units can't be changed so.
        """

    def empty(self) -> Replayable:
        """The variant without any unit: what is left is launch.

        Raises:
            NotPossibleError: If some unit can't be removed.
        """

    def paced(self, spin_s: float, pieces: int = 1) -> VariableStep:
        """The step with a kernel at its end that waits for ``spin_s`` and draws little; it is closed by itself.

        Args:
            spin_s: Seconds in all.
            pieces: Into how many waits to split it, spread over the iteration; at most.

        Raises:
            NotPossibleError: If it can't be paced.
        """


class Cycles(Protocol):
    """A reading of a device's cycle counters."""

    def mean_mhz(self, earlier: Self) -> float | None:
        """Mean clock since an earlier reading; None if it can't be told."""


@runtime_checkable
class CountsCycles(Protocol):
    """A step on a device whose cycle counters can be read."""

    def cycles(self) -> Cycles | None:
        """Where they stand, once the device has done what it was given; None if it doesn't tell."""
