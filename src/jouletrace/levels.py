"""Levels of what a whole divides into: the words of ``--detail``, ``--by`` and ``--fail-if``, in one table."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from jouletrace.errors import BadInputError, nearest

PROFILE, SHOW, BY, FAIL_IF = "profile --detail", "show --detail", "show --by", "compare --fail-if"
OPTIONS = (PROFILE, SHOW, BY, FAIL_IF)
"""Options that take levels."""


@dataclass(frozen=True)
class Level:
    """A level.

    Attributes:
        name: Its word.
        meaning: What a row of it is.
        options: Those of ``OPTIONS`` that take it.
        title: Heading of a table of its rows; "" if none has one.
        step: Kind of the steps of paths that are of it, where that has another name.
        old: A word that an earlier version had for it, which ``--by`` takes for one release.
    """

    name: str
    meaning: str
    options: Collection[str]
    title: str = ""
    step: str = ""
    old: str = ""


LEVELS = (
    Level("model", "all that was measured", (PROFILE, SHOW, FAIL_IF)),
    Level("device", "a GPU", (BY,), "Devices"),
    Level("load", "a rate or concurrency of requests to a server", (FAIL_IF,), "Loads"),
    Level("phase", "forward, backward, optimizer, prefill or decode", OPTIONS, "Phases"),
    Level("length", "a forward of one token", (), "Forwards of one token, by the length of the cache"),
    Level("context", "a forward", (), "Forwards, by context"),
    Level("layer", "a module; for `--by` equal ones are one", OPTIONS, "Layers", "module", "module"),
    Level("op", "an operator", OPTIONS, "Operators"),
    Level("shapes", "shapes and types of an operator's inputs", (BY,)),
    Level("kernel", "a kernel; for `--detail` below its operator", OPTIONS, "Operators and kernels"),
    Level("range", "a range that a program or its profiler marks", (SHOW, FAIL_IF), "Ranges"),
)
"""All levels, coarse to fine; then ranges, which lie beside them."""

TITLES = {level.name: level.title for level in LEVELS if level.title}
"""Heading of each level that has tables."""

STEPS = {level.name: level.step or level.name for level in LEVELS}
"""Kind of the steps of paths that are of each level."""

RENAMED = {level.old: level.name for level in LEVELS if level.old}
"""The word that takes the place of each old one."""


def taken(option: str) -> tuple[str, ...]:
    """Names of the levels that an option takes, coarse to fine."""
    return tuple(level.name for level in LEVELS if option in level.options)


def listed(option: str, last: str = "or") -> str:
    """These as words: "model, phase or layer"."""
    *names, end = taken(option)
    return f"{', '.join(names)} {last} {end}"


def check(option: str, name: str, given: str) -> None:
    """Refuse a level that an option doesn't take.

    Args:
        option: One of ``OPTIONS``.
        name: The level.
        given: What was typed, or written in Python, which begins the error.

    Raises:
        BadInputError: If ``option`` doesn't take it: names those that it takes, and the options that take ``name``.
    """
    names = taken(option)
    if name in names:
        return
    known = next((level for level in LEVELS if name == level.name and level.options), None)
    of = f"; {name} is a level of {', '.join(known.options)}" if known else ""
    near = f"; did you mean '{RENAMED[name]}'?" if name in RENAMED else "" if known else nearest(name, names)
    raise BadInputError(f"{given}: no level {name!r} here; there is {', '.join(names)}{of}{near}")
