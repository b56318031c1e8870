"""A comparison in Markdown, for a pull request."""

from __future__ import annotations

from jouletrace.report.comparison.content import document
from jouletrace.report.comparison.data import Comparison
from jouletrace.report.markdown import typeset


def render(found: Comparison, *, top: int = 10) -> str:
    """A comparison as GitHub's Markdown."""
    return typeset(document(found, top=top))
