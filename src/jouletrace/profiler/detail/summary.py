"""Summary of layers or kernels over the runs of a profiler: one row per name, and a printable table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from jouletrace import higher
from jouletrace.profiler.detail.rows import TOP, PartRow, iteration_time
from jouletrace.run import Estimate, Run
from jouletrace.run.shown import Shown
from jouletrace.stats.interval import mean_estimate


@dataclass(frozen=True)
class PartSpread:
    """A figure per execution over the runs, and for all executions of an iteration.

    Attributes:
        mean: Per execution, mean over runs.
        std, min, max: Per execution, across runs; None with one run.
        total: Of all executions in an iteration, mean over runs.
        low, high: 95 % interval of the total; None where there is none.
    """

    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    total: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class SummaryRow:
    """All executions of a layer, or of a kernel, by name.

    Attributes:
        name: Name of the layer or kernel.
        count: Executions per iteration.
        time: Time in seconds.
        energy: Energy in joules.
        power_w: Mean power in watts; None if unknown.
    """

    name: str
    count: int
    time: PartSpread
    energy: PartSpread
    power_w: float | None


class Summary(Shown):
    """Summary of all runs of a profiler, whose ``noun`` is "layer" or "kernel"; ``print`` it, or read ``rows``."""

    def __init__(self, runs: Sequence[Run], tables: Sequence[Sequence[PartRow]], noun: str) -> None:
        self.noun = noun
        self.runs = len(runs)
        self.device = runs[0].devices[0].name
        self.simulated = runs[0].simulated
        self.time = _over_runs([iteration_time(run) for run in runs])
        self.energy = _over_runs([run.result("energy_total_j") for run in runs])
        self.power = _over_runs([run.result("power_w") for run in runs])
        self.closure = _over_runs([run.result("closure_layers") for run in runs])
        scaled = any("traced_at_cap" in run.result("closure_layers").flags for run in runs)
        self.parts = f"of the whole step{', to which the rows below are scaled' if scaled else ' in the rows below'}"
        self.warnings = list({warning.code: warning.message for run in runs for warning in run.warnings}.values())
        rows = [_row(name, of_runs) for name, of_runs in _by_name(tables).items()]
        by_energy = any(row.energy.total is not None for row in rows)
        self.rows: list[SummaryRow] = sorted(rows, key=lambda row: _cost(row, by_energy), reverse=True)

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame (pandas must be installed): milliseconds, joules, watts."""
        import pandas as pd

        return pd.DataFrame([self._columns(row) for row in self.rows])

    def __str__(self) -> str:
        """Header and the costliest rows as text."""
        return higher.text_of_parts(self, TOP)

    def _columns(self, row: SummaryRow) -> dict[str, object]:
        columns: dict[str, object] = {f"{self.noun}_name": row.name, "count": row.count}
        for prefix, spread, scale in (("duration_ms", row.time, 1e3), ("energy_j", row.energy, 1.0)):
            columns |= {
                f"{prefix}_{name}": None if value is None else value * scale for name, value in asdict(spread).items()
            }
        return {**columns, "avg_power_w": row.power_w}


def _by_name(tables: Sequence[Sequence[PartRow]]) -> dict[str, list[list[PartRow]]]:
    """Rows of each run by name, in the order of the first run that has it."""
    rows_of_name: dict[str, list[list[PartRow]]] = {}
    for i, table in enumerate(tables):
        for row in table:
            rows_of_name.setdefault(row.label, [[] for _ in tables])[i].append(row)
    return rows_of_name


def _row(name: str, of_runs: list[list[PartRow]]) -> SummaryRow:
    there = [rows for rows in of_runs if rows]
    count = max(1, sum(row.count for row in there[0]))
    time, energy = (_spread(there, count, pick) for pick in (lambda row: row.time, lambda row: row.energy))
    power = energy.total / time.total if energy.total is not None and time.total else None
    return SummaryRow(name, count, time, energy, power)


def _spread(of_runs: list[list[PartRow]], count: int, pick: Callable[[PartRow], Estimate]) -> PartSpread:
    sums = [_sum([pick(row) for row in rows]) for rows in of_runs]
    total = _over_runs(sums)
    if total.value is None:
        return PartSpread(*[None] * len(fields(PartSpread)))
    each = np.array([summed.value for summed in sums if summed.value is not None]) / count
    several = len(each) > 1
    return PartSpread(
        mean=total.value / count,
        std=float(each.std(ddof=1)) if several else None,
        min=float(each.min()) if several else None,
        max=float(each.max()) if several else None,
        total=total.value,
        low=total.low,
        high=total.high,
    )


def _sum(estimates: Sequence[Estimate]) -> Estimate:
    """A sum whose interval is valid for any correlation of its terms: half-widths are added; null if a term is null."""
    for estimate in estimates:
        if estimate.value is None:
            return estimate
    value = sum(estimate.value or 0.0 for estimate in estimates)
    halves = [estimate.half_width for estimate in estimates]
    if any(half is None for half in halves):
        return Estimate(value, n=min(estimate.n for estimate in estimates), method="sum")
    half = sum(half or 0.0 for half in halves)
    return Estimate(value, value - half, value + half, min(estimate.n for estimate in estimates), "sum")


def _over_runs(estimates: Iterable[Estimate]) -> Estimate:
    """Mean of runs, with the wider of two intervals: that of their spread, and the mean of their own intervals.

    A part of each run's error is common to all runs on a GPU (the sensor's response), and doesn't shrink with their
    number.
    """
    every = list(estimates)
    null = next((estimate for estimate in every if estimate.value is None), None)
    if null is not None or len(every) == 1:
        return null or every[0]
    between = mean_estimate([estimate.value or 0.0 for estimate in every], method="runs")
    value = between.value or 0.0
    half = max(between.half_width or 0.0, float(np.mean([estimate.half_width or 0.0 for estimate in every])))
    return Estimate(value, value - half, value + half, len(every), "runs")


def _cost(row: SummaryRow, by_energy: bool) -> float:
    value = row.energy.total if by_energy else row.time.total
    return -math.inf if value is None else value
