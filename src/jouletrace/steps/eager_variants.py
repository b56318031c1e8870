"""Steps without a graph whose units can be removed and repeated: eager on a GPU, and on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.steps.base import CountsCycles, Interval, Step, VariantRefusedError
from jouletrace.steps.cycles import Cycles
from jouletrace.steps.pacing import with_spin
from jouletrace.steps.trial import name_of
from jouletrace.steps.units import Unit
from jouletrace.workloads.base import Built
from jouletrace.workloads.memory import memory_guard

if TYPE_CHECKING:
    import torch

    from jouletrace.steps.structure import Structure

Make = Callable[[Built], Step]
"""Makes the plain step of a workload that has run once."""


class _Around:
    """A step around another one, which runs.

    Attributes:
        mode: See ``Step``.
    """

    def __init__(self, inner: Step) -> None:
        self.mode = inner.mode
        self._inner = inner

    def replay(self, n: int) -> Interval:
        """See ``Step.replay``."""
        return self._inner.replay(n)

    def latencies(self, n: int) -> NDArray[np.float64]:
        """See ``Step.latencies``."""
        return self._inner.latencies(n)

    def cycles(self) -> Cycles | None:
        """See ``CountsCycles``; None where the step inside isn't one."""
        return self._inner.cycles() if isinstance(self._inner, CountsCycles) else None

    def describe(self) -> dict[str, Any]:
        """See ``Step.describe``."""
        return self._inner.describe()

    def close(self) -> None:
        """See ``Step.close``."""
        self._inner.close()


class EagerVariant(_Around):
    """A step that runs under a dispatch mode, which removes and repeats calls as they come.

    The mode costs host time, about 4 µs an operator: compare with ``variant({})``, which pays the
    same. A removed call costs the host about 20 µs more, so that repetition is the better way where
    an operator is short or the device waits for the host; there a repetition counts the host's
    launch too.
    """

    def __init__(
        self,
        built: Built,
        structures: Sequence[Structure],
        changes: Mapping[Unit, int],
        device: torch.device,
        make: Make,
    ) -> None:
        """Run the workload the ordinary way and altered.

        Raises:
            BadInputError: See ``VariableStep.variant``.
            VariantRefusedError: See ``VariableStep.variant``.
            NotPossibleError: If memory runs out.
        """
        from jouletrace.steps.altered import alter

        with memory_guard(f"a variant of {name_of(built)}"):
            altered, self._altered = alter(built, structures, changes, device)
        self._changes = dict(changes)
        super().__init__(make(altered))

    @property
    def changes(self) -> Mapping[Unit, int]:
        """See ``Variant``."""
        return self._changes

    def check(self) -> None:
        """Run once more and hold every call's operator and shapes against the untouched step's.

        Raises:
            JouletraceError: If they differ.
        """
        self._altered.strict = True
        try:
            for i in range(len(self._altered.structures)):
                self._altered(i)
        finally:
            self._altered.strict = False

    def close(self) -> None:
        """Free the outputs that were kept."""
        super().close()
        self._altered.stored = [{} for _ in self._altered.stored]


class VariableEagerStep(_Around):
    """An untouched step without a graph, and the maker of its variants."""

    def __init__(
        self,
        built: Built,
        device: torch.device,
        make: Make,
        *,
        spin_s: float = 0.0,
        fallback: Mapping[str, Any] | None = None,
    ) -> None:
        """List the operators of an iteration.

        Args:
            built: A workload that has run once.
            device: Where it runs.
            make: Makes its plain step.
            spin_s: See ``VariableStep.paced``.
            fallback: Why it isn't the step that was asked for; goes to ``describe``.

        Raises:
            NotPossibleError: If operators can't be followed.
        """
        from jouletrace.steps.altered import record_structures

        self._plain, self._spin_s, self._make, self._device = built, spin_s, make, device
        self._fallback = dict(fallback or {})
        self._workload = with_spin(built, spin_s, device)
        self._structures = record_structures(self._workload, device)
        super().__init__(make(self._workload))

    @property
    def changes(self) -> Mapping[Unit, int]:
        """See ``Variant``: none."""
        return {}

    def units(self) -> list[Unit]:
        """See ``VariableStep.units``; those of operators that do work, by their schema."""
        return self._structures[0].units()

    def variant(self, changes: Mapping[Unit, int]) -> EagerVariant:
        """See ``VariableStep.variant``."""
        return EagerVariant(self._workload, self._structures, changes, self._device, self._make)

    def empty(self) -> EagerVariant:
        """See ``VariableStep.empty``: the host's time, and what no operator accounts for."""
        return self.variant(dict.fromkeys(self.units(), 0))

    def paced(self, spin_s: float, pieces: int = 1) -> VariableEagerStep:
        """See ``VariableStep.paced``; a paced step can be paced anew, and waits in one piece."""
        if self._device.type != "cuda":
            raise VariantRefusedError("no_pacing", "steps on the CPU aren't paced: there is no kernel that waits")
        return VariableEagerStep(self._plain, self._device, self._make, spin_s=spin_s, fallback=self._fallback)

    def check(self) -> None:
        """See ``Variant.check``: an iteration under the dispatch mode calls what was listed."""
        self.variant({}).check()

    def describe(self) -> dict[str, Any]:
        """See ``Step.describe``."""
        spin = {"spin_s": self._spin_s} if self._spin_s else {}
        return {**super().describe(), **({"fallback": self._fallback} if self._fallback else {}), **spin}
