"""Collecting figures into the ``results`` and ``units`` tables."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from jouletrace.run import Estimate, tables


class Figures:
    """Figures in the order in which they were added."""

    def __init__(self) -> None:
        self._results: list[dict[str, object]] = []
        self._units: list[dict[str, object]] = []

    def unit(self, id: int, level: str, name: str, parent: int | None = None, **columns: object) -> int:
        """Add a unit; returns its id."""
        self._units.append({"id": id, "parent": parent, "level": level, "name": name, **columns})
        return id

    def add(self, unit: int, metric: str, estimate: Estimate, flags: Iterable[str] = ()) -> Estimate:
        """Add a figure of a unit; returns it."""
        row: dict[str, object] = {"unit": unit, "metric": metric, **estimate.to_dict()}
        row["flags"] = ",".join(dict.fromkeys(flags)) or None
        self._results.append(row)
        return estimate

    def results(self) -> pa.Table:
        """The ``results`` table."""
        return tables.from_rows(self._results, "results")

    def units(self) -> pa.Table:
        """The ``units`` table."""
        return tables.from_rows(self._units, "units")
