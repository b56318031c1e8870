"""What a column of ncu's raw page is about: a launch, the board, or a curve of which only a sum is told."""

from __future__ import annotations

import re

_BOARD = ("device__attribute_", "c2clink__", "numa__", "nvlink__")
"""Columns that tell of the board and how it is linked: the same in every row of a device."""

_NAME = "device__attribute_display_name"

_CURVE = re.compile(r"^(?:launch__occupancy|derived__pct_occupancy)_per_\w+$")
"""Occupancy over another block size, number of registers and so on. The page tells the sum over such a
curve, in a unit that its prefixes are put on the wrong way round (2,570 %/byte is also 2.57 %/Kbyte)."""


def is_of_board(name: str) -> bool:
    """Whether a column tells of the board."""
    return name.startswith(_BOARD)


def is_curve(name: str) -> bool:
    """Whether a column holds the sum over a curve, which is no reading of anything."""
    return _CURVE.match(name) is not None


def board_name(attributes: dict[str, str]) -> str | None:
    """The board's marketing name among its columns."""
    return attributes.get(_NAME) or None
