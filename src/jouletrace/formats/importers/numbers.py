"""Numbers as tools print them: with thousands separators and the decimal point or comma of a locale."""

from __future__ import annotations

import re
from collections.abc import Iterable

_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:([.,'\u2019\u00a0\u202f ])\d{3})+$")
_NUMERIC = re.compile(r"[+-]?[\d.,'\u2019\u00a0\u202f ]+(?:[eE][+-]?\d+)?$")
_SPACES = str.maketrans("", "", "'\u2019\u00a0\u202f ")

LARGEST = 1e30
"""Larger than any reading of a tool; products and squares of such numbers would be infinite."""

MISSING = frozenset({"", "-", "n/a", "[n/a]", "na", "nan", "none", "null", "[not supported]", "not supported"})
"""Texts that tools write in place of a number, in lower case."""


def decimal_sign(texts: Iterable[str]) -> str:
    """The decimal sign of the numbers of one file, "." or ",", determined from unambiguous ones.

    "0,5" and "1.234,5" imply a comma; "0.5" and "1,234.5" imply a point; "1,234" alone is ambiguous. The
    first unambiguous number decides; without one it is the point. Other texts are ignored.
    """
    for text in texts:
        if not _NUMERIC.match(text.strip()):
            continue
        if "," not in text:
            if text.count(".") == 1 and not _GROUPED.match(text.strip()):
                return "."
            continue
        if "." in text:
            return "," if text.rfind(",") > text.rfind(".") else "."
        if text.count(",") == 1 and not _GROUPED.match(text.strip()):
            return ","
    return "."


def number(text: str, decimal: str = ".") -> float | None:
    """A printed number; None where the tool prints none.

    Args:
        text: The cell, without its unit.
        decimal: "." or ",", from ``decimal_sign``; the other one separates thousands.

    Raises:
        ValueError: If it is another kind of text, or beyond ``LARGEST``.
    """
    plain = text.strip().translate(_SPACES)
    if plain.lower() in MISSING:
        return None
    plain = plain.replace(".", "").replace(",", ".") if decimal == "," else plain.replace(",", "")
    value = plain_number(plain)
    if value is None:
        raise ValueError(f"not a number: {text[:40]!r}")
    return value


def plain_number(text: str) -> float | None:
    """A number in the format of programs; None for anything else, and beyond ``LARGEST``."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < LARGEST and "_" not in text else None  # float() accepts "1_000"
