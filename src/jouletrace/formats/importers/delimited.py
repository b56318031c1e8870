"""Tables of cells with a delimiter: CSV as written by tools and spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jouletrace.formats.importers.base import Left

_DELIMITERS = ("\t", ";", ",", "|")


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


def delimiter_of(line: str) -> str | None:
    """The delimiter of a line: the one that occurs most often outside of quotes; None without any."""
    bare = "".join(line.split('"')[::2])
    count = {d: bare.count(d) for d in _DELIMITERS}
    best = max(count, key=lambda d: count[d])
    return best if count[best] else None


def split_row(row: str, delimiter: str = ",") -> list[str] | None:
    """The cells of a line, unchanged; None if it can't be read."""
    try:
        return next(csv.reader([row], delimiter=delimiter), [])
    except csv.Error:
        return None


def rejoined(cells: list[str], width: int, name: int | None, delimiter: str = ",") -> list[str]:
    """The cells of a row with too many, where an unquoted name holds the delimiter: "gemm(float*, int)".

    Args:
        cells: The cells, not stripped.
        width: The expected number of cells.
        name: Index of the name; None without a name.
        delimiter: The delimiter at which they were split.
    """
    surplus = len(cells) - width
    if surplus <= 0 or name is None:
        return cells
    return [*cells[:name], delimiter.join(cells[name : name + surplus + 1]), *cells[name + surplus + 1 :]]


def read_delimited(
    text: str, left: Left, *, header: Sequence[str] | None = None, before: int = 0, name: str | None = None
) -> Delimited:
    """Read a table; rows with another number of cells than the header, and repeated headers, are left out.

    Args:
        text: From the header on (or from the first row, if ``header`` is given).
        left: Counts rows that don't fit.
        header: The columns, if the text has no header.
        before: Number of lines of the file before the text.
        name: The column that holds the delimiter in rows with too many cells (see ``rejoined``).
    """
    delimiter = delimiter_of(text.split("\n", 1)[0]) or ","
    names = list(header or [])
    rows: list[list[str]] = []
    lines: list[int] = []
    for line, split, height in _rows(text, delimiter, left, before):
        if not any(split):
            continue
        if not names:
            names = split
            continue
        cells = rejoined(split, len(names), names.index(name), delimiter) if name in names else split
        if len(cells) == len(names) or (len(cells) == len(names) + 1 and not cells[-1]):
            if cells[: len(names)] != names:  # a tool that is restarted writes its header again
                rows.append(cells[: len(names)])
                lines.append(line)
        else:
            # A stray quote swallows lines: each of them is lost.
            left.add("broken_rows", f"rows do not have {len(names)} cells", height, f"line {line}")
    return Delimited(names, rows, lines, delimiter)


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
