"""Text on its way out of the program."""

from __future__ import annotations

import unicodedata

from jouletrace.known_secrets import hidden

_UNPRINTABLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def printable(text: str) -> str:
    r"""Text on its way out: without the secrets that are known, and on one line.

    Line ends, escapes and marks of direction become ``\n``, ``\x1b``, ``\u202e``.
    """
    text = hidden(text)
    if text.isprintable():  # nearly every text is, and nearly all of a page is text
        return text
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _UNPRINTABLE else char for char in text
    )
