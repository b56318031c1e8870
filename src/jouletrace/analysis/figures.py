"""Collecting figures into the ``results`` and ``units`` tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from jouletrace.run import Estimate, tables
from jouletrace.run.parts import ABSENT


class Figures:
    """Figures in the order in which they were added."""

    def __init__(self) -> None:
        self._figures: dict[tuple[int, str], Estimate] = {}
        self._units: list[Mapping[str, object]] = []
        self._last = 0

    def unit(self, id: int, level: str, name: str, parent: int | None = None, **columns: object) -> int:
        """Add a unit; returns its id."""
        self.keep([{"id": id, "parent": parent, "level": level, "name": name, **columns}])
        return id

    def keep(self, rows: Iterable[Mapping[str, object]]) -> None:
        """Take over rows of a ``units`` table as they are."""
        for row in rows:
            self._units.append(row)
            self._last = max(self._last, int(str(row["id"])))

    def keep_results(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take over rows of a ``results`` table as they are."""
        for row in rows:
            self.add(row["unit"], row["metric"], Estimate.from_dict(row))

    def reserve(self, ids: Iterable[int]) -> None:
        """Leave ids to units that are kept later."""
        self._last = max([self._last, *ids])

    def named(self, level: str) -> dict[str, int]:
        """Units of a level by name, where one alone has it."""
        rows = [(str(row["name"]), int(str(row["id"]))) for row in self._units if row["level"] == level]
        count = Counter(name for name, _ in rows)
        return {name: id for name, id in rows if count[name] == 1}

    def last_unit(self) -> int:
        """The highest id of a unit so far."""
        return self._last

    def add(self, unit: int, metric: str, estimate: Estimate, flags: Iterable[str] = ()) -> Estimate:
        """Add a figure of a unit, once, with more flags; returns it."""
        flags = tuple(dict.fromkeys([*estimate.flags, *flags]))
        return self._figures.setdefault((unit, metric), replace(estimate, flags=flags))

    def add_energy(self, unit: int, energy: Estimate, seconds: float, whole: float | None = None) -> None:
        """Add the energy of a unit, its mean power over its time, and its share of a whole if there is one."""
        own = replace(energy, budget={})
        self.add(unit, "energy_total_j", energy)
        if seconds or own.value is None:
            self.add(unit, "power_w", own.scaled(1 / seconds) if seconds else own)
        if whole:
            self.add(unit, "share", own.scaled(1 / whole))

    def change(self, unit: int, metric: str, estimate: Estimate) -> None:
        """Give a figure that was added another value."""
        self._figures[unit, metric] = estimate

    def has(self, unit: int, metric: str) -> bool:
        """True if a figure was added."""
        return (unit, metric) in self._figures

    def get(self, unit: int, metric: str) -> Estimate:
        """A figure that was added; null ("not_measured") if it wasn't."""
        return self._figures.get((unit, metric), ABSENT)

    def metrics(self, unit: int) -> list[str]:
        """Names of the figures that were added of a unit."""
        return [metric for owner, metric in self._figures if owner == unit]

    def results(self) -> pa.Table:
        """The ``results`` table."""
        rows: list[dict[str, object]] = [
            {
                "unit": unit,
                "metric": metric,
                **estimate.to_dict(),
                "flags": ",".join(estimate.flags) or None,
                "budget": json.dumps(dict(estimate.budget)) if estimate.budget else None,
            }
            for (unit, metric), estimate in self._figures.items()
        ]
        return tables.from_rows(rows, "results")

    def units(self) -> pa.Table:
        """The ``units`` table."""
        return tables.from_rows([dict(row) for row in self._units], "units")
