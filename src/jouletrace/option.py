"""Options stated once, as fields of a dataclass: what the command line shows and what Python takes; their numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import Field, field, fields
from typing import Any

from jouletrace.errors import BadInputError, nearest

GONE = {
    "--schema": "JSON is of schema 3 alone, which has parts.<division> in place of a list for each level",
    "--context": "profile with --prompt-len, once for each length",
    "mig bench": "put a server under load by bench; mig sweep runs models on slices, several at once by --together",
}
"""Options and commands of the release before that are gone, and what takes their place."""


def whole(text: str) -> int:
    """A whole number as a user writes it, in ASCII digits: Python's ``int`` takes "٣" and "1_0" for numbers, too.

    Raises:
        ValueError: If it is anything else.
    """
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,400}\s*", text):
        raise ValueError("not a whole number")
    return int(text)


def number(text: str) -> float:
    """The same of a number, as ``float`` reads it.

    Raises:
        ValueError: If it is none.
    """
    if not text.isascii() or "_" in text:
        raise ValueError("not a number")
    return float(text)


def option(
    default: Any,
    help: str,
    *,
    flags: tuple[str, ...] = (),
    metavar: str | None = None,
    percent: bool = False,
    pairs: bool = False,
    shown: bool = True,
) -> Any:
    """A field of a dataclass of options.

    Args:
        default: Its default; a callable makes one (as ``default_factory``).
        help: One sentence: what it means, its unit, what it may be. A default that isn't plain follows in brackets.
        flags: Its names on the command line; none for ``--name`` without a unit's suffix (``max_time_s``: --max-time).
        metavar: What stands for its value in the help.
        percent: A share, written as a percentage.
        pairs: A dictionary, written as KEY=VALUE and repeatable.
        shown: Whether the command line has it; else it is Python's alone.
    """
    metadata = {
        "help": help,
        "flags": flags,
        "metavar": metavar,
        "percent": percent,
        "pairs": pairs,
        "shown": shown,
    }
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def flag_of(one: Field[Any]) -> str:
    """The first name of a field on the command line: "--max-time" of ``max_time_s``."""
    flags: tuple[str, ...] = one.metadata["flags"]
    return flags[0] if flags else f"--{one.name.removesuffix('_s').replace('_', '-')}"


def named(kind: type, given: Mapping[str, Any], call: str) -> dict[str, Any]:
    """Options of a ``call`` from Python under the names of a dataclass's fields, which include the unit.

    Raises:
        BadInputError: If there is no such option (the nearest are named), or one is given under both names.
    """
    known = [one.name for one in fields(kind)]
    found: dict[str, Any] = {}
    for name, value in given.items():
        full = next((one for one in (name, f"{name}_s") if one in known), None)
        if full is None:
            if (flag := f"--{name}") in GONE:
                raise BadInputError(f"{call}(): {name} is gone: {GONE[flag]}")
            raise BadInputError(f"{call}() has no option {name!r}{nearest(name, known)}")
        if full in found:
            raise BadInputError(f"{call}() got {full} twice, also as {full.removesuffix('_s')}")
        found[full] = value
    return found
