"""A change to a file of ``mutable``, what must hold of what is read then, and how tables change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from mutable import Sample, Table

SAME = "same"
"""The change means nothing: all figures and the trust in them are those of the file that was changed."""
TRUE = "true"
"""The file is read into a Run that opens, or refused in one line. A Run that fails no more checks than that of the file
that was changed has its figures."""
DOUBT = "doubt"
"""Likewise, and the Run fails a check that that of the file didn't."""


@dataclass(frozen=True)
class Mutation:
    """A changed file.

    Attributes:
        data: The file.
        holds: What must hold, one of the above.
        like: The file to compare with.
        factor: Its power and energy are so many times those.
        within: How far they may be from that, as a ratio.
        compared: Which sums of ``judged.Read`` are compared.
        narrowest: The half-width of its power is at least so many times that of the file to compare with.
        options, like_options: Of ``jouletrace import`` for the one and the other.
        said: How it was changed.
    """

    data: bytes
    holds: str
    like: bytes
    factor: float = 1.0
    within: float = 1e-6
    compared: tuple[str, ...] = ("power_w", "energy_total_j", "time_s")
    narrowest: float = 0.0
    options: tuple[str, ...] = ()
    like_options: tuple[str, ...] = ()
    said: str = ""


Family = Callable[[Sample, Random], Mutation | None]


def of_table(holds: str, **more: Any) -> Callable[[Callable[[Table, Random], Table | None]], Family]:
    """Makes a family of what changes a table."""

    def of(change: Callable[[Table, Random], Table | None]) -> Family:
        def family(sample: Sample, draw: Random) -> Mutation | None:
            changed = change(sample.table, draw) if sample.table is not None else None
            return None if changed is None else Mutation(changed.data(), holds, sample.whole, **more)

        return family

    return of


def put(table: Table, row: int, column: int, cell: str) -> Table:
    rows = [list(cells) for cells in table.rows]
    rows[row][column] = cell
    return replace(table, rows=tuple(map(tuple, rows)))


def columns(table: Table, places: Sequence[int]) -> Table:
    """Those columns, in that order."""
    rows = tuple(tuple(cells[n] for n in places) for cells in table.rows)
    roles = {role: places.index(n) for role, n in table.roles.items() if isinstance(n, int) and n in places}
    roles["devices"] = tuple(places.index(n) for n in table.roles.get("devices", ()) if n in places)
    return replace(table, header=tuple(table.header[n] for n in places), rows=rows, roles=roles)


def with_column(table: Table, at: int, heading: str, cells: Sequence[str]) -> Table:
    rows = tuple((*row[:at], cell, *row[at:]) for row, cell in zip(table.rows, cells, strict=True))
    return replace(table, header=(*table.header[:at], heading, *table.header[at:]), rows=rows)


def devices(table: Table) -> list[tuple[str, ...]]:
    """The columns that name the device of each row."""
    return [tuple(row[n] for n in table.roles.get("devices", ())) for row in table.rows]
