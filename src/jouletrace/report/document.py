"""A Run as a document: headings, tables of text, notes. Plain data that the renderers typeset."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field, replace
from typing import Self

_LONG = 20


@dataclass(frozen=True)
class Column:
    """A column of a section.

    Attributes:
        name: Heading, with the unit where there is one.
        numeric: Set flush right, never broken inside.
        wide: 0 for what is always shown; others where there is room, those with the lowest number first.
        brief: Where there is little room its figures stand without their intervals.
        long: "middle" or "start": the part that long names lose rather than take several lines; "" for none.
        key: What it is called in files of a page; "" for its name.
    """

    name: str
    numeric: bool = False
    wide: int = 0
    brief: bool = False
    long: str = ""
    key: str = ""


class Cell(str):
    """Text of a table, with what a page knows of it besides.

    Attributes:
        value, low, high: The number in SI units, by which it is sorted and which goes to CSV; None for names.
        bar: Start and end of the interval, place of the value, and of zero, in percent of the column's range, if drawn.
        hint: Explanation on request.
        full: The whole name where the text is a short one: search uses it, and it goes to CSV.
        kind: What a verdict is coloured by: "better" or "worse".
    """

    value: float | None
    low: float | None
    high: float | None
    bar: tuple[float, ...] | None
    hint: str
    full: str
    kind: str

    def __new__(
        cls,
        text: str,
        value: float | None = None,
        low: float | None = None,
        high: float | None = None,
        bar: tuple[float, ...] | None = None,
        hint: str = "",
        full: str = "",
        kind: str = "",
    ) -> Self:
        """See ``Cell``."""
        self = super().__new__(cls, text)
        self.value, self.low, self.high, self.bar = value, low, high, bar
        self.hint, self.full, self.kind = hint, full, kind
        return self

    @property
    def text(self) -> str:
        """What is read."""
        return str(self)

    @property
    def long(self) -> bool:
        """Whether it has a word so long that it must be broken somewhere."""
        return max(map(len, self.split()), default=0) > _LONG


def printable_cell(cell: str) -> str:
    """A cell with every control character spelt out."""
    if not isinstance(cell, Cell):
        return printable(cell)
    full, hint = printable(cell.full), printable(cell.hint)
    return Cell(printable(cell), cell.value, cell.low, cell.high, cell.bar, hint, full, cell.kind)


@dataclass
class Section:
    """A table.

    Attributes:
        title: What it lists.
        columns: Its columns.
        rows: Cells, each as long as ``columns``; a ``Cell`` where a page shows more than text.
        notes: Lines below it: what the footnotes mean, what was left out.
        apart: Whether each row stands for itself, to be set as a block where there is too little room.
        id: What a page calls it; unique in its document.
    """

    title: str
    columns: list[Column]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    apart: bool = False
    id: str = ""

    def printable(self) -> Section:
        """The same with every control character spelt out."""
        return replace(
            self,
            title=printable(self.title),
            columns=[replace(column, name=printable(column.name)) for column in self.columns],
            rows=[[printable_cell(cell) for cell in row] for row in self.rows],
            notes=[printable(line) for line in self.notes],
        )


@dataclass
class Document:
    """The text about a Run, or several.

    Attributes:
        title: What was run.
        simulated: How it is marked where a GPU was simulated; "" where none was.
        unfinished: How what did not end by itself is marked: a line each.
        caption: What was run on what, in one line: enough for a reader of a paper.
        subtitle: On what exactly, when, with which weights: a line each.
        sections: The tables.
        facts: Names and lines below the tables: latency, sensor, conditions.
        warnings: Known failures that touch the figures.
        methods: How the figures were obtained: paragraphs.
    """

    title: str
    simulated: str = ""
    unfinished: list[str] = field(default_factory=list)
    caption: str = ""
    subtitle: list[str] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)

    def printable(self) -> Document:
        """The same with every control character spelt out: names come from anywhere."""
        return replace(
            self,
            title=printable(self.title),
            unfinished=[printable(line) for line in self.unfinished],
            caption=printable(self.caption),
            subtitle=[printable(line) for line in self.subtitle],
            sections=[section.printable() for section in self.sections],
            facts=[(printable(name), printable(line)) for name, line in self.facts],
            warnings=[printable(line) for line in self.warnings],
            methods=[printable(text) for text in self.methods],
        )


def printable(text: str) -> str:
    r"""Text on one line: line ends, escapes and marks of direction become ``\n``, ``\x1b``, ``\u202e``."""
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _UNPRINTABLE else char for char in text
    )


_UNPRINTABLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


class Footnotes:
    """Collects remarks on the cells of one table: equal remarks share a letter, in all tables of an output.

    Args:
        others: Those of the same output, whose letters go on; None for the first.
    """

    def __init__(self, others: Footnotes | None = None) -> None:
        self._letters: dict[str, str] = {} if others is None else others._letters
        self._here: set[str] = set()

    def mark(self, remark: str) -> str:
        """The mark of a remark, to be set behind a cell: "[a]"."""
        if remark not in self._letters:
            self._letters[remark] = _letters(len(self._letters))
        self._here.add(remark)
        return f"[{self._letters[remark]}]"

    def lines(self) -> list[str]:
        """What each mark of this table means."""
        return [f"[{letters}] {remark}" for remark, letters in self._letters.items() if remark in self._here]


def _letters(n: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    letters = ""
    n += 1
    while n:
        n, rest = divmod(n - 1, 26)
        letters = chr(ord("a") + rest) + letters
    return letters
