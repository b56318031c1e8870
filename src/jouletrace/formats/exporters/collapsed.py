"""Collapsed stacks, a line each, for flamegraph.pl, speedscope and inferno: the energy of each part in millijoules."""

from __future__ import annotations

from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.report.results import Results
from jouletrace.report.tree import Node, tree
from jouletrace.run import Run
from jouletrace.run.files import write_whole
from jouletrace.run.store import check_free


def write(run: Run, path: Path | str) -> Path:
    """Write ``train.py;forward;layer1;conv 12345`` for each part, without what its own parts take.

    Raises:
        BadInputError: If the path exists, or the Run has no energies.
    """
    target = check_free(path)
    lines = [f"{';'.join(_word(name) for name in names)} {round(1e3 * joules)}" for names, joules in stacks(run)]
    write_whole(target, ("\n".join(lines) + "\n").encode())
    return target


def stacks(run: Run) -> list[tuple[list[str], float]]:
    """Names from the whole inwards, and joules of a part less those of its own parts; nothing below 0.5 mJ.

    Raises:
        BadInputError: If the Run has no energies.
    """
    nodes = tree(run, Results(run))
    by_key = {node.key: node for node in nodes}
    own = {node.key: node.energy.value or 0.0 for node in nodes}
    for node in nodes:
        if node.parent in own:
            own[node.parent] -= node.energy.value or 0.0
    found = [(_names(node, by_key), own[node.key]) for node in nodes if own[node.key] >= 5e-4]
    if not found:
        raise BadInputError("this Run has no energies to draw as stacks")
    return found


def _names(node: Node, by_key: dict[str, Node]) -> list[str]:
    names = [node.label]
    while node.parent in by_key:
        node = by_key[node.parent]
        names.append(node.label)
    return names[::-1]


def _word(name: str) -> str:
    """A name without what separates stacks."""
    return " ".join(name.replace(";", ":").split())
