"""Texts and numbers that drivers and tools write in place of a reading: one table for all formats."""

from __future__ import annotations

import math

_TEXTS = frozenset(
    {
        *("", "-", "--", "---", "?", "n/a", "na", "n.a.", "#n/a", "nan", "-nan", "+nan", "none", "null", "nil"),
        *("not supported", "not available", "not found", "not permissioned", "insufficient permissions", "no data"),
        *("unavailable", "undefined", "unsupported", "missing", "unknown", "blank"),
    }
)
"""In lower case, without brackets. A failure ("[GPU is lost]") isn't one of them: it is counted as damage."""

_REASONS = 16
"""DCGM counts from each of its blanks: not found, not supported, not permitted, and some in reserve."""

_FIRST = (0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0, 1 << 47)
"""DCGM's blanks of 32 and 64-bit integers, and of floats."""

_ONES = ((1 << 32) - 1, (1 << 64) - 1)
"""All bits set: what NVML has in place of a value, in 32 and 64 bits."""

_SHORTEST, _LONGEST = 6, 17
"""Digits with which tools print a float ("%g", the shortest of 32 bits, the whole of 64)."""

_NUMBERS = frozenset(
    float(f"{number:.{digits}g}")
    for number in (*(first + k for first in _FIRST for k in range(_REASONS)), *_ONES)
    for digits in range(_SHORTEST, _LONGEST + 1)
)
_LEAST = (-(2.0**31), -(2.0**63))
"""A missing value that was cast to a signed integer."""


def is_blank(text: str) -> bool:
    """True if a text stands for a missing value: "N/A", "[Not Supported]", "-"."""
    return text.strip().strip("[]<>()").strip().lower() in _TEXTS


def is_blank_number(value: float) -> bool:
    """True if a number stands for a missing value, as its tool printed it, before any conversion of its unit."""
    return value in _NUMBERS or value in _LEAST or math.isnan(value)
