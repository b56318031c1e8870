"""Tables of cells with a delimiter: CSV as written by tools and spreadsheets."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, islice

from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import HEAD_BYTES, Left
from jouletrace.formats.importers.blanks import is_blank
from jouletrace.formats.importers.stamps import time_line
from jouletrace.formats.importers.table_headings import is_time_heading, quantities
from jouletrace.run.names import cut

_DELIMITERS = ("\t", ";", ",", "|")

_NUMERIC = re.compile(
    r"[+-]?[.,]*+\d[\d.,]*+(?:[eE][+-]?\d{1,3})?\s*[a-zA-Z%°/]{0,5}$|"
    r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}[T ,]+\d|\d{1,2}:\d{2}(:\d{2}|\s*[APap]\.?[Mm])"
)
_TOTAL = re.compile(r"total|sum|all", re.I)
"""What a column of devices names that is none."""

_ANNOTATIONS = ("#group", "#datatype", "#default")
"""How the lines begin that InfluxDB writes above each table."""

_PREAMBLE_LINES = 100

_WITH_CLOCK = re.compile(r"^(?![|+]).*\b\d{1,2}:\d{2}:\d{2}\b.*$", re.M)

_NUMBER = re.compile(r"[+-]?(?:[\d.,]*\d(?:[eE][+-]?\d+)?|0x[0-9a-fA-F]+)")
_DIGITS = re.compile(r"\s*[+-]?\d+\s*")
_LOOKED_AT = 200
"""Lines that show how a table is written."""

_UNIT = re.compile(r"[A-Za-z%°µμ/]{0,9}")
_LEVEL = re.compile(r"P\d{1,2}")


@dataclass(frozen=True)
class Delimited:
    """A header and the rows with as many cells.

    Attributes:
        header: Names of the columns, stripped.
        rows: Cells, stripped.
        lines: Number of the line of each row, counted from 1.
        delimiter: What separates the cells.
        times: The time above the block of each row, on a line of its own; "" without one. Headings begin a block, too.
        places: Number of each row in its block, counted from 0.
    """

    header: list[str]
    rows: list[list[str]]
    lines: list[int]
    delimiter: str = ","
    times: list[str] = field(default_factory=list)
    places: list[int] = field(default_factory=list)


def decimal_commas(text: str) -> str:
    """The complaint about a table whose commas separate cells and are decimal signs, too; "" about any other."""
    lines = [line.strip() for line in text.split("\n", _LOOKED_AT)[:_LOOKED_AT]]
    rows = [line.split(",") for line in lines]
    for at, names in enumerate(rows[:-1]):
        if len(names) < 2 or len(rows[at + 1]) <= len(names) or delimiter_of(lines[at]) != ",":
            continue
        below = [row for row in rows[at + 1 :] if any(row)]
        more = [row for row in below if len(row) > len(names) and all(map(_DIGITS.fullmatch, row[1:]))]
        if more and 2 * len(more) > len(below) and not any(is_number(name.strip()) for name in names):
            there = f"line {at + 2} has {len(more[0])} cells under {len(names)} headings"
            return f"{there}: with decimal commas, separate the cells by semicolons; else name every column"
    return ""


def left_out_texts(table: Delimited, columns: Collection[int], left: Left) -> list[int]:
    """Those of ``columns`` that hold texts and hardly a number, which are counted in ``left``.

    They are labels and states ("Not Active"), not readings that are broken.
    """
    found: list[int] = []
    for column in columns:
        cells = [row[column] for row in table.rows if not is_blank(row[column])]
        if cells and 2 * sum(map(is_number, cells)) < len(cells):
            found.append(column)
    names = ", ".join(table.header[column] for column in found)
    left.add("unknown_columns", f"columns of text were left out ({names[:120]})", len(found))
    return found


def is_number(cell: str) -> bool:
    """True if a cell holds a number, with a unit or without, or a performance state ("P0")."""
    if _NUMBER.fullmatch(cell) or _LEVEL.fullmatch(cell):
        return True
    digits, unit = units.split(cell)
    return _NUMBER.fullmatch(digits) is not None and _UNIT.fullmatch(unit) is not None


def delimiter_of(line: str) -> str | None:
    """The delimiter of a line: the one that occurs most often outside of quotes; None without any."""
    bare = "".join(line.split('"')[::2])
    count = {d: bare.count(d) for d in _DELIMITERS}
    best = max(count, key=lambda d: count[d])
    return best if count[best] else None


def header_start(text: str) -> int | None:
    """Index of the header: the first line with as many cells as the next row, which has numbers; None without one.

    The last cell of either may be empty, after a delimiter at the end.
    """
    at = 0
    for _ in range(_PREAMBLE_LINES):
        end = text.find("\n", at)
        if end < 0:
            return None
        delimiter = delimiter_of(text[at:end])
        rows = first_rows(text[at : at + HEAD_BYTES], delimiter, 2) if delimiter is not None else []
        if len(rows) == 2 and abs(len(rows[0]) - len(rows[1])) <= 1:
            named, filled = (any(map(_NUMERIC.match, row)) for row in rows)
            if filled and not named:
                return at
        at = end + 1
    return None


def first_rows(text: str, delimiter: str, count: int) -> list[list[str]]:
    """Cells, stripped, of up to ``count`` rows; none of a text that can't be read as a table."""
    try:
        rows = list(islice(csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True), count))
    except csv.Error:
        return []
    return [[cell.strip() for cell in row] for row in rows]


def read_delimited(text: str, left: Left, *, header: Sequence[str] = (), start: int = 0) -> Delimited:
    """Read a table from the index ``start`` on; rows with another number of cells than their headings are left out.

    Headings in a row begin a section: its cells are in the columns that they name. Those that the header lacks are
    further columns, and cells of columns that a section lacks are empty. Where no heading is that of a time, a line
    that holds a time alone is the time of the block below. ``header`` gives the columns of a text without one.
    """
    delimiter = delimiter_of(text[start:].split("\n", 1)[0]) or ","
    table = Delimited(list(header), [], [], delimiter)
    columns = list(range(len(header)))
    time, place = time_line(text[:start].rstrip().rpartition("\n")[2]), 0
    names: set[str] = set()
    timed, straight = any(map(is_time_heading, header)), True
    for line, cells, height in _rows(text[start:], delimiter, left, text.count("\n", 0, start)):
        if not any(cells) or cells[0] in _ANNOTATIONS:
            continue
        if not table.header or _is_heading(cells, names):
            headings = _headings(cells)
            names |= {*filter(None, (cells[0], *headings))}
            columns = _columns(headings, table.header)
            timed, straight = any(map(is_time_heading, table.header)), columns == list(range(len(columns)))
            time, place = (time if place == 0 and not timed else ""), 0
        elif not timed and not _is_reading(cells, columns, table.header) and (alone := time_line(", ".join(cells))):
            time, place = alone, 0
        elif len(cells) == len(columns) or (len(cells) == len(columns) + 1 and not cells[-1]):
            table.rows.append(cells[: len(columns)] if straight else _placed(cells, columns, len(table.header)))
            table.lines.append(line)
            table.times.append(time)
            table.places.append(place)
            place += 1
        else:
            # A stray quote swallows lines: each of them is lost.
            left.add("broken_rows", f"rows do not have {len(columns)} cells", height, f"line {line}")
    for row in table.rows:
        row.extend([""] * (len(table.header) - len(row)))
    return table


def time_between_rows(text: str, *, unread: bool = False) -> str:
    """The first of several lines with a time and no number, as "line 1 ('=== 10:00:00 ===')"; "" without.

    With ``unread`` the first whose time can't be read, as of ``date`` in another language.
    """
    found = [
        line
        for line in _WITH_CLOCK.finditer(text)
        if not any(is_number(cell.strip()) for cell in re.split(r"[,;\t|]", line.group()))
        and not (unread and time_line(line.group()))
    ]
    first = found[0] if len(found) > 1 else None
    return f"line {text.count(chr(10), 0, first.start()) + 1} ({cut(first.group().strip())!r})" if first else ""


def with_devices(table: Delimited, columns: Collection[int], left: Left) -> Delimited:
    """The table, in which no row lacks all of the ``columns`` that name its device, where others have one.

    A row without is of the only device that others name; where they name several, it is left out.
    """
    of_rows = [tuple(row[column] for column in columns) for row in table.rows]
    single = [not any(map(_TOTAL.fullmatch, cells)) for cells in of_rows]
    if any(single) and not all(single):
        left.add("other_lines", "rows hold the total of the others", single.count(False))
        return with_devices(only_rows(table, single), columns, left)
    named = [any(not is_blank(cell) for cell in cells) for cells in of_rows]
    devices = {cells for cells, there in zip(of_rows, named, strict=True) if there}
    if all(named) or not devices:
        return table
    nameless, first = named.count(False), f"line {table.lines[named.index(False)]}"
    if len(devices) == 1:
        left.add("no_device", "rows name no device: the only one that others name is taken for theirs", nameless, first)
        (only,) = devices
        for row in compress(table.rows, (not there for there in named)):
            for column, cell in zip(columns, only, strict=True):
                row[column] = cell
        return table
    text = "rows name no device, where others name several, and were left out: log it in each row"
    left.add("no_device", text, nameless, first)
    return only_rows(table, named)


def only_rows(table: Delimited, wanted: Sequence[bool]) -> Delimited:
    """The table with the ``wanted`` ones of its rows."""
    rows, lines = list(compress(table.rows, wanted)), list(compress(table.lines, wanted))
    times, places = list(compress(table.times, wanted)), list(compress(table.places, wanted))
    return replace(table, rows=rows, lines=lines, times=times, places=places)


def _is_heading(cells: Sequence[str], names: set[str]) -> bool:
    """True if a row without a number has a time among its headings, or half of those that the table has already."""
    there = [cell for cell in cells if cell]
    if names.issuperset(there) or any(map(_NUMERIC.match, there)):
        return names.issuperset(there)
    shared = sum(cell in names for cell in there)
    return (shared > 0 and 2 * shared >= min(len(there), len(names))) or any(map(is_time_heading, there))


def _is_reading(cells: Sequence[str], columns: Sequence[int], header: Sequence[str]) -> bool:
    """True of a number that is the whole row of a section with one column: one of power holds no seconds since 1970."""
    alone = len(cells) == len(columns) == 1 and units.plain_number(cells[0]) is not None
    return alone and "W" not in quantities([header[columns[0]]])


def _placed(cells: Sequence[str], columns: Sequence[int], width: int) -> list[str]:
    """The cells of a section's row in the columns of the table."""
    row = [""] * width
    for column, cell in zip(columns, cells, strict=False):
        row[column] = cell
    return row


def _columns(headings: Sequence[str], header: list[str]) -> list[int]:
    """The column of ``header`` of each heading, the second of two equal ones for the second; new ones are added."""
    columns: list[int] = []
    for name in headings:
        column = next((i for i, one in enumerate(header) if one == name and i not in columns), len(header))
        if column == len(header):
            header.append(name)
        columns.append(column)
    return columns


def _headings(cells: list[str]) -> list[str]:
    """The names of a header, which may be marked as a comment."""
    return [cells[0].lstrip("# "), *cells[1:]]


def _rows(text: str, delimiter: str, left: Left, above: int) -> Iterator[tuple[int, list[str], int]]:
    """First line, cells and number of lines of each row."""
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
    while True:
        before = reader.line_num
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            left.add("broken_rows", f"rows can't be read as a table ({error})", place=f"line {above + reader.line_num}")
            continue
        yield above + before + 1, [cell.strip() for cell in cells], reader.line_num - before
