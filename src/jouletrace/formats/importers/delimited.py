"""Tables of cells with a delimiter: CSV as written by tools and spreadsheets."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import HEAD_BYTES, Left
from jouletrace.formats.importers.blanks import is_blank

_DELIMITERS = ("\t", ";", ",", "|")

_NUMERIC = re.compile(
    r"[+-]?[\d.,]*\d[\d.,]*(?:[eE][+-]?\d{1,3})?\s*[a-zA-Z%°/]{0,5}$|"
    r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}[T ,]+\d|\d{1,2}:\d{2}(:\d{2}|\s*[APap]\.?[Mm])"
)
_PREAMBLE_LINES = 100

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
    """

    header: list[str]
    rows: list[list[str]]
    lines: list[int]
    delimiter: str = ","


def decimal_commas(text: str) -> str:
    """The complaint about a table whose commas separate cells and are decimal signs, too; "" about any other."""
    lines = [line.strip() for line in text.split("\n", _LOOKED_AT)[:_LOOKED_AT]]
    rows = [line.split(",") for line in lines]
    for at, names in enumerate(rows[:-1]):
        if len(names) < 2 or len(rows[at + 1]) <= len(names) or delimiter_of(lines[at]) != ",":
            continue
        below = [row for row in rows[at + 1 :] if any(row)]
        more = [row for row in below if len(row) > len(names) and all(map(_DIGITS.fullmatch, row[1:]))]
        if more and 2 * len(more) > len(below) and not any(_is_number(name.strip()) for name in names):
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
        if cells and 2 * sum(map(_is_number, cells)) < len(cells):
            found.append(column)
    names = ", ".join(table.header[column] for column in found)
    left.add("unknown_columns", f"columns of text were left out ({names[:120]})", len(found))
    return found


def _is_number(cell: str) -> bool:
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


def read_delimited(text: str, left: Left, *, header: Sequence[str] = (), before: int = 0) -> Delimited:
    """Read a table; rows with another number of cells than the header, and repeated headers, are left out.

    ``header`` gives the columns of a text without one; ``before`` is the number of lines of the file before the text.
    """
    delimiter = delimiter_of(text.split("\n", 1)[0]) or ","
    names = list(header)
    rows: list[list[str]] = []
    lines: list[int] = []
    for line, cells, height in _rows(text, delimiter, left, before):
        if not any(cells):
            continue
        if not names:
            names = _headings(cells)
        elif len(cells) == len(names) or (len(cells) == len(names) + 1 and not cells[-1]):
            if _headings(cells)[: len(names)] != names:  # a tool that is restarted writes its header again
                rows.append(cells[: len(names)])
                lines.append(line)
        else:
            # A stray quote swallows lines: each of them is lost.
            left.add("broken_rows", f"rows do not have {len(names)} cells", height, f"line {line}")
    return Delimited(names, rows, lines, delimiter)


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
