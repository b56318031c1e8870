"""Printing what a terminal's encoding doesn't have: "±" where there is only ASCII, names that are no Unicode."""

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
"""What is printed in place of signs of our own making; lines of tables are dashes, all else is spelt out."""


def print_any_text() -> None:
    """From here on nothing that is printed fails for the encoding of stdout or stderr."""
    codecs.register_error(_HANDLER, _replaced)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=_HANDLER)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_instead, error.object[error.start : error.end])), error.end


def _instead(sign: str) -> str:
    if sign in _INSTEAD:
        return _INSTEAD[sign]
    return "-" if "\u2500" <= sign <= "\u257f" else sign.encode("ascii", "backslashreplace").decode()
