"""Printing of characters that a terminal's encoding lacks: "±" in ASCII, names that aren't valid Unicode."""

from __future__ import annotations

import codecs
import sys

_HANDLER = "jouletrace"

_INSTEAD = {
    **{"±": "+-", "−": "-", "–": "-", "—": "-", "…": "...", "×": "x", "·": "*", "≤": "<=", "≥": ">=", "≈": "~"},
    **{"µ": "u", "μ": "u", "°": " deg", "²": "^2", "³": "^3", "√": "sqrt", "Σ": "sum", "→": "->", "Δ": "d"},
    **{"\N{NO-BREAK SPACE}": " ", "\N{NARROW NO-BREAK SPACE}": " ", "█": "#", "▏": "|", "│": "|", "┃": "|"},
    **{"“": '"', "”": '"', "‘": "'", "’": "'", "₂": "2", "●": "*", "▶": ">"},
}
"""Replacements for signs that jouletrace prints; lines of tables become dashes, all other characters are escaped."""


def print_any_text() -> None:
    """Configure stdout and stderr so that no character fails to print."""
    codecs.register_error(_HANDLER, _replaced)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure") and stream.errors != _HANDLER:
            stream.reconfigure(errors=_HANDLER)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_instead, error.object[error.start : error.end])), error.end


def _instead(sign: str) -> str:
    if sign in _INSTEAD:
        return _INSTEAD[sign]
    return "-" if "\u2500" <= sign <= "\u257f" else sign.encode("ascii", "backslashreplace").decode()
