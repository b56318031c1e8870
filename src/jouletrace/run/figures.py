"""Rows of ``units``, and figures of them, as a Run is recorded or analysed; ``run.parts`` reads what was written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from jouletrace.run import tables
from jouletrace.run.estimate import Estimate
from jouletrace.run.model import MODEL_UNIT, Run
from jouletrace.run.parts import ABSENT
from jouletrace.run.recording_names import IDLE_NAME


class Units:
    """Rows by id, in the order in which they were added. New ones have the ids after the highest so far.

    Attributes:
        rows: Of the table.
    """

    def __init__(self, before: Units | None = None) -> None:
        """Without rows; numbered on from those ``before``."""
        self.rows: dict[int, Mapping[str, Any]] = {}
        self._last: int = MODEL_UNIT if before is None else before._last
        self._ids: dict[tuple[Any, ...], int] = {}

    def add(
        self, level: str, name: str, parent: int | None = MODEL_UNIT, *, id: int | None = None, **columns: Any
    ) -> int:
        """Add a unit; returns its id."""
        id = self._last + 1 if id is None else id
        self.keep([{"id": id, "parent": parent, "level": level, "name": name, **columns}])
        return id

    def after(self, ids: Iterable[int]) -> None:
        """Leave these ids to rows that are added with theirs."""
        self._last = max([self._last, *ids])

    def keep(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take over rows as they are, in place of those with the same ids."""
        for row in rows:
            self.rows[row["id"]] = row
            self._last = max(self._last, row["id"])

    def once(self, key: tuple[Any, ...], level: str, name: str, parent: int, count: int = 0, **columns: Any) -> int:
        """The id of the unit of a key, added when it is first asked for; ``count`` is added to how often it runs."""
        if key not in self._ids:
            self._ids[key] = self.add(level, name, parent, **columns)
        row = self.rows[self._ids[key]]
        self.rows[self._ids[key]] = {**row, "count": (row.get("count") or 0) + count or None}
        return self._ids[key]

    def idle(self, top: int = MODEL_UNIT) -> int:
        """Add the unit for the time in which no kernel runs."""
        return self.add("op", IDLE_NAME, top, count=1)

    def table(self) -> pa.Table:
        """The table ``units``."""
        return tables.from_rows([dict(row) for row in self.rows.values()], "units")


class Figures:
    """Figures in the order in which they were added, and the units that they are of.

    Attributes:
        units: Of the Run; figures of others aren't shown.
    """

    def __init__(self) -> None:
        self._figures: dict[tuple[int, str], Estimate] = {}
        self.units = Units()

    def model(self, name: str) -> None:
        """Add the unit of the whole."""
        self.units.add("model", name, None, id=MODEL_UNIT, count=1)

    def keep_results(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take over rows of a ``results`` table as they are."""
        for row in rows:
            self.add(row["unit"], row["metric"], Estimate.from_dict(row))

    def add(self, unit: int, metric: str, estimate: Estimate, flags: Iterable[str] = ()) -> Estimate:
        """Add a figure of a unit, once, with more flags; returns it."""
        flags = tuple(dict.fromkeys([*estimate.flags, *flags]))
        return self._figures.setdefault((unit, metric), replace(estimate, flags=flags))

    def add_each(self, unit: int, figures: Mapping[str, Estimate], flags: Iterable[str] = ()) -> None:
        """Add figures of a unit by metric."""
        for metric, estimate in figures.items():
            self.add(unit, metric, estimate, flags)

    def add_energy(self, unit: int, energy: Estimate, seconds: float, whole: float | None = None) -> None:
        """Add the energy of a unit, its mean power over its time, and its share of a whole if there is one."""
        bare = replace(energy, budget={})
        self.add(unit, "energy_total_j", energy)
        if seconds or bare.value is None:
            self.add(unit, "power_w", bare.scaled(1 / seconds) if seconds else bare)
        if whole:
            self.add(unit, "share", bare.scaled(1 / whole))

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

    def become(self, run: Run) -> None:
        """Make them the figures of a Run, in place of those that it has."""
        run.units, run.results = self.units.table(), self._results()

    def _results(self) -> pa.Table:
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
