"""What plotly's figures have in common: colours, text that stays text, short numbers."""

from __future__ import annotations

from typing import Any

from jouletrace.report.document import printable

Spec = dict[str, Any]
"""A figure or a part of one, as plotly's JSON has it."""

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999")
"""Okabe and Ito's colours, which most colour-blind readers distinguish (jfly.uni-koeln.de/color)."""

PALE = ("#99ddff", "#eedd88", "#77aadd", "#ffaabb", "#bbcc33", "#dddddd")
"""Of Paul Tol's light colours, on which black text reads (personal.sron.nl/~pault)."""

BLUES = [[0, "#eef4fa"], [0.5, "#a6cbe6"], [1, "#4f97cc"]]
"""Light to dark, in one hue: distinguished by everybody, also in grey."""

_LABEL, _LINE, _WHOLE = 60, 80, 800
"""Characters of a label, of a line, and of a name in full."""


def plain(text: str) -> str:
    """Text that plotly shows as it is: it takes tags in any text for its own, and names come from anywhere."""
    return printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def cut(text: str) -> str:
    """A name short enough for a label; tables have it whole."""
    return text if len(text) <= _LABEL else f"{text[: _LABEL - 1]}…"


def in_lines(text: str) -> str:
    """A name in full, as plotly shows it: broken into lines, since kernels have names of hundreds of characters."""
    shown = text if len(text) <= _WHOLE else f"{text[:_WHOLE]}…"
    lines = [shown[at : at + _LINE] for at in range(0, len(shown), _LINE)]
    return "<br>".join(map(plain, lines))


def short(values: Any, digits: int = 6) -> list[float]:
    """Short numbers keep the file small."""
    return [float(f"{value:.{digits}g}") for value in values]
