"""Equal neighbours in a tree of parts as one: twelve layers that share one experiment say the same twelve times."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from jouletrace.report.layers import SHARED
from jouletrace.report.node import Node
from jouletrace.run import Estimate


def folded(nodes: Sequence[Node]) -> list[Node]:
    """A tree in which numbered neighbours of equal figures, with equal parts in them, are one node: "layers.0–11".

    Their energy and time are of all of them together; one estimate so many times, so its interval grows as it does.

    Args:
        nodes: A tree, each node behind the one around it.
    """
    below: dict[str, list[Node]] = {}
    for node in nodes:
        below.setdefault(node.parent, []).append(node)
    signs: dict[str, Hashable] = {}
    for node in reversed(nodes):
        inside = tuple((child.label, signs[child.key]) for child in below.get(node.key, []))
        signs[node.key] = (node.level, _digits(node.energy), _digits(node.time), inside)
    found: list[Node] = []
    waiting = [(run, 1) for run in reversed(_runs(below.get("", []), signs))]
    while waiting:
        run, times = waiting.pop()
        times *= len(run)
        found.append(_together(run, times))
        waiting += [(inside, times) for inside in reversed(_runs(below.get(run[0].key, []), signs))]
    return found


def _runs(siblings: Sequence[Node], signs: dict[str, Hashable]) -> list[list[Node]]:
    """Siblings in order, equal numbered neighbours together."""
    runs: list[list[Node]] = []
    for node in siblings:
        first = runs[-1][0] if runs else None
        stem = _stem(node)
        if first is not None and stem and stem == _stem(first) and signs[first.key] == signs[node.key]:
            runs[-1].append(node)
        else:
            runs.append([node])
    return runs


def _stem(node: Node) -> str:
    """What a numbered layer is called before its number; "" for what has none."""
    name, dot, number = node.label.rpartition(".")
    return name + dot if node.level == "layer" and number.isdecimal() else ""


def _together(run: Sequence[Node], times: int) -> Node:
    node = run[0]
    if times == 1:
        return node
    label = node.label if len(run) == 1 else f"{node.label}–{run[-1].label.rpartition('.')[2]}"
    remarks = tuple(code for code in node.remarks if code != SHARED)
    energy, time = node.energy.scaled(times), node.time.scaled(times)
    return replace(node, label=label, energy=energy, time=time, remarks=remarks, how=f"{times} equal ones together")


def _digits(estimate: Estimate) -> Hashable:
    """A figure to six digits: shares of one experiment differ by the rounding of computers."""
    ends = (estimate.value, estimate.low, estimate.high)
    return tuple(None if end is None else f"{end:.6g}" for end in ends)
