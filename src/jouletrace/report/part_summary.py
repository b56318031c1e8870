"""The text of a summary of layers or kernels over the runs of a profiler."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from jouletrace.report.table import Column, Table
from jouletrace.report.terminal import text
from jouletrace.run import Estimate
from jouletrace.words import reasons
from jouletrace.words.reasons import printed
from jouletrace.words.scale import NONE, PrintedUnit, cell, unit_for

WIDTH = 80
"""Columns of a printed summary."""


def text_of_parts(summary: Any, most: int) -> str:
    """Header and the ``most`` costliest rows of a ``profiler.detail.summary.Summary`` as text."""
    lines = [f"{summary.noun} profile, {summary.runs} run{'s' if summary.runs > 1 else ''}".capitalize()]
    if summary.simulated:
        lines.append("SIMULATED: a simulated GPU, no hardware was measured")
    lines.append(f"Device        {summary.device}")
    for label, figure, unit, scale in (
        ("Time", summary.time, "ms", 1e3),
        ("Energy", summary.energy, "J", 1.0),
        ("Mean power", summary.power, "W", 1.0),
    ):
        each = " per iteration" if unit != "W" and figure.value is not None else ""
        lines.append(f"{label:13} {_figure(figure, unit, scale)}{each}")
    lines.append(f"{'Closure':13} {_figure(summary.closure, summary.parts, 1.0)}")
    lines += [f"Warning       {message}" for message in summary.warnings]
    lines = [part for line in lines for part in wrap(line, WIDTH, subsequent_indent=" " * 14)]
    lines += ["", text(_table(summary, summary.rows[:most]), WIDTH).rstrip("\n")]
    if len(summary.rows) > most:
        rest = [row.energy.total for row in summary.rows[most:] if row.energy.total is not None]
        together = f", together {_number(sum(rest))} J" if rest else ""
        lines.append(f"{len(summary.rows) - most} more{together}")
    return "\n".join(lines)


def _table(summary: Any, shown: Sequence[Any]) -> Table:
    """The rows as a table: the spread of one execution stands where there is room; ``to_pandas`` has it all."""
    with_energy = any(row.energy.total is not None for row in summary.rows)
    unit = unit_for([row.energy.total for row in shown], "J")
    figures = (("each", 1), ("std", 2), ("min", 3), ("max", 4)) if with_energy else ()
    columns = [Column(summary.noun, long="middle"), *(Column(head, numeric=True) for head in ("×", "time (ms)"))]
    columns += [Column("energy", unit=unit)] if with_energy else []
    columns += [Column(head, wide=wide, unit=unit) for head, wide in figures]
    table = Table("", columns)
    for row in shown:
        e, time_s = row.energy, row.time.total
        cells: list[Any] = [printed(row.name), str(row.count), _number(None if time_s is None else time_s * 1e3)]
        if with_energy:
            cells.append("" if e.total is None else Estimate(e.total, e.low, e.high))
            cells += [
                _number(None if joules is None else joules / unit.factor) for joules in (e.mean, e.std, e.min, e.max)
            ]
        table.rows.append(cells)
    return table


def _figure(figure: Estimate, unit: str, scale: float) -> str:
    if figure.value is None:
        return f"{NONE} ({reasons.reason(figure.reason)})"
    return f"{cell(figure, PrintedUnit(1 / scale, unit))} {unit}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
