"""The display of a value in a notebook and at IPython's prompt: the text that ``print`` writes."""

from __future__ import annotations

from collections.abc import Collection
from html import escape

_STYLE = "margin: 0; white-space: pre; overflow-x: auto; line-height: normal; font-family: monospace"
"""Columns of tables stand below one another: the font of a notebook's output is proportional unless HTML sets one."""


class Shown:
    """Base of what shows its ``str`` where it is the value of a cell, as text and as HTML of one display."""

    __slots__ = ()

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        """Text and HTML by media type: IPython takes those that it can show."""
        text = str(self)
        return {"text/plain": text, "text/html": _html(text)}

    def _repr_html_(self) -> str:
        """The HTML alone, for front ends that take no more."""
        return _html(str(self))


def _html(text: str) -> str:
    return f'<pre style="{_STYLE}">{escape(text)}</pre>'
