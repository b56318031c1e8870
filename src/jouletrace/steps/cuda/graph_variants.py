"""Captured steps whose units can be removed and repeated: each variant is a fresh capture.

Nodes of a graph are never switched off and on: after one such call a graph stays slower for good.
A variant is captured on the untouched step's stream into the same memory pool, under the dispatch
mode of ``surgery``, and instantiated anew. Whether it launches what it should is read from the
nodes of the capture.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jouletrace.steps.base import Launch
from jouletrace.steps.cuda.captured_nodes import CapturedNodes, check_changed, check_same
from jouletrace.steps.cuda.graph import CudaGraphStep
from jouletrace.steps.cuda.graph_nodes import GraphNodes
from jouletrace.steps.pacing import with_spin
from jouletrace.steps.trial import name_of
from jouletrace.steps.units import Unit
from jouletrace.workloads.base import Built
from jouletrace.workloads.memory import memory_guard

if TYPE_CHECKING:
    import torch

    from jouletrace.steps.altered import AlteredCall
    from jouletrace.steps.structure import Structure


class _NodesStep(CudaGraphStep):
    """A captured step that knows its nodes, of one graph for each input set."""

    def __init__(self, built: Built, device: torch.device, beside: CudaGraphStep | None = None) -> None:
        self.nodes: list[CapturedNodes] = []
        super().__init__(built, device, beside)

    def _enqueue(self, i: int) -> Any:
        nodes = CapturedNodes(GraphNodes(self._stream.cuda_stream))
        outputs = self._run(i, nodes)
        nodes.read()
        self.nodes.append(nodes)
        return outputs

    def _run(self, i: int, nodes: CapturedNodes) -> Any:
        return self._built.call(i)


class GraphVariant(_NodesStep):
    """A step captured with some of its units removed or repeated.

    It holds the outputs of removed units that others read, and its graphs' own outputs.
    """

    def __init__(
        self, untouched: VariableGraphStep, structures: Sequence[Structure], changes: Mapping[Unit, int]
    ) -> None:
        """Run the workload the ordinary way and altered, then capture it altered.

        Raises:
            BadInputError: See ``VariableStep.variant``.
            VariantRefusedError: See ``VariableStep.variant``.
            CaptureError: If it can't be captured, though the untouched step could.
            NotPossibleError: If memory runs out.
        """
        from jouletrace.steps.altered import alter

        self._untouched = untouched
        self._structures = structures
        self._changes = dict(changes)
        device = untouched.device
        with untouched.on_its_stream(), memory_guard(f"a variant of {name_of(untouched.workload)}"):
            built, self._altered = alter(untouched.workload, structures, changes, device)
        with _quiet():
            super().__init__(built, device, beside=untouched)

    @property
    def changes(self) -> Mapping[Unit, int]:
        """See ``Variant``."""
        return self._changes

    def check(self) -> None:
        """See ``Variant.check``: by the nodes of the captures, call by call."""
        for i, structure in enumerate(self._structures):
            check_changed(self._untouched.reference[i], self.nodes[i], self._altered.multiplicities[i], structure)

    def close(self) -> None:
        """Free the graphs and the outputs that were kept."""
        super().close()
        self._altered.stored = [{} for _ in self._altered.stored]

    def _run(self, i: int, nodes: CapturedNodes) -> Any:
        call: AlteredCall = self._altered
        call.observe, call.strict = nodes.observe, True
        try:
            return call(i)
        finally:
            call.observe = None


class VariableGraphStep(_NodesStep):
    """An untouched captured step, and the maker of its variants.

    Attributes:
        workload: What is captured, the spin of a paced step included.
        reference: Nodes by operator call, for each input set: those of ``variant({})``.
    """

    def __init__(
        self,
        built: Built,
        device: torch.device,
        spin_s: float = 0.0,
        beside: CudaGraphStep | None = None,
        *,
        pieces: int = 1,
        calls: int = 0,
    ) -> None:
        """Capture the workload as it is, list its operators, and find out which node is whose.

        Args:
            built: A workload that has run once.
            device: The GPU.
            spin_s: See ``VariableStep.paced``.
            beside: See ``CudaGraphStep``.
            pieces: See ``VariableStep.paced``.
            calls: Operators of an iteration, at least ``pieces``; not needed for one piece.

        Raises:
            CaptureError: If it can't be captured; names the likely operator.
            NotPossibleError: If operators can't be followed, the driver is too old, or memory runs out.
        """
        self._plain, self._spin_s = built, spin_s
        self.workload = with_spin(built, spin_s, device, pieces, calls)
        super().__init__(self.workload, device, beside)
        from jouletrace.steps.altered import record_structures

        with self.on_its_stream(), memory_guard(name_of(built)):
            structures = record_structures(self.workload, device)
        self.reference: list[CapturedNodes] = []
        null = GraphVariant(self, structures, {})
        self.reference = null.nodes
        null.close()
        self._outside = [len(nodes.of(None)) - (pieces if spin_s > 0 else 0) for nodes in self.reference]
        self._structures = [
            structure.launching(nodes.places(), hidden=outside > 0)
            for structure, nodes, outside in zip(structures, self.reference, self._outside, strict=True)
        ]

    @property
    def changes(self) -> Mapping[Unit, int]:
        """See ``Variant``: none."""
        return {}

    def units(self) -> list[Unit]:
        """See ``VariableStep.units``; those whose calls made nodes in the capture."""
        return self._structures[0].units()

    def launches(self) -> list[Launch]:
        """See ``KnowsLaunches``; of the first input set."""
        structure = self._structures[0]
        units = {unit.key: unit for unit in structure.units()}
        return [
            Launch(
                None if place is None else units.get(structure.calls[place].key),
                node.kind,
                node.name,
                node.grid,
                node.block,
            )
            for place, node in self.reference[0].sequence
        ]

    def variant(self, changes: Mapping[Unit, int]) -> GraphVariant:
        """See ``VariableStep.variant``."""
        return GraphVariant(self, self._structures, changes)

    def empty(self) -> GraphVariant:
        """See ``VariableStep.empty``."""
        return self.variant(dict.fromkeys(self.units(), 0))

    def paced(self, spin_s: float, pieces: int = 1) -> VariableGraphStep:
        """See ``VariableStep.paced``; a paced step can be paced anew."""
        calls = len(self._structures[0].calls)
        return VariableGraphStep(
            self._plain, self.device, spin_s, beside=self, pieces=max(1, min(pieces, calls)), calls=calls
        )

    def check(self) -> None:
        """See ``Variant.check``: a capture under the dispatch mode has the nodes of one without."""
        for untouched, null in zip(self.nodes, self.reference, strict=True):
            check_same(untouched, null, "the step under the dispatch mode")

    def describe(self) -> dict[str, Any]:
        """See ``CudaStep.describe``; with the nodes of an iteration, and how many no operator launches."""
        facts = {"nodes": len(self.nodes[0].sequence), "nodes_of_no_operator": self._outside[0]}
        return {**super().describe(), **facts, **({"spin_s": self._spin_s} if self._spin_s else {})}

    @contextmanager
    def on_its_stream(self) -> Iterator[None]:
        """Run what is inside on the stream of the captures, and wait for it."""
        import torch

        with torch.cuda.device(self.device):
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                yield
            torch.cuda.synchronize()


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch takes a graph without nodes for a mistake; here it is what is left of an empty step."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
        yield
