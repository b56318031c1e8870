"""A comparison as tables for the terminal."""

from __future__ import annotations

from jouletrace.report.comparison.content import document
from jouletrace.report.comparison.data import Comparison
from jouletrace.report.table import typeset


def render(found: Comparison, *, top: int = 10, width: int | None = None) -> str:
    """A comparison for a terminal of ``width`` columns; None asks it."""
    return typeset(document(found, top=top), width)
