"""JSON of other tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.numbers import LARGEST, plain_number


def load(text: str, path: Path) -> Any:
    """A whole JSON text; control characters in strings are allowed.

    Raises:
        BadInputError: If it is damaged, with line and column.
    """
    try:
        return json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise BadInputError(f"{path}: not valid JSON: {error.msg.lower()} at {place}") from None
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: not valid JSON: {error}") from None


def as_float(value: object) -> float | None:
    """A number, or text that is a number; None for anything else, and beyond ``LARGEST``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int) and abs(value) >= LARGEST:
        return None
    return plain_number(str(value))
