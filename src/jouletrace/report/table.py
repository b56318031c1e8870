"""Tables for the terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from io import StringIO

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from jouletrace.report.document import Column, Document, Section
from jouletrace.report.facts import SEPARATOR
from jouletrace.report.scale import NBSP
from jouletrace.run.names import elided

_READABLE, _LONG, _LEAST = 16, 28, 6
"""Columns that a name keeps while figures can still give way, with a long word in it, and after that."""

_SHORT = {"middle": 15, "start": 12}
"""Columns that a name keeps which may lose its middle or start."""

_TAILS = {"middle": (0.6, 0.4, 0.8, 1.0, 0.0), "start": (1.0, 0.8, 0.6, 0.4)}
"""How much of what is left of a name may be its end, by what it loses: the first that keeps names apart is taken."""

_MARK = re.compile(r"\[[a-z]+\]")
_INTERVAL = re.compile(rf" (?:±{NBSP}[^{NBSP}]+|\([^)]*\))")
"""An interval behind its figure; the unit may follow."""

_HARD = "\ue000"
"""Stands in for the no-break space, at which rich breaks lines."""


def typeset(found: Document, width: int | None = None) -> str:
    """A document as text for a terminal of ``width`` columns; None asks it (80 where there is none)."""
    sink = StringIO()
    console = Console(file=sink, width=width, highlight=False, markup=False, emoji=False, legacy_windows=False)
    console.print(_document(found, console.width))
    lines = [line.rstrip() for line in sink.getvalue().replace(_HARD, " ").splitlines()]
    return "\n".join(lines).strip("\n") + "\n"


def _document(found: Document, width: int) -> Group:
    heads = [found.title, found.simulated, *found.unfinished, *found.subtitle]
    parts: list[RenderableType] = [_text(line) for line in heads if line]
    for section in found.sections:
        parts += [Text(), _section(section, width), *map(_text, _notes(section, width))]
    if found.facts:
        named = zip(["", *(name for name, _ in found.facts)], found.facts, strict=False)
        parts += [Text(), _grid([("" if name == last else name, line) for last, (name, line) in named], 2)]
    if found.warnings:
        parts += [Text(), _grid([("!", line) for line in found.warnings], 1)]
    return Group(*parts)


def _section(section: Section, width: int) -> RenderableType:
    shown = _fitting(section, width)
    columns = [section.columns[n] for n in shown]
    rows = [[row[n] for n in shown] for row in section.rows]
    room = _room(columns, width)
    if _least_width(columns, rows) > room:
        rows = [
            [_INTERVAL.sub("", text) if column.brief else text for column, text in zip(columns, row, strict=True)]
            for row in rows
        ]
    widths = _widths(columns, rows, room)
    if section.apart and not _readable(columns, rows, widths):
        return Group(*(_block(columns, row) for row in rows))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    if section.title:
        table.title, table.title_justify = section.title, "left"
    for column, fitting in zip(columns, widths, strict=True):
        justify: JustifyMethod = "right" if column.numeric else "left"
        table.add_column(_text(column.name), justify=justify, overflow="fold", width=fitting)
    for n, column in enumerate(columns):
        if column.long:
            for row, text in zip(rows, fitted([row[n] for row in rows], widths[n], column.long), strict=True):
                row[n] = text
    for row in rows:
        table.add_row(*(_text(text) for text in row))
    return table


def fitted(names: Sequence[str], width: int, lost: str = "middle") -> list[str]:
    """Names in so many columns, longer ones without their middle or start; whole where two would read alike."""
    for part in _TAILS[lost]:
        found = [_elided(name, width, part) for name in names]
        if len(set(found)) == len(set(names)):
            return found
    return list(names)


def _fitting(section: Section, width: int) -> list[int]:
    """Places of the columns that are shown: the dispensable ones as far as all stand on one line."""
    shown = [n for n, column in enumerate(section.columns) if not column.wide]
    for n in sorted(
        (n for n, column in enumerate(section.columns) if column.wide), key=lambda n: section.columns[n].wide
    ):
        more = sorted([*shown, n])
        columns, rows = [section.columns[k] for k in more], [[row[k] for k in more] for row in section.rows]
        if _least_width(columns, rows) > _room(columns, width):
            break
        shown = more
    return shown


def _notes(section: Section, width: int) -> list[str]:
    """Lines below a table, less footnotes of what isn't shown of it."""
    shown = " ".join(row[n] for row in section.rows for n in _fitting(section, width))
    return [line for line in section.notes if not (mark := _MARK.match(line)) or mark[0] in shown]


def _room(columns: Sequence[Column], width: int) -> int:
    """Characters that are left for cells."""
    return width - 2 * len(columns) + 1


def _elided(name: str, width: int, tail: float) -> str:
    """A name made to fit behind what it is indented by."""
    own = name.lstrip(" ")
    indent = len(name) - len(own)
    return name[:indent] + elided(own, max(width - indent, 1), tail)


def _least_width(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """What names of some length and figures beside their intervals need."""
    total = 0
    for n, column in enumerate(columns):
        words = column.name.split(" ") if column.numeric else [column.name]
        longest = max(map(cell_len, (*words, *(row[n] for row in rows))))
        total += longest if column.numeric else min(longest, _LONG)
    return total


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Widths that fit: headings break first, then names, then figures in front of ±, then names fold."""
    cells = [[column.name, *(row[n] for row in rows)] for n, column in enumerate(columns)]
    natural = [max(map(cell_len, column)) for column in cells]
    unbroken = [max(map(cell_len, (*column[0].split(" "), *column[1:]))) for column in cells]
    words = [max(cell_len(word) for text in column for word in text.split(" ")) for column in cells]
    names = [n for n, column in enumerate(columns) if not column.numeric]
    figures = [n for n, column in enumerate(columns) if column.numeric]
    widths = list(natural)

    def shrink(which: Sequence[int], floor: Callable[[int], int], step: Callable[[int], int]) -> None:
        while sum(widths) > room and (can := [n for n in which if widths[n] > floor(n)]):
            widest = max(can, key=lambda n: widths[n])
            widths[widest] = step(widest)

    shrink(figures, lambda n: unbroken[n], lambda n: unbroken[n])
    shrink(names, lambda n: _SHORT[columns[n].long] if columns[n].long else _floor(words[n]), lambda n: widths[n] - 1)
    shrink(figures, lambda n: words[n], lambda n: words[n])
    shrink(names, lambda _: _LEAST, lambda n: widths[n] - 1)
    for n in names:  # breaking figures may have left more room than was needed
        widths[n] += max(0, min(natural[n] - widths[n], room - sum(widths)))
    return widths


def _floor(word: int) -> int:
    return min(max(word, _READABLE), _LONG)


def _readable(columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> bool:
    """Whether no figure is broken inside, and no name into snippets."""
    for n, column in enumerate(columns):
        longest = max(cell_len(word) for text in (column.name, *(row[n] for row in rows)) for word in text.split(" "))
        if widths[n] < (longest if column.numeric else min(longest, _SHORT[column.long] if column.long else _READABLE)):
            return False
    return True


def _block(columns: Sequence[Column], row: Sequence[str]) -> Group:
    """One row by itself: its names as a heading, a figure a line below."""
    names = [text for column, text in zip(columns, row, strict=True) if not column.numeric and text]
    figures = [(f"  {c.name}", text) for c, text in zip(columns, row, strict=True) if c.numeric and (c.name or text)]
    return Group(_text(SEPARATOR.join(names)), _grid(figures, 2), Text())


def _grid(lines: Sequence[tuple[str, str]], gap: int) -> Table:
    """Names with their texts, broken into lines where necessary."""
    grid = Table.grid(padding=(0, gap))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, line in lines:
        grid.add_row(Text(name), _text(line))
    return grid


def _text(text: str) -> Text:
    return Text(text.replace(NBSP, _HARD))
