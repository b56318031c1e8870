"""Layers as a tree: each under the module around it, equal ones folded into one row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jouletrace.report.results import Figure, Results

Unit = dict[str, Any]

INDENT = "  "
SHARED = "grouped"
"""Flag of layers that share one experiment: their figures are one estimate, not several that agree."""


_OWN = {"time_own_s": "time_s", "energy_own_j": "energy_total_j"}
"""What a module with others in it runs itself is a row among theirs."""


@dataclass(frozen=True)
class Line:
    """A row of the tree.

    Attributes:
        label: Name within the module around it, indented by depth; "0–11" for folded ones.
        units: Ids of the layers it stands for, at least one.
        figures: Of all of them together.
    """

    label: str
    units: tuple[int, ...]
    figures: dict[str, Figure]


def lines(results: Results) -> list[Line]:
    """The tree, outer modules first."""
    units = results.units("layer")
    known = {unit["id"] for unit in units}
    children: dict[int | None, list[Unit]] = {}
    for unit in units:
        children.setdefault(unit["parent"] if unit["parent"] in known else None, []).append(unit)
    tree = list(_walk(results, children, [(unit,) for unit in children.get(None, [])], 0))
    rest = results.outside() if tree else []
    return tree + [Line(str(unit["name"]), (unit["id"],), results.metrics(unit["id"])) for unit in rest]


def _walk(
    results: Results, children: dict[int | None, list[Unit]], rows: Sequence[tuple[Unit, ...]], depth: int
) -> Iterator[Line]:
    """Lines of some rows and all below them; a row is one layer, or equal ones of equal modules."""
    for row in _folded(results, rows):
        figures, ids = _together(results, row), tuple(unit["id"] for unit in row)
        own = {_OWN[name]: figures.pop(name) for name in _OWN if name in figures}
        yield Line(INDENT * depth + _label(row, whole=depth == 0), ids, figures)
        if own:
            yield Line(f"{INDENT * (depth + 1)}(own operators)", ids, own)
        below = [children.get(unit["id"], []) for unit in row]
        yield from _walk(results, children, list(zip(*below, strict=False)), depth + 1)


def _folded(results: Results, rows: Sequence[tuple[Unit, ...]]) -> list[tuple[Unit, ...]]:
    """Numbered neighbours whose figures are the same experiment's as one row."""
    found: list[tuple[Unit, ...]] = []
    for row in rows:
        if found and _alike(results, found[-1][0], row[0]):
            found[-1] += row
        else:
            found.append(row)
    return found


def _alike(results: Results, one: Unit, other: Unit) -> bool:
    if not (_last(one).isdecimal() and _last(other).isdecimal()):
        return False
    first, second = (results.metrics(unit["id"]) for unit in (one, other))
    return bool(first) and first == second and any(SHARED in figure.flags for figure in first.values())


def _last(unit: Unit) -> str:
    return str(unit["name"] or "?").rpartition(".")[2]


def _label(row: tuple[Unit, ...], whole: bool) -> str:
    names = list(dict.fromkeys(_last(unit) for unit in row))
    last = names[0] if len(names) == 1 else _span(names[0], names[-1])
    around = str(row[0]["name"] or "?").rpartition(".")[0]
    return f"{around}.{last}" if whole and around else last


def _span(first: str, last: str) -> str:
    """From one name to another, with a phase that both stand in once: "0–11", "0–11 (decode)"."""
    number, bracket, phase = first.partition(" (")
    same = bool(bracket) and last.endswith(bracket + phase)
    return f"{number}–{last}" if same else f"{first}–{last}"


def _together(results: Results, row: tuple[Unit, ...]) -> dict[str, Figure]:
    """Figures of equal layers in all: one estimate so many times, so its interval grows as it does."""
    n = len(row)
    return {
        name: Figure(figure.estimate if name == "power_w" else figure.estimate.scaled(n), _kept(figure, n))
        for name, figure in results.metrics(row[0]["id"]).items()
    }


def _kept(figure: Figure, n: int) -> tuple[str, ...]:
    """In all they are no longer shares of an experiment."""
    return tuple(flag for flag in figure.flags if n == 1 or flag != SHARED)
