"""Collecting figures into the ``results`` and ``units`` tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from jouletrace.run import Estimate, tables
from jouletrace.run.parts import ABSENT

Sources = dict[str, float]
"""Standard uncertainties of a figure by what they come from, in its unit."""


class Figures:
    """Figures in the order in which they were added.

    Attributes:
        sources: What the interval of a figure consists of, by unit and metric.
    """

    def __init__(self) -> None:
        self._figures: dict[tuple[int, str], Estimate] = {}
        self._units: list[Mapping[str, object]] = []
        self._last = 0
        self.sources: dict[tuple[int, str], Callable[[], Sources]] = {}

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
            found = Estimate.from_dict(row)
            self.add(row["unit"], row["metric"], found, found.flags)

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
        """Add a figure of a unit, once, with these flags alone; returns it."""
        return self._figures.setdefault((unit, metric), replace(estimate, flags=tuple(dict.fromkeys(flags))))

    def add_each(self, unit: int, found: Mapping[str, Estimate], flags: Iterable[str] = ()) -> None:
        """Add figures of a unit by metric."""
        for metric, estimate in found.items():
            self.add(unit, metric, estimate, flags)

    def change(self, unit: int, metric: str, estimate: Estimate, flag: str) -> None:
        """Give a figure with an interval another one, and a flag; nothing if it has none."""
        before = self.get(unit, metric)
        if before.half_width is not None:
            self._figures[unit, metric] = replace(estimate, flags=(*before.flags, flag))

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
                "budget": self._budget(unit, metric, estimate),
            }
            for (unit, metric), estimate in self._figures.items()
        ]
        return tables.from_rows(rows, "results")

    def _budget(self, unit: int, metric: str, estimate: Estimate) -> str | None:
        """The budget of a figure as JSON; None where it isn't known."""
        if (unit, metric) not in self.sources or estimate.value is None:
            return json.dumps(dict(estimate.budget)) if estimate.budget else None
        return json.dumps(self.sources[unit, metric]())

    def units(self) -> pa.Table:
        """The ``units`` table."""
        return tables.from_rows([dict(row) for row in self._units], "units")
