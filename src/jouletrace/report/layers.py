"""Layers as rows of a table: each under the module around it."""

from __future__ import annotations

from jouletrace.report.results import Figure, Results
from jouletrace.run.tables import UnitRow

_OWN = {"time_own_s": "time_s", "energy_own_j": "energy_total_j"}
"""What a module with others in it runs itself is a row among theirs."""

Row = tuple[str, dict[str, Figure]]
"""Name within the module around it, indented by depth; figures by metric."""


def rows(results: Results, least: float = 0.0) -> list[Row]:
    """The layers, outer modules first, then what no operator accounts for.

    Args:
        results: The figures.
        least: Smallest share of the whole of a layer that is listed.
    """
    units = [u for u in results.units("layer") if (results.get("share", u["id"]).value or 0.0) >= least]
    known = {unit["id"] for unit in units}
    children: dict[int | None, list[UnitRow]] = {}
    for unit in units:
        children.setdefault(unit["parent"] if unit["parent"] in known else None, []).append(unit)
    found: list[Row] = []
    waiting = [(unit, 0) for unit in reversed(children.get(None, []))]
    while waiting:
        unit, depth = waiting.pop()
        figures, name = dict(results.metrics(unit["id"])), str(unit["name"] or "?")
        own = {_OWN[metric]: figures.pop(metric) for metric in _OWN if metric in figures}
        found.append(("  " * depth + (name.rpartition(".")[2] if depth else name), figures))
        if own and not least:
            found.append(("  " * (depth + 1) + "(own operators)", own))
        waiting += [(child, depth + 1) for child in reversed(children.get(unit["id"], []))]
    return found + [(str(unit["name"]), results.metrics(unit["id"])) for unit in results.outside() if found]
