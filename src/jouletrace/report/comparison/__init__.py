"""Comparisons as people and programs read them."""

from __future__ import annotations

from jouletrace.errors import BadInputError, check_format
from jouletrace.report.comparison.data import TOP, Comparison

FORMATS = ("table", "json", "csv", "markdown", "latex")
"""Names of the formats of ``render``."""


def render(found: Comparison, form: str = "table", *, top: int = TOP) -> str:
    """A comparison as text; JSON and CSV have all rows.

    Args:
        found: Result of ``compare`` or ``ab``.
        form: A name in ``FORMATS``.
        top: List so many parts of a level, those that differ first, and then by size.

    Raises:
        BadInputError: If there is no such format, or ``top`` is below 1.
    """
    check_format(form, FORMATS)
    if top < 1:
        raise BadInputError(f"top {top}: must be at least 1")
    if form in ("json", "csv"):
        from jouletrace.report.comparison import files

        return files.json_text(found) if form == "json" else files.csv_text(found)
    from jouletrace.report.comparison.content import document
    from jouletrace.report.text import typeset

    return typeset(document(found, top=top), form)
