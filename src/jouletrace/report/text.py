"""A document as text in one of the formats for people: a module with ``typeset`` each, and a line here."""

from __future__ import annotations

from jouletrace.report import markdown, table
from jouletrace.report.document import Document


def typeset(found: Document, form: str, width: int | None = None) -> str:
    """A document in the format "table" or "markdown".

    Args:
        found: What to show.
        form: The format.
        width: Columns of the terminal, for "table"; None asks it.
    """
    if form == "table":
        return table.typeset(found, width)
    return markdown.typeset(found)
