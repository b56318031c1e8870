"""Tables of the report: each cell with the text that is read, the number it sorts by, and its interval drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jouletrace.report import intervals, reasons
from jouletrace.report.document import Cell, Footnotes, Section, printable
from jouletrace.report.metrics import metric, ordered
from jouletrace.report.parts import LEVELS, device_name, phase_name, told, units_of
from jouletrace.report.results import Figure, Results
from jouletrace.report.scale import NONE, Unit, cell, unit_for
from jouletrace.run import Estimate, Run
from jouletrace.run.names import short_names

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
        levels.remove("op")  # told with their kernels
    found = [_parts(run, results, level, marks) for level in levels]
    if "kernel" in levels:
        _, untold = told(results, results.ranked("kernel"))
        found += [_unattributed(results, untold)] if untold else []
    return found


def of_section(section: Section, id: str, title: str | None = None) -> Table:
    """A table as the terminal has it."""
    headings = [Heading(column.name, column.name or "name", column.numeric) for column in section.columns]
    rows = [[text if isinstance(text, Cell) else Cell(text) for text in row] for row in section.rows]
    return Table(id, title if title is not None else section.title, headings, rows, list(section.notes))


def kernels(names: Sequence[str]) -> list[Cell]:
    """Kernels by their short names, which tell those of one table apart."""
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


def _unattributed(results: Results, units: Sequence[dict[str, Any]]) -> Table:
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


def _parts(run: Run, results: Results, level: str, marks: Footnotes) -> Table:
    ranked = told(results, results.ranked(level))[0] if level == "kernel" else results.ranked(level)
    units = ranked[:MOST_ROWS]
    named = _names(run, units, level)
    placed = "module" in named and level == "kernel"
    headings = [Heading(name, name, aside=placed and name == "shapes") for name in named]
    table = Table(level, LEVELS[level], headings)
    table.rows = [[column[n] for column in named.values()] for n in range(len(units))]
    if any(unit["count"] is not None for unit in units):
        table.headings.append(Heading("×", "count", numeric=True))
        for row, unit in zip(table.rows, units, strict=True):
            row.append(Cell(str(unit["count"] or ""), None if unit["count"] is None else float(unit["count"])))
    figures = [results.metrics(unit["id"]) for unit in units]
    if level == "range":
        figures, table.notes = intervals.told_apart(run, results, units)
    footnotes = Footnotes(marks)
    there = {name for row in figures for name in row}
    metrics = [*(m for m in _FIRST if m in there), *(m for m in ordered(there) if m not in _FIRST)]
    scales = units_of(figures, metrics)
    for name in metrics:
        _add_figures(table, name, figures, footnotes, scales[name])
    _add_remarks(table, figures)
    table.notes += footnotes.lines()
    if len(ranked) > len(units):
        table.notes.append(
            f"{len(ranked) - len(units)} more rows, the cheapest, are in the Run: jouletrace show --detail {level}"
        )
    return table


def _names(run: Run, units: Sequence[dict[str, Any]], level: str) -> dict[str, list[Cell]]:
    """Columns that say which part a row is; those that would be empty are left out."""
    if level == "device":
        return {"device": [Cell(printable(device_name(run, unit))) for unit in units]}
    ran = [str(unit["name"] or "?") for unit in units if unit["level"] == "kernel"]
    short = dict(zip(ran, kernels(ran), strict=True))
    if level != "kernel" or not any(unit["op"] for unit in units):
        columns = {level: [phase_name(unit) if level == "phase" else unit["name"] or "?" for unit in units]}
        columns |= {"operator": [_unless(unit["op"], unit["name"]) for unit in units]}
        columns |= {"module": [_unless(unit["module"], unit["name"]) for unit in units]}
    else:
        columns = {"operator": [str(unit["op"] or unit["name"] or "?").removeprefix("aten.") for unit in units]}
        columns |= {"module": [unit["module"] or "" for unit in units]}
        columns |= {"kernel": [unit["name"] or "?" if unit["level"] == "kernel" else "" for unit in units]}
    columns |= {"shapes": [unit["shapes"] or "" for unit in units]}
    cells: dict[str, list[Cell]] = {}
    for name, column in columns.items():
        if any(column):
            named = short if name in ("kernel", "operator") else {}
            cells[name] = [named.get(text, Cell(printable(str(text)))) for text in column]
    return cells


def _unless(text: str | None, said: str | None) -> str:
    return "" if text is None or text == said else text


def _add_figures(
    table: Table, name: str, figures: Sequence[dict[str, Figure]], footnotes: Footnotes, unit: Unit
) -> None:
    """Add a column for a metric: one unit and one scale for all of it."""
    words = metric(name)
    estimates = [row[name].estimate if name in row else None for row in figures]
    shown = f"{words.short} ({unit.name})" if words.short and unit.name else words.short or unit.name
    table.headings.append(Heading(shown, name, numeric=True, aside=name not in _FIRST))
    ends = [x for e in estimates if e is not None for x in (e.value, e.low, e.high) if x is not None]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    for row, estimate in zip(table.rows, estimates, strict=True):
        if estimate is None:
            row.append(Cell(""))
        elif estimate.value is None:
            why = reasons.reason(estimate.reason)
            row.append(Cell(f"{NONE} {footnotes.mark(why)}", hint=why))
        else:
            bar = _bar(estimate, low, high) if name in _DRAWN and high > low else None
            row.append(Cell(cell(estimate, unit), estimate.value, estimate.low, estimate.high, bar, _said(estimate)))


def _bar(estimate: Estimate, low: float, high: float) -> tuple[float, ...]:
    """Start, end, value and zero in percent of the column's range, which holds zero."""
    assert estimate.value is not None
    start, end = (estimate.value if end is None else end for end in (estimate.low, estimate.high))
    return tuple(round(100 * (x - low) / (high - low), 2) for x in (start, end, estimate.value, 0.0))


def _said(estimate: Estimate) -> str:
    """How a figure came about."""
    said = [reasons.method(estimate.method)] if estimate.method else []
    return ", ".join([*said, *([f"n = {estimate.n}"] if estimate.n else [])])


def _add_remarks(table: Table, figures: Sequence[dict[str, Figure]]) -> None:
    """Flags of all figures of a row in words, where there are any."""
    remarks = [
        "; ".join(reasons.flag(code) for code in dict.fromkeys(c for found in row.values() for c in found.flags))
        for row in figures
    ]
    if any(remarks):
        table.headings.append(Heading("remarks", "remarks"))
        for row, remark in zip(table.rows, remarks, strict=True):
            row.append(Cell(printable(remark)))
