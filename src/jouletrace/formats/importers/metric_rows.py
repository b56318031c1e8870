"""Tables with one metric in each row: a column names it, and another holds the values of all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.delimited import Delimited
from jouletrace.formats.importers.stamps import read_stamps
from jouletrace.formats.importers.table_headings import find_columns, quantities
from jouletrace.run.names import cut

_VALUE = re.compile(r"_?(value|val|reading)", re.I)
_METRIC = re.compile(r"_?(field|metric)([ _]?(name|id))?|__name__", re.I)

_MOST_METRICS = 1000
"""A column with more different cells doesn't name metrics."""

_MOST_CELLS = 1 << 25
"""A quarter of a GiB of them: metrics that are read at times of their own fill most rows with blanks."""


def joined_rows(path: Path, table: Delimited, mapping: Mapping[str, str]) -> Delimited:
    """The table with a column for each metric and a row for each time and device; as it is where rows have several.

    The columns keep their numbers; those of metrics follow. ``mapping`` is the user's: of a table with one metric it
    may name the values.

    Raises:
        BadInputError: If it names the values of several metrics, or the table would take too much memory.
    """
    name, value = _metric_column(table)
    if name is None or value is None:
        return table
    metrics = {row[name] for row in table.rows}
    given = {part for wanted in mapping.values() for part in wanted.split("+")}
    if given & {str(value + 1), table.header[value]}:
        if len(metrics) == 1:
            return table
        example = min(metrics, key=lambda metric: ("W" not in quantities([metric]), metric))
        way = f"give the name of one in place of {table.header[value]!r}, such as --map power_w={cut(example)}"
        raise BadInputError(f"{path}: one metric in each row, named in {table.header[name]!r}: {way}")
    header = ["" if i in (name, value) else heading for i, heading in enumerate(table.header)]
    of_rows = {target: wanted for target, wanted in mapping.items() if re.match(r"time|device", target)}
    meaning = find_columns(header, of_rows, path)
    keys = [*(meaning.time.places if meaning.time else ()), *(column for _, column in meaning.device)]
    unit = next((i for i, heading in enumerate(header) if heading.lower() in ("unit", "units")), None)
    columns: dict[str, int] = {}
    rows: list[list[str]] = []
    first: list[int] = []
    newest: dict[tuple[str, ...], list[str]] = {}
    for number, cells in enumerate(table.rows):
        heading = cells[name] + (f" [{cells[unit]}]" if unit is not None and cells[unit] else "")
        column = columns.setdefault(heading, len(header) + len(columns))
        key = (table.times[number], *(cells[i] for i in keys))
        row = newest.get(key, cells)
        if len(rows) * len(columns) > _MOST_CELLS:
            text = f"{len(columns)} metrics, each at times of its own, make too large a table"
            raise BadInputError(f"{path}: {text}: export those of power and energy alone")
        if row is cells or (len(row) > column and row[column]):  # a second value of a metric at one time begins a row
            row = newest[key] = list(cells)
            rows.append(row)
            first.append(number)
        row.extend([""] * (column + 1 - len(row)))
        row[column] = cells[value]
    for row in rows:
        row.extend([""] * (len(header) + len(columns) - len(row)))
    if meaning.time is not None:
        order = _in_time([row[keys[0]] for row in rows])
        rows, first = [rows[k] for k in order], [first[k] for k in order]
    lines, times = [table.lines[number] for number in first], [table.times[number] for number in first]
    return replace(table, header=[*header, *columns], rows=rows, lines=lines, times=times, places=[0] * len(rows))


def _in_time(cells: list[str]) -> list[int]:
    """The order of rows by their times, where all have one: an export lists series one after another."""
    stamps = read_stamps(cells, "UTC")
    return np.argsort(stamps.time_ns, kind="stable").tolist() if stamps.valid.all() else list(range(len(cells)))


def _metric_column(table: Delimited) -> tuple[int | None, int | None]:
    """The columns of names and values of a table with one metric in each row; none of another."""
    value = next((i for i, heading in enumerate(table.header) if _VALUE.fullmatch(heading)), None)
    if value is None or "W" in quantities(table.header):
        return None, None
    for column, heading in enumerate(table.header):
        cells = {row[column] for row in table.rows}
        named = quantities(cells) if len(cells) <= _MOST_METRICS and column != value else set()
        if named & {"W", "J"} and (len(named) > 1 or _METRIC.fullmatch(heading)):
            return column, value
    return None, None
