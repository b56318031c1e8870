"""The text about Runs: headings, tables, notes; in the formats for people. Tables draw themselves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self

from jouletrace.errors import check_format
from jouletrace.report.document import FORMATS
from jouletrace.report.table import Table, latex, markdown
from jouletrace.words.scale import NBSP
from jouletrace.words.text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_LEVEL_STYLES = {"yes": "bold green", "with care": "bold yellow", "no": "bold red"}


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
    sections: list[Table] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)

    def printable(self) -> Self:
        """The same with every control character spelt out: names come from anywhere. Tables spell them themselves."""
        texts = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "sections"}
        return replace(self, **{name: _all_printable(found) for name, found in texts.items()})

    def marked(self) -> Self:
        """The same with the mark of a simulated GPU in its title: the first line of what is read says it."""
        return replace(self, title=f"SIMULATED: {self.title}", simulated="") if self.simulated else self


def _all_printable(found: Any) -> Any:
    """The same with all text in it, at any depth, ``printable``."""
    return printable(found) if isinstance(found, str) else type(found)(map(_all_printable, found))


def rendered(found: Document, stated: Callable[[], Mapping[str, Any]], form: str, *, colour: bool = False) -> str:
    """A document of one table in any of the formats; ``stated`` makes its JSON object.

    Raises:
        BadInputError: If there is no such format.
    """
    check_format(form, FORMATS)
    if form == "json":
        return json.dumps(stated(), indent=2, allow_nan=False) + "\n"
    if form == "csv":
        return found.sections[0].csv()
    return typeset(found.marked() if form == "table" else found, form, colour=colour)


def typeset(found: Document, form: str = "table", *, width: int | None = None, colour: bool = False) -> str:
    """A document in the format "table", "markdown" or "latex".

    Args:
        found: What to show.
        form: The format.
        width: Columns of the terminal, for "table"; None asks it (80 where there is none).
        colour: Colours and bars of shares, for "table": where it goes to a terminal.
    """
    if form == "table":
        from jouletrace.report.terminal import printed

        colour = colour and "NO_COLOR" not in os.environ
        return printed(lambda columns: _document(found, columns, bars=colour), width, colour=colour)
    return _latex(found) if form == "latex" else _markdown(found)


def _document(found: Document, width: int, *, bars: bool) -> list[RenderableType]:
    from rich.text import Text

    from jouletrace.report.terminal import drawn, pairs, unbroken

    heads = [found.title, found.simulated, *found.unfinished, *found.subtitle]
    parts: list[RenderableType] = [unbroken(line) for line in heads if line]
    if found.verdict:
        parts += [Text(), *map(_verdict, found.verdict)]
    for section in found.sections:
        parts += [Text(), *drawn(section, width, bars=bars)]
    if found.facts:
        named = zip(["", *(name for name, _ in found.facts)], found.facts, strict=False)
        parts += [Text(), pairs([("" if name == last else name, line) for last, (name, line) in named], 2)]
    if found.warnings:
        parts += [Text(), pairs([("!", line) for line in found.warnings], 1)]
    return parts


def _verdict(line: str) -> RenderableType:
    """A line of a verdict: trust by its colour; what is indented stays so where it breaks."""
    from rich.padding import Padding

    from jouletrace.report.terminal import unbroken

    own = line.lstrip(" " + NBSP)
    text = unbroken(own)
    if own.startswith("trust: "):
        level = own.removeprefix("trust: ").partition(",")[0]
        text.stylize(_LEVEL_STYLES.get(level, ""), 0, len("trust: ") + len(level))
    return Padding(text, (0, 0, 0, len(line) - len(own)))


def _markdown(found: Document) -> str:
    """A document as Markdown."""
    blocks = [f"**{markdown(found.title)}**"]
    if found.simulated:
        blocks.append(f"**{markdown(found.simulated)}**")
    blocks += [f"**{markdown(line)}**" for line in found.unfinished]
    blocks += map(markdown, found.subtitle)
    if found.verdict:
        blocks.append("  \n".join(map(markdown, found.verdict)))
    blocks += [section.markdown() for section in found.sections]
    if found.facts:
        blocks.append("\n".join(f"- {markdown(name)}: {markdown(line)}" for name, line in found.facts))
    if found.warnings:
        blocks.append("\n".join(f"- **Warning:** {markdown(line)}" for line in found.warnings))
    blocks += [markdown(text) for text in found.methods]
    return "\n\n".join(blocks) + "\n"


def _latex(found: Document) -> str:
    """A document as LaTeX."""
    caption = ". ".join(filter(None, [found.caption or found.title, found.simulated]))
    about = [r"needs \usepackage{booktabs}", found.title, *found.unfinished, *found.subtitle, *found.verdict]
    blocks = ["\n".join(f"% {line}" for line in about)]
    blocks += [rf"\textbf{{{latex(line)}}}" for line in found.unfinished]
    blocks += [section.latex(caption) for section in found.sections] or [latex(caption) + "."]
    blocks += [latex(text) for text in found.methods]
    blocks.append("\n".join(latex(f"{name}: {line}.") for name, line in found.facts))
    blocks += [r"\emph{Warning:} " + latex(line) for line in found.warnings]
    return "\n\n".join(filter(None, blocks)) + "\n"
