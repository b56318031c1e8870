r"""A document as text in one of the formats for people: tables for a terminal, Markdown (GitHub's tables), LaTeX.

LaTeX has booktabs tables with a caption, and the methods sentence, ready to paste into a paper: only
``\usepackage{booktabs}`` is needed, and what pdfLaTeX can't set is spelt out as a code point.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from io import StringIO

from rich import box
from rich.cells import cell_len
from rich.console import Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jouletrace.report.console import writer
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

_BAR = 10
"""Columns of a bar that stands for the whole."""

_LEVEL_STYLES = {"yes": "bold green", "with care": "bold yellow", "no": "bold red"}

_MARK = re.compile(r"\[[a-z]+\]")
_INTERVAL = re.compile(rf" (?:±{NBSP}[^{NBSP}]+|\([^)]*\))")
"""An interval behind its figure; the unit may follow."""

_HARD = "\ue000"
"""Stands in for the no-break space, at which rich breaks lines."""

_BREAKABLE = 36
"""Characters from which on a column of names gets a fixed width and may break after underscores."""

_TEX = {char: "\\" + char for char in "{}$&#%_"} | {
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "`": r"\textasciigrave{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\char34{}", "–": r"\textendash{}"},
    **{char: f"{{{char}}}" for char in "[]*"},  # at the start of a row they would be arguments of the line break
    **{"±": r"$\pm$", "−": "$-$", "·": r"$\cdot$", "×": r"$\times$", "µ": r"$\mu$", "°": r"$^\circ$", NBSP: "~"},
}


def typeset(found: Document, form: str = "table", *, width: int | None = None, colour: bool = False) -> str:
    """A document in the format "table", "markdown" or "latex".

    Args:
        found: What to show.
        form: The format.
        width: Columns of the terminal, for "table"; None asks it (80 where there is none).
        colour: Colours and bars of shares, for "table": where it goes to a terminal.
    """
    if form == "table":
        return _terminal(found, width, colour and "NO_COLOR" not in os.environ)
    return _latex(found) if form == "latex" else _markdown(found)


def _terminal(found: Document, width: int | None, colour: bool) -> str:
    sink = StringIO()
    console = writer(sink, width, colour=colour)
    console.print(_document(found, console.width, bars=colour))
    lines = [line.rstrip() for line in sink.getvalue().replace(_HARD, " ").splitlines()]
    return "\n".join(lines).strip("\n") + "\n"


def _document(found: Document, width: int, *, bars: bool) -> Group:
    heads = [found.title, found.simulated, *found.unfinished, *found.subtitle]
    parts: list[RenderableType] = [_text(line) for line in heads if line]
    if found.verdict:
        parts += [Text(), *map(_verdict, found.verdict)]
    for section in found.sections:
        parts += [Text(), *_section(section, width, bars=bars)]
    if found.facts:
        named = zip(["", *(name for name, _ in found.facts)], found.facts, strict=False)
        parts += [Text(), _grid([("" if name == last else name, line) for last, (name, line) in named], 2)]
    if found.warnings:
        parts += [Text(), _grid([("!", line) for line in found.warnings], 1)]
    return Group(*parts)


def _section(section: Section, width: int, *, bars: bool) -> list[RenderableType]:
    """A table, or a block for each of its rows, with the notes on what is shown of it."""
    columns, rows = _fitting(section, width)
    marks = " ".join(text for row in rows for text in row)
    notes = [_text(line) for line in section.notes if not (mark := _MARK.match(line)) or mark[0] in marks]
    if not _fits(columns, rows, width):
        rows = [
            [_INTERVAL.sub("", text) if column.brief else text for column, text in zip(columns, row, strict=True)]
            for row in rows
        ]
    widths = _widths(columns, rows, _room(columns, width))
    if (section.apart and not _readable(columns, rows, widths)) or _broken(columns, rows, widths, width):
        return [*(_block(columns, row) for row in rows), *notes]
    drawn = _bars(columns, rows) if bars and sum(widths) + _BAR <= _room(columns, width) - 2 else []
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    if section.title:
        table.title, table.title_justify = section.title, "left"
    for n, column in enumerate(columns):
        justify: JustifyMethod = "right" if column.numeric else "left"
        table.add_column(_text(column.name), justify=justify, overflow="fold", width=widths[n])
        if column.long:
            for row, text in zip(rows, fitted([row[n] for row in rows], widths[n], column.long), strict=True):
                row[n] = text
    if drawn:
        table.add_column("", width=_BAR)
    for n, row in enumerate(rows):
        table.add_row(*map(_text, row), *drawn[n : n + 1])
    return [table, *notes]


def _bars(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[Text]:
    """A bar for the share of each row; none without shares."""
    place = next((n for n, column in enumerate(columns) if column.key == "share"), None)
    if place is None:
        return []
    shares = [getattr(row[place], "value", None) or 0.0 for row in rows]
    return [Text("█" * round(_BAR * min(max(share, 0.0), 1.0)), style="cyan") for share in shares]


def fitted(names: Sequence[str], width: int, lost: str = "middle") -> list[str]:
    """Names in so many columns, longer ones without their middle or start; those whole that would read alike."""
    every = list(dict.fromkeys(names))
    tries = [{name: _elided(name, width, part) for name in every} for part in _TAILS[lost]]
    short = max(tries, key=lambda found: len(set(found.values())))
    read = Counter(short.values())
    return [short[name] if read[short[name]] == 1 else name for name in names]


def _fitting(section: Section, width: int) -> tuple[list[Column], list[list[str]]]:
    """The columns that are shown and their cells: the dispensable ones as far as all stand on one line."""

    def of(places: Sequence[int]) -> tuple[list[Column], list[list[str]]]:
        return [section.columns[n] for n in places], [[row[n] for n in places] for row in section.rows]

    ranked = sorted(range(len(section.columns)), key=lambda n: section.columns[n].wide)
    shown = sorted(n for n in ranked if not section.columns[n].wide)
    for n in ranked[len(shown) :]:
        more = sorted([*shown, n])
        if not _fits(*of(more), width):
            break
        shown = more
    return of(shown)


def _room(columns: Sequence[Column], width: int) -> int:
    """Characters that are left for cells."""
    return width - 2 * len(columns) + 1


def _elided(name: str, width: int, tail: float) -> str:
    """A name made to fit behind what it is indented by."""
    own = name.lstrip(" ")
    indent = len(name) - len(own)
    return name[:indent] + elided(own, max(width - indent, 1), tail)


def _fits(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> bool:
    """Whether names of some length and figures beside their intervals fit on a line."""
    total = 0
    for n, column in enumerate(columns):
        words = column.name.split(" ") if column.numeric else [column.name]
        longest = max(map(cell_len, (*words, *(row[n] for row in rows))))
        total += longest if column.numeric else min(longest, _LONG)
    return total <= _room(columns, width)


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
    shrink(
        names,
        lambda n: _SHORT[columns[n].long] if columns[n].long else min(max(words[n], _READABLE), _LONG),
        lambda n: widths[n] - 1,
    )
    shrink(figures, lambda n: words[n], lambda n: words[n])
    shrink(names, lambda _: _LEAST, lambda n: widths[n] - 1)
    for n in names:  # breaking figures may have left more room than was needed
        widths[n] += max(0, min(natural[n] - widths[n], room - sum(widths)))
    return widths


def _readable(columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> bool:
    """Whether no figure is broken inside, and no name into snippets."""
    for n, column in enumerate(columns):
        longest = max(cell_len(word) for text in (column.name, *(row[n] for row in rows)) for word in text.split(" "))
        if widths[n] < (longest if column.numeric else min(longest, _SHORT[column.long] if column.long else _READABLE)):
            return False
    return True


def _broken(columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int], width: int) -> bool:
    """Whether a figure would be broken inside, which reads as two: no table may do that."""
    numeric = [n for n, column in enumerate(columns) if column.numeric]
    if numeric and sum(widths) > _room(columns, width):
        return True
    return any(widths[n] < cell_len(word) for n in numeric for row in rows for word in row[n].split(" "))


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


def _verdict(line: str) -> RenderableType:
    """A line of a verdict: trust by its colour; what is indented stays so where it breaks."""
    own = line.lstrip(" " + NBSP)
    text = _text(own)
    if own.startswith("trust: "):
        level = own.removeprefix("trust: ").partition(",")[0]
        text.stylize(_LEVEL_STYLES.get(level, ""), 0, len("trust: ") + len(level))
    return Padding(text, (0, 0, 0, len(line) - len(own)))


def _text(text: str) -> Text:
    return Text(text.replace(NBSP, _HARD))


def _markdown(found: Document) -> str:
    """A document as Markdown."""
    blocks = [f"**{_escape(found.title)}**"]
    if found.simulated:
        blocks.append(f"**{_escape(found.simulated)}**")
    blocks += [f"**{_escape(line)}**" for line in found.unfinished]
    blocks += map(_escape, found.subtitle)
    if found.verdict:
        blocks.append("  \n".join(map(_escape, found.verdict)))
    for section in found.sections:
        if section.title:
            blocks.append(f"**{_escape(section.title)}**")
        blocks.append(_markdown_table(section))
        if section.notes:
            blocks.append("  \n".join(map(_escape, section.notes)))
    if found.facts:
        blocks.append("\n".join(f"- {_escape(name)}: {_escape(line)}" for name, line in found.facts))
    if found.warnings:
        blocks.append("\n".join(f"- **Warning:** {_escape(line)}" for line in found.warnings))
    blocks += [_escape(text) for text in found.methods]
    return "\n\n".join(blocks) + "\n"


def _markdown_table(section: Section) -> str:
    rows = [[column.name for column in section.columns], *section.rows]
    lines = ["| " + " | ".join(map(_escape, row)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("--:" if column.numeric else ":--" for column in section.columns) + "|")
    return "\n".join(lines)


def _escape(text: str) -> str:
    """Text that no Markdown is read into; GitHub takes a backslash before any punctuation."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$&])", r"\\\1", text.replace(NBSP, " ").strip())


def _latex(found: Document) -> str:
    """A document as LaTeX."""
    caption = ". ".join(filter(None, [found.caption or found.title, found.simulated]))
    about = [r"needs \usepackage{booktabs}", found.title, *found.unfinished, *found.subtitle, *found.verdict]
    blocks = ["\n".join(f"% {line}" for line in about)]
    blocks += [rf"\textbf{{{_tex(line)}}}" for line in found.unfinished]
    blocks += [_latex_table(section, caption) for section in found.sections] or [_tex(caption) + "."]
    blocks += [_tex(text) for text in found.methods]
    blocks.append("\n".join(_tex(f"{name}: {line}.") for name, line in found.facts))
    blocks += [r"\emph{Warning:} " + _tex(line) for line in found.warnings]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _latex_table(section: Section, caption: str) -> str:
    caption = ". ".join(filter(None, [section.title, caption]))
    kept = [n for n, column in enumerate(section.columns) if not column.wide]
    long = [n for n in kept if any(len(row[n]) > _BREAKABLE for row in section.rows) and not section.columns[n].numeric]
    places = ["r" if section.columns[n].numeric else r"p{0.3\linewidth}" if n in long else "l" for n in kept]
    lines = [
        r"\begin{table}[htbp]",
        r"  \centering",
        rf"  \caption{{{_tex(caption)}.}}",
        rf"  \begin{{tabular}}{{{''.join(places)}}}",
        r"    \toprule",
        "    " + " & ".join(_tex(section.columns[n].name) for n in kept) + r" \\",
        r"    \midrule",
    ]
    lines += ["    " + " & ".join(_tex(row[n], breaking=n in long) for n in kept) + r" \\" for row in section.rows]
    lines += [r"    \bottomrule", r"  \end{tabular}"]
    lines += ["", r"  \smallskip"] if section.notes else []
    lines += [rf"  {{\footnotesize {_tex(note)}\par}}" for note in section.notes]
    return "\n".join([*lines, r"\end{table}"])


def _tex(text: str, *, breaking: bool = False) -> str:
    """Text as LaTeX; with ``breaking`` it may break after underscores."""
    escaped = "".join(map(_tex_char, text))
    escaped = re.sub("-(?=-)", "-{}", escaped)  # or LaTeX would join them into a dash
    return escaped.replace(r"\_", r"\_\allowbreak{}") if breaking else escaped


def _tex_char(char: str) -> str:
    latin = ord(char) < 0x180 and unicodedata.category(char)[0] == "L"
    return _TEX.get(char) or (char if char.isascii() or latin else rf"\texttt{{U+{ord(char):04X}}}")
