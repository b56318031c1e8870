"""Comparisons as people and programs read them: one module a format, each with ``render``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from jouletrace.errors import BadInputError, check_format

if TYPE_CHECKING:
    from jouletrace.report.comparison.data import Comparison

FORMATS: dict[str, str] = {
    "table": "jouletrace.report.comparison.table",
    "json": "jouletrace.report.comparison.json",
    "csv": "jouletrace.report.comparison.csv",
    "markdown": "jouletrace.report.comparison.markdown",
}
"""Name of each format and the module that renders it."""

TOP = 10
"""Parts of a level that are listed where nobody says how many."""


class Renderer(Protocol):
    """What a module of ``FORMATS`` offers."""

    def render(self, found: Comparison, *, top: int = TOP) -> str:
        """A comparison as text, with so many parts of each level at most; for programs, with all."""


def render(found: Comparison, form: str = "table", *, top: int = TOP) -> str:
    """A comparison as text.

    Args:
        found: What ``compare`` or ``ab`` found.
        form: A name in ``FORMATS``.
        top: List so many parts of a level, those that differ first, and then by size.

    Raises:
        BadInputError: If there is no such format, or ``top`` is below 1.
    """
    check_format(form, FORMATS)
    if top < 1:
        raise BadInputError(f"top {top}: must be at least 1")
    return cast(Renderer, import_module(FORMATS[form])).render(found, top=top)
