"""Which nodes of compiled code's graph belong together, and what they are called. Imports torch.

Compiled code launches kernels that were generated for it, whose names say what is in them, and calls operators where
torch's own are faster: matrix products, attention. One such kernel may serve products of all shapes, so
it goes by operator and shapes, as it would without compiling; a generated kernel goes by name and launch configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

from jouletrace.errors import JouletraceError
from jouletrace.steps.cuda.captured_nodes import CapturedNodes
from jouletrace.steps.cuda.graph import CudaGraphStep
from jouletrace.steps.cuda.graph_nodes import GraphNodes, Node
from jouletrace.steps.cuda.kept_graphs import KeptGraphs
from jouletrace.steps.cuda.node_copies import COPIED
from jouletrace.steps.operator_mode import OperatorMode
from jouletrace.steps.operators import describe, op_name, tensors_in
from jouletrace.steps.units import Key
from jouletrace.workloads.base import Built
from jouletrace.workloads.user_errors import one_line

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class NodeCall:
    """Nodes that are repeated together: all that a call of an operator launches, or one generated kernel.

    Attributes:
        key: What makes it part of a unit.
        nodes: Their places in the graph.
    """

    key: Key
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Named:
    """A node and the call of an operator that makes it.

    Attributes:
        node: The node.
        call: Number of the call in its iteration; None of a node that no operator makes.
        op, shapes: Of the call's operator; "" where there is none.
    """

    node: Node
    call: int | None = None
    op: str = ""
    shapes: str = ""


def group_calls(named: Sequence[Named]) -> list[NodeCall]:
    """The calls of an iteration, in the order of their first node; nodes that can't be copied are none's."""
    found: list[NodeCall] = []
    last = None
    for place, one in enumerate(named):
        if one.node.kind not in COPIED:
            continue
        if one.call is not None and one.call == last:
            found[-1] = NodeCall(found[-1].key, (*found[-1].nodes, place))
        else:
            found.append(NodeCall(_key(one), (place,)))
        last = one.call
    return found


def _key(one: Named) -> Key:
    if one.op:
        return one.op, one.shapes, "", False
    node = one.node
    if node.kind != "kernel":
        return node.kind, f"{_sizes(node.grid)} bytes", "", False
    return node.name or "kernel", f"grid {_sizes(node.grid)}, block {_sizes(node.block)}", "", False


def _sizes(sizes: Sequence[int]) -> str:
    """Without the ones at the end: "197" and "8x12"."""
    kept = list(sizes)
    while len(kept) > 1 and kept[-1] <= 1:
        kept.pop()
    return "x".join(map(str, kept))


def name_nodes(built: Built, graphs: KeptGraphs) -> tuple[list[list[Named]], str]:
    """Find out which operators make the nodes of captured graphs, by capturing once more under a dispatch mode.

    Args:
        built: The compiled workload.
        graphs: Its graphs.

    Returns:
        The nodes of each graph, and why they go without operators; "" if they don't.
    """
    plain = [[Named(node) for node in one.nodes] for one in graphs.captured]
    if not hasattr(TorchDispatchMode, "ignore_compile_internals"):
        # Without it torch gives up on compiling what it meets under a mode, and not for this once only.
        return plain, "this torch doesn't run compiled code under a dispatch mode"
    try:
        with _Operators(graphs.device):
            for i in range(len(built.inputs)):
                built.call(i)  # what is compiled anew for the mode can't be in the middle of a capture
        followed = _Followed(built, graphs.device, beside=graphs)
    # Whatever it is, it comes from the mode: without, the workload was captured.
    except Exception as error:
        return plain, str(error) if isinstance(error, JouletraceError) else one_line(error)
    found = followed.found
    followed.close()
    for one, other in zip(plain, found, strict=True):
        if [named.node for named in one] != [named.node for named in other]:
            return plain, "compiled code isn't run under a dispatch mode: other kernels were captured"
    return found, ""


class _Operators(OperatorMode):  # type: ignore[no-untyped-call]  # torch's __init_subclass__
    """Notes the operators that compiled code calls.

    Attributes:
        called: Name and shapes of each, in order.
    """

    def __init__(self, device: torch.device, nodes: CapturedNodes | None = None) -> None:
        super().__init__(device)
        self.called: list[tuple[str, str]] = []
        self._nodes = nodes

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Tells torch to run compiled code under this mode, where it would run the plain workload."""
        return True

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run it and note what it made."""
        if self._nodes is not None:
            self._nodes.observe(None)
        out = func(*args, **kwargs)
        if self._nodes is not None:
            self._nodes.observe(len(self.called))
        read = {name: value for name, value in kwargs.items() if name != "out"}
        self.called.append((op_name(func), describe(tensors_in((args, read)))))
        return out


class _Followed(CudaGraphStep):
    """A capture that knows which operator made which node.

    Attributes:
        found: The nodes of each input set's graph.
    """

    def __init__(self, built: Built, device: torch.device, beside: CudaGraphStep) -> None:
        self.found: list[list[Named]] = []
        super().__init__(built, device, beside)

    def _enqueue(self, i: int) -> Any:
        nodes = CapturedNodes(GraphNodes(self._stream.cuda_stream))
        with _Operators(self.device, nodes) as mode:
            outputs = self._built.call(i)
        nodes.read()
        self.found.append(
            [
                Named(node) if place is None else Named(node, place, *mode.called[place])
                for place, node in nodes.sequence
            ]
        )
        return outputs
