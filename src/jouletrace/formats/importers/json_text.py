"""JSON of other tools, with unescaped names or a missing end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import Left
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


def load_list(text: str, path: Path, left: Left) -> list[Any]:
    """The elements of a JSON list; for a damaged list the intact ones, with the others counted in ``left``.

    Raises:
        BadInputError: If it is valid but no list.
    """
    try:
        whole = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return _elements(text, left)
    if not isinstance(whole, list):
        raise BadInputError(f"{path}: this JSON isn't a list")
    return whole


def _elements(text: str, left: Left) -> list[Any]:
    """The objects in sequence; after a damaged one, parsing resumes at what seems to be the next."""
    decoder = json.JSONDecoder(strict=False)
    found: list[Any] = []
    at = text.find("{")
    while at >= 0:
        try:
            element, at = decoder.raw_decode(text, at)
            found.append(element)
        except (ValueError, RecursionError):
            place = f"line {text.count(chr(10), 0, at) + 1}"
            left.add("broken_json", "elements of the list are damaged or cut off", place=place)
            at = _next_element(text, at)
            continue
        at = text.find("{", at)
    if not text.rstrip().endswith("]"):
        left.add("cut_off", "list has no end: the rest is lost")
    return found


def _next_element(text: str, at: int) -> int:
    """Position where the next line begins with an object, or the next object follows a comma; -1 if nowhere."""
    following = [place for mark in ("\n{", "\n, {", "\n,{", "},{", "}, {") if (place := text.find(mark, at + 1)) >= 0]
    return text.find("{", min(following)) if following else -1


def as_float(value: object) -> float | None:
    """A number, or text that is a number; None for anything else, and beyond ``LARGEST``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int) and abs(value) >= LARGEST:
        return None
    return plain_number(str(value))
