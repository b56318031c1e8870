"""When the nodes of a model ran, as the runtime that ran them says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Node:
    """A node of a model that a runtime executes; what it has fused into others is none.

    Attributes:
        name: Its name in the runtime's own graph.
        op: Kind of operator.
        shapes: Shapes and types, or the implementation, as far as the runtime tells.
    """

    name: str
    op: str
    shapes: str = ""


@dataclass(frozen=True)
class NodeTimes:
    """Some iterations with a runtime's counters on.

    Attributes:
        nodes: Every node that ran.
        node: Index into ``nodes`` of each execution, shape (m,).
        iteration: Number of the iteration of each, shape (m,).
        start_ns, end_ns: Of each, since the Unix epoch, shape (m,).
        began_ns, ended_ns: Of each iteration, shape (n,).
        starts_known: Whether starts were told; else executions are laid end to end, in their order.
        mean_of: How many iterations each one here is the mean of, where the runtime tells means only.
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
    """A step whose runtime times the nodes of its model itself."""

    def node_times(self, n: int) -> NodeTimes:
        """Run ``n`` iterations with the counters on."""
