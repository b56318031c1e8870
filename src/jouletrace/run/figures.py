"""The figures of a Run as they are collected: what writes its ``units`` and ``results``, which ``run.parts`` reads."""

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
from jouletrace.run.units import Units


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

    def add_each(self, unit: int, found: Mapping[str, Estimate], flags: Iterable[str] = ()) -> None:
        """Add figures of a unit by metric."""
        for metric, estimate in found.items():
            self.add(unit, metric, estimate, flags)

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
