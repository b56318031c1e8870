"""Tables on a terminal, by rich: columns that fit its width, or a block for each row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from io import StringIO
from typing import NamedTuple

from rich import box
from rich.cells import cell_len
from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from jouletrace.report.console import writer
from jouletrace.report.facts import SEPARATOR
from jouletrace.report.table import Column, Table
from jouletrace.run.names import elided
from jouletrace.words.scale import NBSP

_READABLE, _LONG, _LEAST = 16, 28, 6
"""Columns that a name keeps while figures can still give way, with a long word in it, and after that."""

_SHORT = {"middle": 15, "start": 12}
"""Columns that a name keeps which may lose its middle or start."""

_TAILS = {"middle": (0.6, 0.4, 0.8, 1.0, 0.0), "start": (1.0, 0.8, 0.6, 0.4)}
"""How much of what is left of a name may be its end, by what it loses: the first that keeps names apart is taken."""

_BAR = 10
"""Columns of a bar that stands for the whole."""

_MARK = re.compile(r"\[[a-z]+\]")
_INTERVAL = re.compile(rf" (?:±{NBSP}[^{NBSP}]+|\([^)]*\))")
"""An interval behind its figure; the unit may follow."""

_HARD = "\ue000"
"""Stands in for the no-break space, at which rich breaks lines."""


def printed(parts: Callable[[int], Sequence[RenderableType]], width: int | None, *, colour: bool) -> str:
    """Text of what ``parts`` returns for a width, in so many columns; None asks the terminal."""
    sink = StringIO()
    console = writer(sink, width, colour=colour)
    console.print(Group(*parts(console.width)))
    lines = [line.rstrip() for line in sink.getvalue().replace(_HARD, " ").splitlines()]
    return "\n".join(lines).strip("\n") + "\n"


def unbroken(text: str) -> Text:
    """Text that breaks at plain spaces alone."""
    return Text(text.replace(NBSP, _HARD))


def pairs(lines: Sequence[tuple[str, str]], gap: int) -> Grid:
    """Names with their texts, broken into lines where necessary."""
    grid = Grid.grid(padding=(0, gap))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, line in lines:
        grid.add_row(Text(name), unbroken(line))
    return grid


class _Measured(NamedTuple):
    """The room that a column takes.

    Attributes:
        number: Of the column in its table.
        natural: Characters of its longest text, the heading included.
        unbroken: The same, where the heading breaks.
        word: Characters of its longest word, the heading included.
        inner: The same of its cells alone.
    """

    number: int
    column: Column
    natural: int
    unbroken: int
    word: int
    inner: int


def _measured(number: int, column: Column, cells: Sequence[str]) -> _Measured:
    """A column with these cells."""
    heads, words = column.name.split(" "), [word for text in cells for word in text.split(" ")]
    every = [column.name, *cells], [*heads, *cells], [*heads, *words], ["", *words]
    return _Measured(number, column, *(max(map(cell_len, texts)) for texts in every))


def text(table: Table, width: int | None = None) -> str:
    """A table for a terminal of ``width`` columns; None asks it."""
    return printed(lambda columns: drawn(table, columns), width, colour=False)


def drawn(table: Table, width: int, *, bars: bool = False) -> list[RenderableType]:
    """The columns that fit, or a block for each row, with the notes on what is shown of them; ``bars`` for shares."""
    table = table.shown()
    cells: list[list[str]] = [[row[n] for row in table.rows] for n in range(len(table.columns))]
    shown = _fitting([_measured(n, column, cells[n]) for n, column in enumerate(table.columns)], width)
    marks = " ".join(text for measured in shown for text in cells[measured.number])
    below = [unbroken(line) for line in table.notes if not (mark := _MARK.match(line)) or mark[0] in marks]
    if not _fits(shown, width):
        for n, column in enumerate(table.columns):
            cells[n] = [_INTERVAL.sub("", cell) for cell in cells[n]] if column.brief else cells[n]
        shown = [_measured(measured.number, measured.column, cells[measured.number]) for measured in shown]
    room = _room(shown, width)
    widths = _widths(shown, room)
    rows = range(len(table.rows))
    if (table.apart and not _readable(shown, widths)) or _broken(shown, widths, room):
        return [*(_block([(measured.column, cells[measured.number][n]) for measured in shown]) for n in rows), *below]
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    if table.title:
        grid.title, grid.title_justify = table.title, "left"
    for measured, wide in zip(shown, widths, strict=True):
        justify: JustifyMethod = "right" if measured.column.numeric else "left"
        grid.add_column(unbroken(measured.column.name), justify=justify, overflow="fold", width=wide)
        if measured.column.long:
            cells[measured.number] = fitted(cells[measured.number], wide, measured.column.long)
    shares = [share.value or 0.0 for share in table.cells("share")] if bars and sum(widths) + _BAR <= room - 2 else []
    filled = [Text("█" * round(_BAR * min(max(share, 0.0), 1.0)), style="cyan") for share in shares]
    if filled:
        grid.add_column("", width=_BAR)
    for n in rows:
        grid.add_row(*(unbroken(cells[measured.number][n]) for measured in shown), *filled[n : n + 1])
    return [grid, *below]


def fitted(names: Sequence[str], width: int, lost: str = "middle") -> list[str]:
    """Names in so many columns, longer ones without their middle or start; those whole that would read alike."""
    every = list(dict.fromkeys(names))
    indents = {name: len(name) - len(name.lstrip(" ")) for name in every}
    tries = [
        {name: name[:n] + elided(name[n:], max(width - n, 1), part) for name, n in indents.items()}
        for part in _TAILS[lost]
    ]
    short = max(tries, key=lambda names_of: len(set(names_of.values())))
    read = Counter(short.values())
    return [short[name] if read[short[name]] == 1 else name for name in names]


def _fitting(every: Sequence[_Measured], width: int) -> list[_Measured]:
    """The columns that are shown: the dispensable ones as far as all stand on one line."""
    shown = [measured for measured in every if not measured.column.wide]
    for wide in sorted(
        (measured for measured in every if measured.column.wide), key=lambda measured: measured.column.wide
    ):
        more = [measured for measured in every if measured in shown or measured is wide]
        if not _fits(more, width):
            break
        shown = more
    return shown


def _room(shown: Sequence[_Measured], width: int) -> int:
    """Characters that are left for cells."""
    return width - 2 * len(shown) + 1


def _fits(shown: Sequence[_Measured], width: int) -> bool:
    """True if names of some length and figures beside their intervals fit on a line."""
    total = sum(measured.unbroken if measured.column.numeric else min(measured.natural, _LONG) for measured in shown)
    return total <= _room(shown, width)


def _widths(shown: Sequence[_Measured], room: int) -> list[int]:
    """Widths that fit: headings break first, then names, then figures in front of ±, then names fold."""
    names = [n for n, measured in enumerate(shown) if not measured.column.numeric]
    figures = [n for n, measured in enumerate(shown) if measured.column.numeric]
    widths = [measured.natural for measured in shown]

    def shrink(which: Sequence[int], floor: Callable[[_Measured], int], by: int | None = None) -> None:
        """Make the widest narrower ``by`` characters, or down to its floor, until all fit or none may be."""
        while sum(widths) > room and (can := [n for n in which if widths[n] > floor(shown[n])]):
            widest = max(can, key=lambda n: widths[n])
            widths[widest] = floor(shown[widest]) if by is None else widths[widest] - by

    shrink(figures, lambda measured: measured.unbroken)
    shrink(names, lambda measured: _SHORT.get(measured.column.long) or min(max(measured.word, _READABLE), _LONG), 1)
    shrink(figures, lambda measured: measured.word)
    shrink(names, lambda _: _LEAST, 1)
    for n in names:  # breaking figures may have left more room than was needed
        widths[n] += max(0, min(shown[n].natural - widths[n], room - sum(widths)))
    return widths


def _readable(shown: Sequence[_Measured], widths: Sequence[int]) -> bool:
    """True if no figure is broken inside, and no name into snippets."""
    least = [
        measured.word if measured.column.numeric else min(measured.word, _SHORT.get(measured.column.long, _READABLE))
        for measured in shown
    ]
    return all(width >= needed for width, needed in zip(widths, least, strict=True))


def _broken(shown: Sequence[_Measured], widths: Sequence[int], room: int) -> bool:
    """True if a figure would be broken inside, which reads as two: no table may do that."""
    figures = [(measured, width) for measured, width in zip(shown, widths, strict=True) if measured.column.numeric]
    return bool(figures) and (sum(widths) > room or any(width < measured.inner for measured, width in figures))


def _block(row: Sequence[tuple[Column, str]]) -> Group:
    """One row by itself: its names as a heading, a figure a line below."""
    names = [cell for column, cell in row if not column.numeric and cell]
    lines = [(f"  {column.name}", cell) for column, cell in row if column.numeric and (column.name or cell)]
    return Group(unbroken(SEPARATOR.join(names)), pairs(lines, 2), Text())
