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
            names = cells
        elif len(cells) == len(names) or (len(cells) == len(names) + 1 and not cells[-1]):
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
