"""A Run as a document: headings, tables of text, notes. Plain data that ``text`` and ``html`` typeset."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Self

from jouletrace.known_secrets import hidden

FORMATS = ("table", "json", "csv", "markdown", "latex")
"""Names of the formats in which Runs and comparisons are rendered."""

_LONG = 20
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


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
        secondary: Whether a page shows it on request only.
    """

    name: str
    numeric: bool = False
    wide: int = 0
    brief: bool = False
    long: str = ""
    key: str = ""
    secondary: bool = False


class Cell(str):
    """Text of a table, with what a page knows of it besides.

    Attributes:
        value, low, high: The number in SI units, by which it is sorted and which goes to CSV; None for names.
        bar: Start and end of the interval, place of the value, and of zero, in percent of the column's range, if drawn.
        hint: Explanation on request.
        full: The whole name where the text is a short one: search uses it, and it goes to CSV.
        kind: What a verdict is coloured by: "better" or "worse".
    """

    def __new__(cls, text: str, *_: object, **__: object) -> Self:
        """The text alone; ``__init__`` adds the rest."""
        return super().__new__(cls, text)

    def __init__(
        self,
        text: str,
        value: float | None = None,
        low: float | None = None,
        high: float | None = None,
        bar: tuple[float, ...] | None = None,
        hint: str = "",
        full: str = "",
        kind: str = "",
    ) -> None:
        self.value, self.low, self.high, self.bar = value, low, high, bar
        self.hint, self.full, self.kind = hint, full, kind

    @property
    def text(self) -> str:
        """What is read."""
        return str(self)

    @property
    def long(self) -> bool:
        """Whether it has a word so long that it must be broken somewhere."""
        return max(map(len, self.split()), default=0) > _LONG


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

    def printable(self) -> Self:
        """The same with every control character spelt out."""
        found: Self = _all_printable(self)
        return found


@dataclass
class Document:
    """The text about a Run, or several.

    Attributes:
        title: What was run.
        simulated: How it is marked where a GPU was simulated; "" where none was.
        unfinished: How what did not end by itself is marked: a line each.
        caption: What was run on what, in one line: enough for a reader of a paper.
        subtitle: On what exactly, when, with which weights: a line each.
        verdict: What was measured, in lines that stand alone, and whether to trust it.
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
    verdict: list[str] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)

    def printable(self) -> Self:
        """The same with every control character spelt out: names come from anywhere."""
        found: Self = _all_printable(self)
        return found


def printable(text: str) -> str:
    r"""Text on its way out: without the secrets that are known, and on one line.

    Line ends, escapes and marks of direction become ``\n``, ``\x1b``, ``\u202e``.
    """
    text = hidden(text)
    if text.isprintable():  # nearly every text is, and nearly all of a page is text
        return text
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _UNPRINTABLE else char for char in text
    )


def _all_printable(found: Any) -> Any:
    """The same with all text in it, at any depth, ``printable``."""
    if isinstance(found, Cell):
        full, hint = printable(found.full), printable(found.hint)
        return Cell(printable(found), found.value, found.low, found.high, found.bar, hint, full, found.kind)
    if isinstance(found, str):
        return printable(found)
    if isinstance(found, list | tuple):
        return type(found)(map(_all_printable, found))
    if is_dataclass(found) and not isinstance(found, type):
        return replace(found, **{one.name: _all_printable(getattr(found, one.name)) for one in fields(found)})
    return found


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

    def of_table(self) -> Footnotes:
        """Those of one table among them."""
        return type(self)(self)

    def lines(self) -> list[str]:
        """What each mark of this table means."""
        return [f"[{letters}] {remark}" for remark, letters in self._letters.items() if remark in self._here]


class NoFootnotes(Footnotes):
    """Drops remarks, where a verdict has those that matter."""

    def mark(self, remark: str) -> str:
        """Nothing."""
        return ""


def _letters(n: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    before, last = divmod(n, 26)
    return (_letters(before - 1) if before else "") + chr(ord("a") + last)
