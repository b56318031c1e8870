"""Which nodes of a captured graph each operator call made, and how two captures differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jouletrace.errors import JouletraceError
from jouletrace.steps.cuda.graph_nodes import GraphNodes, Node

if TYPE_CHECKING:
    from jouletrace.steps.structure import Structure


class CapturedNodes:
    """Notes the nodes of a capture as they are made; ``read`` before it ends.

    Attributes:
        sequence: Each node with the place of the call that made it, None outside of all; in order.
    """

    def __init__(self, nodes: GraphNodes) -> None:
        self.sequence: list[tuple[int | None, Node]] = []
        self._nodes = nodes
        self._handles: list[tuple[int | None, int]] = []

    def observe(self, place: int | None) -> None:
        """Say that what was made since the last time belongs to ``place``; see ``Surgery``."""
        self._handles += [(place, int(handle)) for handle in self._nodes.new()]

    def read(self) -> None:
        """Look at all nodes; what was made since the last ``observe`` is outside."""
        self.observe(None)
        self.sequence = [(place, self._nodes.read(handle)) for place, handle in self._handles]

    def places(self) -> list[int]:
        """The places that made nodes, in order."""
        return sorted({place for place, _ in self.sequence if place is not None})

    def of(self, place: int | None) -> list[Node]:
        """The nodes of a call, or with None those outside of all."""
        return [node for at, node in self.sequence if at == place]


def check_same(one: CapturedNodes, other: CapturedNodes, what: str) -> None:
    """Raise unless two captures have the same nodes in the same order, whoever made them.

    Raises:
        JouletraceError: Naming the first that differs; ``what`` is captured in ``other``.
    """
    _compare([node for _, node in one.sequence], [node for _, node in other.sequence], what)


def check_changed(
    reference: CapturedNodes, variant: CapturedNodes, multiplicities: Mapping[int, int], structure: Structure
) -> None:
    """Raise unless a variant has the reference's nodes, those of changed calls as often as asked for.

    Raises:
        JouletraceError: Naming the operator and the first node that differs.
    """
    wanted, found = _by_place(reference), _by_place(variant)
    for place in (*range(len(structure.calls)), None):
        times, what = (1, "what no operator launches") if place is None else (multiplicities.get(place, 1), "")
        if place is not None:
            op, shapes, module, _ = structure.calls[place].key
            what = f"{op} {shapes}" + (f" in {module}" if module else "")
        _compare(wanted.get(place, []) * abs(times), found.get(place, []), what)


def _by_place(captured: CapturedNodes) -> dict[int | None, list[Node]]:
    found: dict[int | None, list[Node]] = {}
    for place, node in captured.sequence:
        found.setdefault(place, []).append(node)
    return found


def _compare(wanted: Sequence[Node], found: Sequence[Node], what: str) -> None:
    for i, (one, other) in enumerate(zip(wanted, found, strict=False)):
        if one != other:
            raise JouletraceError(f"other kernels in {what}: kernel {i} is {other}, in the untouched step {one}")
    if len(wanted) != len(found):
        raise JouletraceError(f"other kernels in {what}: {len(found)} for {len(wanted)} in the untouched step")
