"""Tables of the report: each cell with the text that is read, the number it sorts by, and its interval drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jouletrace.report import reasons
from jouletrace.report.document import Cell, Footnotes, Section, printable
from jouletrace.report.parts import table as parts_table
from jouletrace.report.results import Results
from jouletrace.report.scale import NONE, cell, unit_for
from jouletrace.run import Estimate, Run
from jouletrace.run.names import short_names
from jouletrace.run.tables import UnitRow

MOST_ROWS = 1000
"""Rows that a table has in the page; of more, the costliest are shown and the rest is counted."""

_LEVELS = ("device", "phase", "range", "layer", "op", "kernel")
_FIRST = ("energy_total_j", "energy_active_j", "share", "time_s", "power_w")
"""Figures of parts that are always shown; the others stand behind "all columns"."""

_DRAWN = {"energy_total_j", "time_s"}


@dataclass(frozen=True)
class Heading:
    """A column: its name, what it is called in CSV, whether it holds numbers, whether it is always shown."""

    name: str
    key: str
    numeric: bool = False
    aside: bool = False


@dataclass
class Table:
    """A table with the lines below it."""

    id: str
    title: str
    headings: list[Heading]
    rows: list[list[Cell]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def has_more(self) -> bool:
        """Whether some columns are shown on request only."""
        return any(heading.aside for heading in self.headings)


def parts(run: Run, results: Results, marks: Footnotes | None = None) -> list[Table]:
    """A table for each level that the Run has units of; ``marks`` are the footnotes of the page."""
    marks = Footnotes(marks)
    levels = [level for level in _LEVELS if results.units(level)]
    if "kernel" in levels and "op" in levels and not results.apart():
        levels.remove("op")  # shown with their kernels
    found: list[Table] = []
    for level in levels:
        table, untold = _parts(run, results, level, marks)
        found += [table, *([_unattributed(results, untold)] if untold else [])]
    return found


def of_section(section: Section, id: str, title: str | None = None) -> Table:
    """A table as the terminal has it."""
    headings = [Heading(column.name, column.key or column.name or "name", column.numeric) for column in section.columns]
    rows = [[text if isinstance(text, Cell) else Cell(text) for text in row] for row in section.rows]
    return Table(id, title if title is not None else section.title, headings, rows, list(section.notes))


def kernels(names: Sequence[str]) -> list[Cell]:
    """Kernels by their short names, which are unique within a table."""
    short = short_names(names)
    texts = [printable(short[name]) for name in names]
    return [Cell(t, full="" if t == (full := printable(n)) else full) for t, n in zip(texts, names, strict=True)]


def plain(id: str, title: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> Table:
    """A table of names and plain numbers.

    Args:
        id: Unique in the report.
        title: Its heading.
        columns: Name and unit of each: "" for text, "1" for counts, else an SI unit to be scaled.
        rows: Values in SI units, text, cells that are ready, or None.
    """
    units = [
        unit_for([row[n] for row in rows if row[n] is not None], unit) if unit else None
        for n, (_, unit) in enumerate(columns)
    ]
    table = Table(id, title, [])
    for (name, own), unit in zip(columns, units, strict=True):
        key = f"{name} ({own})" if own not in ("", "1") else name
        shown = f"{name} ({unit.name})" if unit is not None and unit.name else name
        table.headings.append(Heading(shown, key, numeric=unit is not None))
    for row in rows[:MOST_ROWS]:
        cells = []
        for value, unit, (_, own) in zip(row, units, columns, strict=True):
            if isinstance(value, Cell):
                cells.append(value)
            elif unit is None:
                cells.append(Cell(printable(str("" if value is None else value))))
            elif value is None:
                cells.append(Cell(NONE))
            else:
                text = str(value) if own == "1" and isinstance(value, int) else cell(Estimate(float(value)), unit)
                cells.append(Cell(text, float(value)))
        table.rows.append(cells)
    if len(rows) > MOST_ROWS:
        table.notes.append(f"{len(rows) - MOST_ROWS} more rows are in the Run.")
    return table


def _unattributed(results: Results, units: Sequence[UnitRow]) -> Table:
    """Kernels that no part accounts for: what the trace says of them."""
    names = kernels([str(unit["name"] or "?") for unit in units])
    rows = [
        (name, unit["count"], results.get("time_traced_s", unit["id"]).value, _why_untold(results, unit["id"]))
        for name, unit in zip(names, units, strict=True)
    ]
    rows.sort(key=lambda row: -(row[2] or 0.0))
    columns = [("kernel", ""), ("launches", "1"), ("time, traced", "s"), ("why", "")]
    return plain("unattributed", "Kernels not attributed", columns, rows)


def _why_untold(results: Results, unit: int) -> str:
    codes = dict.fromkeys(figure.estimate.reason for figure in results.metrics(unit).values())
    return "; ".join(reasons.reason(code) for code in codes if code not in (None, "not_measured"))


def _parts(run: Run, results: Results, level: str, marks: Footnotes) -> tuple[Table, list[UnitRow]]:
    """The costliest units of a level, with rarely used figures hidden at first; and kernels that belong to none."""
    section, rest, untold = parts_table(run, results, level, MOST_ROWS, marks, ranked=True)
    found = of_section(section.printable(), level)
    metrics = {name for unit in results.units(level) for name in results.metrics(unit["id"])}
    aside = metrics - {*_FIRST} | ({"shapes"} if level == "kernel" else set())
    found.headings = [replace(h, name=h.name or h.key, aside=h.key in aside) for h in found.headings]
    for place, heading in enumerate(found.headings):
        if heading.key in _DRAWN:
            _draw([row[place] for row in found.rows])
    if rest:
        text = f"{len(rest)} more rows, the cheapest, are in the Run: jouletrace show --detail {level}"
        found.notes.append(text)
    return found, untold


def _draw(cells: Sequence[Cell]) -> None:
    """Bars: start, end, value and zero in percent of the column's range, which holds zero."""
    ends = [x for one in cells for x in (one.value, one.low, one.high) if x is not None]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    for one in cells:
        if one.value is not None and high > low:
            start, end = (one.value if edge is None else edge for edge in (one.low, one.high))
            one.bar = tuple(round(100 * (x - low) / (high - low), 2) for x in (start, end, one.value, 0.0))
