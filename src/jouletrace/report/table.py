r"""Tables: what their columns hold, and how they are written as Markdown, LaTeX, CSV and HTML; ``terminal`` has text.

Each form has one way to write a cell: ``Cell`` for a terminal, ``markdown``, ``latex``, ``spreadsheets`` for CSV, and
markupsafe for HTML. LaTeX has booktabs tables with a caption, ready to paste into a paper: only
``\usepackage{booktabs}`` is needed, and what pdfLaTeX can't set is spelt out as a code point.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from markupsafe import Markup, escape

from jouletrace.run import Estimate
from jouletrace.run.names import short_names
from jouletrace.spreadsheets import csv_file
from jouletrace.words.scale import NBSP, NONE, PrintedUnit, cell, unit_for
from jouletrace.words.text import printable

_LONG = 20
"""Characters of a word from which on a page may break it."""

_BREAKABLE = 36
"""Characters from which on a column of names has a fixed width in LaTeX, and may break after underscores."""

_ENDS = ("", "_low", "_high")

_TEX = {char: "\\" + char for char in "{}$&#%_"} | {
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "`": r"\textasciigrave{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\char34{}", "–": r"\textendash{}"},
    **{char: f"{{{char}}}" for char in "[]*"},  # at the start of a row they would be arguments of the line break
    **{
        "✓": r"$\surd$",
        "✗": r"$\times$",
        "±": r"$\pm$",
        "−": "$-$",
        "·": r"$\cdot$",
        "×": r"$\times$",
        "µ": r"$\mu$",
        "°": r"$^\circ$",
        NBSP: "~",
    },
}


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: Heading; of a column with a unit without it.
        numeric: Set flush right, never broken inside.
        wide: 0 for what is always shown; others where there is room, those with the lowest number first.
        brief: Where there is little room its figures stand without their intervals.
        long: "middle" or "start": the part that long names lose rather than take several lines; "" for none.
        key: What it is called in files; "" for its name.
        secondary: Whether a page shows it on request only.
        unit: SI unit of its numbers, shown in the prefix that suits most or, as a ``PrintedUnit``, in this one; the
            heading states it. "1" for none, "" for text.
        ends: Whether CSV has two columns more, for the ends of intervals.
    """

    name: str
    numeric: bool = False
    wide: int = 0
    brief: bool = False
    long: str = ""
    key: str = ""
    secondary: bool = False
    unit: str | PrintedUnit = ""
    ends: bool = False


class Cell(str):
    """Printable text of a table, with what a page knows of it besides.

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
    bar: tuple[float, ...] | None = None
    hint = full = kind = ""

    def __new__(
        cls, text: str, value: float | None = None, low: float | None = None, high: float | None = None, **about: str
    ) -> Self:
        """A cell; ``about`` may have its hint, full name and kind."""
        made = super().__new__(cls, printable(text))
        made.value, made.low, made.high = value, low, high
        for name, said in about.items():
            setattr(made, name, printable(said))
        return made


def shortened(names: Iterable[str]) -> dict[str, Cell]:
    """Short names of kernels, which are unique among these, by their full ones."""
    return {name: Cell(short, full="" if short == name else name) for name, short in short_names(names).items()}


@dataclass
class Table:
    """Rows under columns.

    Attributes:
        title: What it lists.
        columns: Its columns.
        rows: Text, cells, numbers and Estimates in SI units, or None, each row as long as ``columns``.
        notes: Lines below it: what the footnotes mean, what was left out.
        apart: Whether each row stands for itself, to be set as a block where there is too little room.
        id: What a page calls it; unique in its document.
    """

    title: str
    columns: list[Column]
    rows: list[list[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    apart: bool = False
    id: str = ""

    def shown(self) -> Self:
        """The same as it is read: units in the headings, a ``Cell`` for each value, a key for each column."""
        heads = [_headed(column, [row[n] for row in self.rows]) for n, column in enumerate(self.columns)]
        columns, units = [head for head, _ in heads], [unit for _, unit in heads]
        rows = [list(map(_cell, row, units)) for row in self.rows]
        notes = list(map(printable, self.notes))
        return replace(self, title=printable(self.title), columns=columns, rows=rows, notes=notes)

    def cells(self, key: str) -> list[Cell]:
        """The cells of a column of a table as ``shown``; none where it has no such column."""
        return [row[n] for row in self.rows for n, column in enumerate(self.columns) if column.key == key]

    def markdown(self) -> str:
        """In GitHub's Markdown."""
        shown = self.shown()
        rows = [[column.name for column in shown.columns], *shown.rows]
        lines = ["| " + " | ".join(map(markdown, row)) + " |" for row in rows]
        lines.insert(1, "|" + "|".join("--:" if column.numeric else ":--" for column in shown.columns) + "|")
        title = f"**{markdown(shown.title)}**" if shown.title else ""
        return "\n\n".join(filter(None, [title, "\n".join(lines), "  \n".join(map(markdown, shown.notes))]))

    def latex(self, caption: str) -> str:
        """As a table of booktabs, without columns for which there may be no room."""
        shown = self.shown()
        kept = [n for n, column in enumerate(shown.columns) if not column.wide]
        columns, rows = [shown.columns[n] for n in kept], [[row[n] for n in kept] for row in shown.rows]
        long = [
            not column.numeric and any(len(row[n]) > _BREAKABLE for row in rows) for n, column in enumerate(columns)
        ]  # of each column, whether its names may break
        places = [
            "r" if column.numeric else r"p{0.3\linewidth}" if long[n] else "l" for n, column in enumerate(columns)
        ]
        lines = [
            r"\begin{table}[htbp]",
            r"  \centering",
            rf"  \caption{{{latex('. '.join(filter(None, [shown.title, caption])))}.}}",
            rf"  \begin{{tabular}}{{{''.join(places)}}}",
            r"    \toprule",
            "    " + " & ".join(latex(column.name) for column in columns) + r" \\",
            r"    \midrule",
        ]
        lines += ["    " + " & ".join(map(latex, row, long)) + r" \\" for row in rows]
        lines += [r"    \bottomrule", r"  \end{tabular}"]
        lines += ["", r"  \smallskip"] if shown.notes else []
        lines += [rf"  {{\footnotesize {latex(note)}\par}}" for note in shown.notes]
        return "\n".join([*lines, r"\end{table}"])

    def csv(self) -> str:
        """As CSV: text, and numbers in SI units in full precision."""
        heads = [
            printable(column.key or column.name) + end
            for column in self.columns
            for end in _ENDS[: 1 + 2 * column.ends]
        ]
        rows = [zip(self.columns, row, strict=True) for row in self.rows]
        return csv_file([heads, *([part for pair in row for part in _plain(*pair)] for row in rows)])

    def html(self) -> Markup:
        """The element of a page, whose script sorts it by the numbers behind its cells, and saves these."""
        shown = self.shown()
        heads = [
            _element("th", column.name, scope="col", data_key=column.key, class_=_classes(column))
            for column in shown.columns
        ]
        rows = [heads, *(list(map(_html_cell, shown.columns, row)) for row in shown.rows)]
        head, *body = (_element("tr", Markup("").join(row)) for row in rows)
        return _element("table", _element("thead", head) + _element("tbody", Markup("\n").join(body)))


def markdown(text: str) -> str:
    """Text that no Markdown is read into; GitHub takes a backslash before any punctuation."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$&])", r"\\\1", text.replace(NBSP, " ").strip())


def latex(text: str, breaking: bool = False) -> str:
    """Text as LaTeX; with ``breaking`` it may break after underscores."""
    escaped = "".join(map(_tex_char, text))
    escaped = re.sub("-(?=-)", "-{}", escaped)  # or LaTeX would join them into a dash
    return escaped.replace(r"\_", r"\_\allowbreak{}") if breaking else escaped


def _tex_char(char: str) -> str:
    latin = ord(char) < 0x180 and unicodedata.category(char)[0] == "L"
    return _TEX.get(char) or (char if char.isascii() or latin else rf"\texttt{{U+{ord(char):04X}}}")


def _headed(column: Column, values: Sequence[Any]) -> tuple[Column, PrintedUnit | None]:
    """A column as it is read, and the unit of its numbers, which its heading states; its key has the SI unit."""
    name, unit = printable(column.name), column.unit
    if not unit:
        return replace(column, name=name, key=column.key or name or "name"), None
    numbers = [value.value if isinstance(value, Estimate) else value for value in values if not isinstance(value, str)]
    shown = unit_for(numbers, unit) if isinstance(unit, str) else unit
    units = (shown.name, shown.name if isinstance(unit, PrintedUnit) or unit == "1" else unit)
    heading, key = (f"{name} ({unit})" if name and unit else name or unit for unit in units)
    return replace(column, name=heading, numeric=True, key=column.key or key, unit=""), shown


def _cell(value: Any, unit: PrintedUnit | None) -> Cell:
    """A value as it is read, a number in the unit of its column; a missing one is a dash where there is a unit."""
    if value is None or isinstance(value, str):
        return value if isinstance(value, Cell) else Cell(value or ("" if unit is None or value == "" else NONE))
    if isinstance(value, int) and (unit is None or not unit.name):
        return Cell(str(value), float(value))
    estimate = value if isinstance(value, Estimate) else Estimate(float(value))
    return Cell(cell(estimate, unit or PrintedUnit(1.0, "")), estimate.value, estimate.low, estimate.high)


def _plain(column: Column, value: Any) -> list[Any]:
    """The cells of a value in CSV."""
    values = [value.value, value.low, value.high] if isinstance(value, Estimate) else [value, None, None]
    return [
        printable(cell_value) if isinstance(cell_value, str) else cell_value
        for cell_value in values[: 1 + 2 * column.ends]
    ]


def _html_cell(column: Column, shown_cell: Cell) -> Markup:
    about = {
        "data_v": shown_cell.value,
        "data_l": shown_cell.low,
        "data_h": shown_cell.high,
        "data_full": shown_cell.full,
    }
    inside = escape(shown_cell)
    if shown_cell.bar:
        places = [f"--{name}:{at}%" for name, at in zip("abmz", shown_cell.bar, strict=True) if at or name != "z"]
        inside += _element("span", "", class_="bar", style=";".join(places))
    return _element(
        "td", inside, **about, class_=_classes(column, shown_cell), title=shown_cell.hint or shown_cell.full
    )


def _classes(column: Column, text: Cell | str = "") -> str:
    """Classes of a heading, or of a cell below it."""
    long = not column.numeric and any(len(word) > _LONG for word in text.split())
    names = {"num": column.numeric, "secondary": column.secondary, "long": long}
    return " ".join([*(name for name, held in names.items() if held), getattr(text, "kind", "")]).strip()


def _element(tag: str, inside: str, **about: object) -> Markup:
    """An element with the attributes that are known."""
    stated = {name.strip("_").replace("_", "-"): value for name, value in about.items() if value not in (None, "")}
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in stated.items())
    return Markup(f"<{tag}{attributes}>{escape(inside)}</{tag}>")
