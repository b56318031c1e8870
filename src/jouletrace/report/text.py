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
        texts = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "sections"}
        return replace(self, **{name: _all_printable(value) for name, value in texts.items()})

    def marked(self) -> Self:
        """The same with the mark of a simulated GPU in its title: the first line of what is read says it."""
        return replace(self, title=f"SIMULATED: {self.title}", simulated="") if self.simulated else self


def _all_printable(value: Any) -> Any:
    """The same with all text in it, at any depth, ``printable``."""
    return printable(value) if isinstance(value, str) else type(value)(map(_all_printable, value))


def rendered(document: Document, stated: Callable[[], Mapping[str, Any]], form: str, *, colour: bool = False) -> str:
    """A document of one table in any of the formats; ``stated`` makes its JSON object.

    Raises:
        BadInputError: If there is no such format.
    """
    check_format(form, FORMATS)
    if form == "json":
        return json.dumps(stated(), indent=2, allow_nan=False) + "\n"
    if form == "csv":
        return document.sections[0].csv()
    return typeset(document.marked() if form == "table" else document, form, colour=colour)


def typeset(document: Document, form: str = "table", *, width: int | None = None, colour: bool = False) -> str:
    """A document in the format "table", "markdown" or "latex".

    Args:
        document: What to show.
        form: The format.
        width: Columns of the terminal, for "table"; None asks it (80 where there is none).
        colour: Colours and bars of shares, for "table": where it goes to a terminal.
    """
    if form == "table":
        from jouletrace.report.terminal import printed

        colour = colour and "NO_COLOR" not in os.environ
        return printed(lambda columns: _document(document, columns, bars=colour), width, colour=colour)
    return _latex(document) if form == "latex" else _markdown(document)


def _document(document: Document, width: int, *, bars: bool) -> list[RenderableType]:
    from rich.text import Text

    from jouletrace.report.terminal import drawn, pairs, unbroken

    heads = [document.title, document.simulated, *document.unfinished, *document.subtitle]
    parts: list[RenderableType] = [unbroken(line) for line in heads if line]
    if document.verdict:
        parts += [Text(), *map(_verdict, document.verdict)]
    for section in document.sections:
        parts += [Text(), *drawn(section, width, bars=bars)]
    if document.facts:
        named = zip(["", *(name for name, _ in document.facts)], document.facts, strict=False)
        parts += [Text(), pairs([("" if name == last else name, line) for last, (name, line) in named], 2)]
    if document.warnings:
        parts += [Text(), pairs([("!", line) for line in document.warnings], 1)]
    return parts


def _verdict(line: str) -> RenderableType:
    """A line of a verdict: trust by its colour; what is indented stays so where it breaks."""
    from rich.padding import Padding

    from jouletrace.report.terminal import unbroken

    unindented = line.lstrip(" " + NBSP)
    text = unbroken(unindented)
    if unindented.startswith("trust: "):
        level = unindented.removeprefix("trust: ").partition(",")[0]
        text.stylize(_LEVEL_STYLES.get(level, ""), 0, len("trust: ") + len(level))
    return Padding(text, (0, 0, 0, len(line) - len(unindented)))


def _markdown(document: Document) -> str:
    """A document as Markdown."""
    blocks = [f"**{markdown(document.title)}**"]
    if document.simulated:
        blocks.append(f"**{markdown(document.simulated)}**")
    blocks += [f"**{markdown(line)}**" for line in document.unfinished]
    blocks += map(markdown, document.subtitle)
    if document.verdict:
        blocks.append("  \n".join(map(markdown, document.verdict)))
    blocks += [section.markdown() for section in document.sections]
    if document.facts:
        blocks.append("\n".join(f"- {markdown(name)}: {markdown(line)}" for name, line in document.facts))
    if document.warnings:
        blocks.append("\n".join(f"- **Warning:** {markdown(line)}" for line in document.warnings))
    blocks += [markdown(text) for text in document.methods]
    return "\n\n".join(blocks) + "\n"


def _latex(document: Document) -> str:
    """A document as LaTeX."""
    caption = ". ".join(filter(None, [document.caption or document.title, document.simulated]))
    about = [
        r"needs \usepackage{booktabs}",
        document.title,
        *document.unfinished,
        *document.subtitle,
        *document.verdict,
    ]
    blocks = ["\n".join(f"% {line}" for line in about)]
    blocks += [rf"\textbf{{{latex(line)}}}" for line in document.unfinished]
    blocks += [section.latex(caption) for section in document.sections] or [latex(caption) + "."]
    blocks += [latex(text) for text in document.methods]
    blocks.append("\n".join(latex(f"{name}: {line}.") for name, line in document.facts))
    blocks += [r"\emph{Warning:} " + latex(line) for line in document.warnings]
    return "\n\n".join(filter(None, blocks)) + "\n"
