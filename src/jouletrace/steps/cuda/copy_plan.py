"""Where copies of nodes go in a graph: which nodes are added, and which edges the graph then has.

Nodes are numbered from 0 in the order of their capture; added ones go on from there. A copy runs after
what it copies, and what followed the original follows its last copy: a chain stays a chain, and branches that
ran beside one another still do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from jouletrace.steps.base import VariantRefusedError

PLAIN = bytes(8)
"""Data of an edge (CUgraphEdgeData of NVIDIA's public header ``cuda.h``): one node ends, then the other begins."""

PAUSE = -1
"""Source of an added node that is no copy, but a pause."""

Edge = tuple[int, int, bytes]
"""From which node to which, and the edge's data."""


@dataclass(frozen=True)
class CopyPlan:
    """A graph with nodes added.

    Attributes:
        sources: For each added node the one that it copies, or ``PAUSE``.
        edges: All edges of the graph.
    """

    sources: tuple[int, ...]
    edges: frozenset[Edge]


def plan_copies(
    count: int,
    edges: Collection[Edge],
    repeated: Sequence[tuple[Sequence[int], int]],
    pauses: Collection[Sequence[int]] = (),
    *,
    pause_at_end: bool = False,
) -> CopyPlan:
    """Plan a graph with some of its nodes repeated, and with pauses.

    Args:
        count: Nodes of the graph.
        edges: Its edges.
        repeated: Nodes that one call launches, which are repeated together, and how often they run for once.
        pauses: Nodes of calls after which what follows waits for a pause.
        pause_at_end: Whether a pause runs when all else has ended.

    Raises:
        VariantRefusedError: If nodes of a call run before and after others, and can't be repeated together.
    """
    graph = _Growing(count, edges)
    for nodes, times in repeated:
        for _ in range(times - 1):
            graph.copy(nodes)
    for nodes in pauses:
        graph.pause(nodes)
    found = graph.edges()
    total = count + len(graph.sources)
    if pause_at_end:
        leaves = set(range(total)) - {before for before, _, _ in found}
        found |= {(leaf, total, PLAIN) for leaf in leaves}
        graph.sources.append(PAUSE)
        total += 1
    _check_order(total, found)
    return CopyPlan(tuple(graph.sources), frozenset(found))


def plan_pauses(pieces: int) -> CopyPlan:
    """Plan a graph of nothing but pauses, one after the other."""
    return CopyPlan((PAUSE,) * pieces, frozenset((at, at + 1, PLAIN) for at in range(pieces - 1)))


class _Growing:
    """A graph while nodes are added.

    Attributes:
        sources: See ``CopyPlan``.
    """

    def __init__(self, count: int, edges: Collection[Edge]) -> None:
        self.sources: list[int] = []
        self._count = count
        self._edges = list(edges)
        self._from: dict[int, list[Edge]] = {}
        for edge in self._edges:
            self._from.setdefault(edge[0], []).append(edge)
        self._added: list[Edge] = []
        self._call: dict[int, int] = {}  # the call that a node is repeated with
        self._last: dict[int, int] = {}  # its last copy
        self._pause: dict[int, int] = {}  # the pause after it

    def copy(self, nodes: Sequence[int]) -> None:
        """Run the nodes of a call once more, when their last copies have ended."""
        inside = self._inside(nodes)
        first = set(nodes) - {b for _, b, _ in inside}
        before = {node: self._last.get(node, node) for node in nodes}
        new = {node: self._add(node) for node in nodes}
        self._added += [(new[a], new[b], data) for a, b, data in inside]
        self._added += [(before[a], new[b], PLAIN) for a in _ends(nodes, inside) for b in first]
        self._last |= new
        self._call |= dict.fromkeys(nodes, nodes[0])

    def pause(self, nodes: Sequence[int]) -> None:
        """Let what follows the nodes of a call wait."""
        new = self._add(PAUSE)
        self._added += [(self._last.get(node, node), new, PLAIN) for node in _ends(nodes, self._inside(nodes))]
        self._pause |= dict.fromkeys(nodes, new)
        self._call |= dict.fromkeys(nodes, nodes[0])

    def edges(self) -> set[Edge]:
        """All edges as they are now."""
        return {*self._added, *(self._rewired(edge) for edge in self._edges)}

    def _inside(self, nodes: Collection[int]) -> list[Edge]:
        return [edge for node in nodes for edge in self._from.get(node, ()) if edge[1] in nodes]

    def _add(self, source: int) -> int:
        self.sources.append(source)
        return self._count + len(self.sources) - 1

    def _rewired(self, edge: Edge) -> Edge:
        before, after, data = edge
        if before in self._call and self._call[before] == self._call.get(after):
            return edge
        if before in self._pause:
            return self._pause[before], after, PLAIN
        return self._last.get(before, before), after, data


def _ends(nodes: Iterable[int], inside: Iterable[Edge]) -> set[int]:
    """Nodes of a call that no other of it follows."""
    return set(nodes) - {before for before, _, _ in inside}


def _check_order(count: int, edges: Collection[Edge]) -> None:
    """Raise unless the nodes can run one after the other (Kahn's algorithm)."""
    waiting = [0] * count
    after: Mapping[int, list[int]] = {node: [] for node in range(count)}
    for before, node, _ in edges:
        waiting[node] += 1
        after[before].append(node)
    ready = [node for node in range(count) if not waiting[node]]
    ran = 0
    while ready:
        ran += 1
        for node in after[ready.pop()]:
            waiting[node] -= 1
            if not waiting[node]:
                ready.append(node)
    if ran < count:
        raise VariantRefusedError("interleaved", "kernels of one call run before and after others of the graph")
