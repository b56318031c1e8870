"""Compiled steps whose kernels can be repeated. Imports torch.

Compiled code plans its buffers: a kernel that didn't run would leave others with whatever was in its
output's memory before. So nothing is removed. A variant is the captured graph with copies of some nodes, each
right after the original, on the same arguments: it needs no memory of its own. A kernel that writes over what it
reads runs on changed numbers in a copy; whether a unit does is seen from the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from jouletrace.errors import BadInputError
from jouletrace.steps.base import DETACHED, Launch, VariantRefusedError
from jouletrace.steps.cuda.compiled_graphs import CompiledGraphs
from jouletrace.steps.cuda.copy_plan import plan_copies, plan_pauses
from jouletrace.steps.cuda.kept_graphs import KeptGraphs
from jouletrace.steps.cuda.node_copies import GraphCopy
from jouletrace.steps.cuda.step import CudaStep
from jouletrace.steps.pacing import spin, spin_cycles, spread
from jouletrace.steps.trial import name_of
from jouletrace.steps.units import Unit
from jouletrace.workloads.base import Built
from jouletrace.workloads.memory import memory_guard


@dataclass(frozen=True)
class _Pause:
    """A pause in every iteration.

    Attributes:
        spin_s: Seconds, all pieces together.
        pieces: How many waits.
        graphs: A graph of one wait.
    """

    spin_s: float
    pieces: int
    graphs: KeptGraphs


class CompiledVariant(CudaStep):
    """A compiled step with some of its units repeated, and with a pause, or with nothing but a pause."""

    mode = "graph"

    def __init__(
        self, source: CompiledGraphs, changes: Mapping[Unit, int], pause: _Pause | None, *, empty: bool = False
    ) -> None:
        """Make its graphs.

        Raises:
            BadInputError: See ``VariableStep.variant``.
            VariantRefusedError: See ``VariableStep.variant``.
            JouletraceError: If the driver can't.
        """
        self.device = source.graphs.device
        self._source, self._pause, self._empty = source, pause, empty
        self._changes = dict(changes)
        self._next = 0
        self._copies: list[GraphCopy] = []
        _check_changes(source, changes)
        try:
            with torch.cuda.device(self.device):
                for i in range(len(source.calls)):
                    self._copies.append(self._copy(i))
        except BaseException:
            self.close()
            raise

    @property
    def changes(self) -> Mapping[Unit, int]:
        """See ``Variant``."""
        return self._changes

    def launch(self) -> None:
        """See ``CudaStep.launch``; input sets rotate."""
        stream = torch.cuda.current_stream(self.device).cuda_stream
        self._copies[self._next % len(self._copies)].launch(stream)
        self._next += 1

    def outputs(self) -> Any:
        """The outputs of the last iteration that was launched. Synchronise before reading."""
        return self._source.graphs.outputs_of((self._next - 1) % len(self._copies))

    def check(self) -> None:
        """See ``Variant.check``: by the nodes and edges of the graphs; outputs must be finite numbers.

        Raises:
            JouletraceError: If a graph isn't what it should be.
            VariantRefusedError: If outputs aren't finite.
        """
        for copy in self._copies:
            copy.check()
        if self._empty:
            return
        repeated = [unit for unit, times in self._changes.items() if times > 1]
        self._next = 0
        for i in range(len(self._copies)):
            self.replay(1)
            self._source.compare(i, repeated)

    def describe(self) -> dict[str, Any]:
        """See ``CudaStep.describe``."""
        return {**super().describe(), **({"spin_s": self._pause.spin_s} if self._pause else {})}

    def close(self) -> None:
        """Free the graphs."""
        if self._copies:
            torch.cuda.synchronize(self.device)
        while self._copies:
            self._copies.pop().close()

    def _copy(self, i: int) -> GraphCopy:
        captured, calls, pause = self._source.graphs.captured[i], self._source.calls[i], self._pause
        wait = None if pause is None else pause.graphs.captured[0]
        if self._empty:
            return GraphCopy(captured, plan_pauses(pause.pieces if pause else 0), wait, empty=True)
        times = {unit.key: times for unit, times in self._changes.items()}
        repeated = [(call.nodes, times[call.key]) for call in calls if times.get(call.key, 1) > 1]
        due = spread(pause.pieces, len(calls)) - {len(calls) - 1} if pause else frozenset()
        between = [calls[place].nodes for place in sorted(due)]
        plan = plan_copies(len(captured.nodes), captured.edges, repeated, between, pause_at_end=pause is not None)
        return GraphCopy(captured, plan, wait)


def _check_changes(source: CompiledGraphs, changes: Mapping[Unit, int]) -> None:
    known = {unit.key for unit in source.units}
    for unit, times in changes.items():
        if unit.key not in known:
            raise BadInputError(f"the step has no unit {unit}")
        if times < DETACHED:
            raise BadInputError(f"{unit}: the multiplicity must be 0 or more, or -1 (detached), not {times}")
        if times in (0, DETACHED):
            raise VariantRefusedError("compiled", f"{unit}: compiled code plans its buffers, and can't go without it")


class VariableCompiledStep(CudaStep):
    """An untouched compiled step, captured, and the maker of its variants: by repetition alone."""

    mode = "graph"

    def __init__(
        self, source: CompiledGraphs, untouched: KeptGraphs | CompiledVariant, pause: _Pause | None = None
    ) -> None:
        """Run ``untouched``, which belongs to this step from here on, as does the pause."""
        self.device = source.graphs.device
        self._source, self._untouched, self._pause = source, untouched, pause

    @property
    def changes(self) -> Mapping[Unit, int]:
        """See ``Variant``: none."""
        return {}

    def launch(self) -> None:
        """See ``CudaStep.launch``; input sets rotate."""
        self._untouched.launch()

    def outputs(self) -> Any:
        """The outputs of the last iteration that was launched. Synchronise before reading."""
        return self._untouched.outputs()

    def units(self) -> list[Unit]:
        """See ``VariableStep.units``: operators that compiled code calls, and kernels that it generated."""
        return list(self._source.units)

    def launches(self) -> list[Launch]:
        """See ``KnowsLaunches``; of the first input set."""
        units = {unit.key: unit for unit in self._source.units}
        owners = {place: units[call.key] for call in self._source.calls[0] for place in call.nodes}
        return [
            Launch(owners.get(place), one.node.kind, one.node.name, one.node.grid, one.node.block)
            for place, one in enumerate(self._source.named[0])
        ]

    def variant(self, changes: Mapping[Unit, int]) -> CompiledVariant:
        """See ``VariableStep.variant``."""
        return CompiledVariant(self._source, changes, self._pause)

    def empty(self) -> CompiledVariant:
        """See ``VariableStep.empty``: a graph of nothing, or of the pause."""
        return CompiledVariant(self._source, {}, self._pause, empty=True)

    def paced(self, spin_s: float, pieces: int = 1) -> VariableCompiledStep:
        """See ``VariableStep.paced``; a paced step can be paced anew, and must be closed before this one is."""
        pieces = max(1, min(pieces, len(self._source.calls[0])))
        cycles = spin_cycles(spin_s, self.device, pieces)
        if cycles == 0:
            return VariableCompiledStep(self._source, CompiledVariant(self._source, {}, None))
        wait = Built(_Wait(cycles), None, [((), {})], {"name": "a pause"})
        pause = _Pause(spin_s, pieces, KeptGraphs(wait, self.device, beside=self._source.graphs))
        try:
            return VariableCompiledStep(self._source, CompiledVariant(self._source, {}, pause), pause)
        except BaseException:
            pause.graphs.close()
            raise

    def check(self) -> None:
        """See ``Variant.check``: a copy of the graphs with nothing changed has their nodes and edges."""
        null = self.variant({})
        try:
            null.check()
        finally:
            null.close()

    def remarks(self) -> list[tuple[str, str]]:
        """See ``OnlyRepeated``."""
        found = [
            (
                "by_repetition",
                "compiled code can't go without any of its kernels: what each costs is what running it once more "
                "costs, its data in the cache; at small batch that is less than what it costs in the step",
            )
        ]
        if self._source.unnamed:
            found.append(
                ("kernels_by_name", f"operators that compiled code calls aren't known: {self._source.unnamed}")
            )
        if self._source.changing:
            names = ", ".join(unit.op for unit in self._source.changing)
            few = f"{len(self._source.changing)} of {len(self._source.units)} parts"
            text = (
                f"{few} write over what they read: where they are repeated, the step runs on changed numbers: {names}"
            )
            found.append(("changed_numbers", text))
        return found

    def describe(self) -> dict[str, Any]:
        """See ``CudaStep.describe``; with the nodes of an iteration, and how many are no unit's."""
        named, calls = self._source.named[0], self._source.calls[0]
        outside = len(named) - sum(len(call.nodes) for call in calls)
        facts = {"nodes": len(named), "nodes_of_no_operator": outside, "parts": "by repetition"}
        return {**self._source.graphs.describe(), **facts, **({"spin_s": self._pause.spin_s} if self._pause else {})}

    def close(self) -> None:
        """Free the graphs; of a paced step, its own."""
        self._untouched.close()
        if self._pause is not None:
            self._pause.graphs.close()


@dataclass(frozen=True)
class _Wait:
    """An iteration of one kernel that waits for so many cycles."""

    cycles: int

    def __call__(self, _i: int) -> None:
        spin(self.cycles)


def make_compiled_step(built: Built, device: torch.device) -> VariableCompiledStep:
    """Capture a compiled workload for experiments on its parts.

    Raises:
        CaptureError: If it can't be captured.
        NotPossibleError: If torch or the driver is too old, or memory runs out.
    """
    with memory_guard(name_of(built)):
        source = CompiledGraphs.capture(built, device)
    return VariableCompiledStep(source, source.graphs)
