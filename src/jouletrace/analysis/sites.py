"""What of each measured part runs where: the ground of every sum over parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]

Kind = tuple[str, str]
"""An operator and the shapes and types of its inputs: what is of one kind does the same work."""


@dataclass(frozen=True)
class Site:
    """A part in one of its modules.

    Attributes:
        row: Its row of the ``units`` table.
        part: Id of the part that was measured: its own, or the pool that this is in.
        share: Its share of that part, by launches; of a pool, by traced time too where kernels were traced.
        traced: Whether they were.
    """

    row: Row
    part: int
    share: float
    traced: bool

    @property
    def kind(self) -> Kind:
        """What runs there."""
        return self.row.get("op") or self.row["name"], self.row.get("shapes") or ""

    @property
    def weight(self) -> float:
        """How often it counts in all for once in the experiment's step."""
        return float(self.row.get("weight") or 1.0)


def shares_of(sites: Iterable[Site]) -> dict[int, float]:
    """Share of each part that some sites have together, by id."""
    found: dict[int, float] = {}
    for site in sites:
        found[site.part] = found.get(site.part, 0.0) + site.share
    return found


def sites_of(rows: Sequence[Row], traced: Mapping[int, float]) -> list[Site]:
    """All sites of an experiment, whose shares of each measured part sum to one.

    Args:
        rows: The ``units`` table.
        traced: Seconds of an iteration in each part, by id, as far as traced.
    """
    ops = {row["id"]: row for row in rows if row["level"] == "op"}
    all_of: dict[int, float] = {}
    for row in (row for row in rows if row["level"] == "site"):
        all_of[row["parent"]] = all_of.get(row["parent"], 0.0) + _launches(row)
    found: list[tuple[Row, int, float, float]] = []
    by_count: dict[int, float] = {}
    by_time: dict[int, float] = {}
    for row in (row for row in rows if row["level"] == "site"):
        own = ops[row["parent"]]
        part = int(own["parent"] if own["parent"] in ops else own["id"])
        launches = _launches(row) / all_of[own["id"]]
        seconds = launches * traced.get(own["id"], 0.0)
        found.append((row, part, launches, seconds))
        by_count[part] = by_count.get(part, 0.0) + launches
        by_time[part] = by_time.get(part, 0.0) + seconds
    return [
        Site(row, part, seconds / by_time[part], True)
        if by_time[part] > 0
        else Site(row, part, launches / by_count[part], False)
        for row, part, launches, seconds in found
    ]


def _launches(row: Row) -> float:
    """In an iteration; of what an experiment ran once for many, in all of them."""
    return float(row["count"] * (row.get("weight") or 1.0))
