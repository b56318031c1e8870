"""Tables with one metric in each row: a column names it, and another holds the values of all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.delimited import Delimited
from jouletrace.formats.importers.table_headings import find_columns, quantities
from jouletrace.run.names import cut

_VALUE = re.compile(r"_?(value|val|reading)", re.I)
_METRIC = re.compile(r"_?(field|metric)([ _]?(name|id))?|__name__", re.I)
_UNIT = re.compile(r"units?", re.I)

_MOST_METRICS = 1000
"""A column with more different cells doesn't name metrics."""


def joined_rows(path: Path, table: Delimited, mapping: Mapping[str, str]) -> Delimited:
    """The table with a column for each metric and a row for each time and device; as it is where rows have several.

    The columns keep their numbers; those of metrics follow. ``mapping`` is the user's: of a table with one metric it
    may name the values.

    Raises:
        BadInputError: If it names the values of several metrics.
    """
    name, value = _metric_column(table)
    if name is None or value is None:
        return table
    metrics = {row[name] for row in table.rows}
    given = {part for wanted in mapping.values() for part in wanted.split("+")}
    if given & {str(value + 1), table.header[value]}:
        if len(metrics) == 1:
            return table
        one = min(metrics, key=lambda metric: ("W" not in quantities([metric]), metric))
        way = f"give the name of one in place of {table.header[value]!r}, such as --map power_w={cut(one)}"
        raise BadInputError(f"{path}: one metric in each row, named in {table.header[name]!r}: {way}")
    keyed = {target: wanted for target, wanted in mapping.items() if re.match(r"time|device", target)}
    bare = ["" if i == value else heading for i, heading in enumerate(table.header)]
    meaning = find_columns(bare, keyed, path)
    keys = [*(meaning.time.places if meaning.time else ()), *(column for _, column in meaning.device)]
    unit = next((i for i, heading in enumerate(table.header) if _UNIT.fullmatch(heading)), None)
    header = ["" if i in (name, value) else heading for i, heading in enumerate(table.header)]
    columns: dict[str, int] = {}
    rows: list[list[str]] = []
    lines: list[int] = []
    times: list[str] = []
    newest: dict[tuple[str, ...], list[str]] = {}
    for cells, line, time in zip(table.rows, table.lines, table.times, strict=True):
        heading = cells[name] + (f" [{cells[unit]}]" if unit is not None and cells[unit] else "")
        column = columns.setdefault(heading, len(table.header) + len(columns))
        key = (time, *(cells[i] for i in keys))
        row = newest.get(key, [])
        row += [""] * (column + 1 - len(row))
        if key not in newest or row[column]:  # a second value of a metric at one time begins a row
            row = newest[key] = [*cells, *[""] * len(columns)]
            rows.append(row)
            lines.append(line)
            times.append(time)
        row[column] = cells[value]
    width = len(header) + len(columns)
    whole = [row + [""] * (width - len(row)) for row in rows]
    return replace(table, header=[*header, *columns], rows=whole, lines=lines, times=times, places=[0] * len(rows))


def _metric_column(table: Delimited) -> tuple[int | None, int | None]:
    """The columns of names and values of a table with one metric in each row; none of another."""
    value = next((i for i, heading in enumerate(table.header) if _VALUE.fullmatch(heading)), None)
    if value is None or "W" in quantities(table.header):
        return None, None
    for column, heading in enumerate(table.header):
        cells = {row[column] for row in table.rows}
        named = len(cells) <= _MOST_METRICS and column != value and quantities(cells)
        if named and named & {"W", "J"} and (len(named) > 1 or _METRIC.fullmatch(heading)):
            return column, value
    return None, None
