"""A document as text in one of the formats for people: a table for a terminal, Markdown (GitHub's tables), or LaTeX."""

from __future__ import annotations

import re

from jouletrace.report import latex, table
from jouletrace.report.document import Document, Section
from jouletrace.report.scale import NBSP


def typeset(found: Document, form: str, width: int | None = None) -> str:
    """A document in the format "table", "markdown" or "latex".

    Args:
        found: What to show.
        form: The format.
        width: Columns of the terminal, for "table"; None asks it.
    """
    if form == "table":
        return table.typeset(found, width)
    return latex.typeset(found) if form == "latex" else _markdown(found)


def _markdown(found: Document) -> str:
    """A document as Markdown."""
    blocks = [f"**{_escape(found.title)}**"]
    if found.simulated:
        blocks.append(f"**{_escape(found.simulated)}**")
    blocks += [f"**{_escape(line)}**" for line in found.unfinished]
    blocks += map(_escape, found.subtitle)
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
