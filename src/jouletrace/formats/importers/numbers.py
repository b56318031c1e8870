"""Numbers as tools print them: with thousands separators, in the decimal point or comma of some locale."""

from __future__ import annotations

import re
from collections.abc import Iterable

_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:([.,'\u2019\u00a0\u202f ])\d{3})+$")
_NUMERIC = re.compile(r"[+-]?[\d.,'\u2019\u00a0\u202f ]+(?:[eE][+-]?\d+)?$")
_SPACES = str.maketrans("", "", "'\u2019\u00a0\u202f ")

LARGEST = 1e30
"""No reading of any tool is as large; products and squares of such numbers would end in infinity."""

MISSING = frozenset({"", "-", "n/a", "[n/a]", "na", "nan", "none", "null", "[not supported]", "not supported"})
"""What tools write where they have no number, in lower case."""


def decimal_sign(texts: Iterable[str]) -> str:
    """Whether numbers of one file have "." or "," as decimal sign, told from those that leave no doubt.

    "0,5" and "1.234,5" say comma; "0.5" and "1,234.5" say point; "1,234" alone says nothing. The
    first that leaves no doubt decides; without one it is the point. Texts of another kind say nothing.
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
    """A printed number; None where the tool has none.

    Args:
        text: The cell, without its unit.
        decimal: "." or ",", as ``decimal_sign`` found; the other one separates thousands.

    Raises:
        ValueError: If it is text of another kind, or beyond ``LARGEST``.
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
    """A number as programs write it; None for anything else, and beyond ``LARGEST``."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < LARGEST and "_" not in text else None  # float() takes "1_000"
