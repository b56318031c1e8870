"""Execution times of a model's nodes, as reported by its runtime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

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
