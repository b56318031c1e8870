"""Wings that ship with jouletrace, and those that aren't here."""

import re
from collections.abc import Sequence
from itertools import pairwise

from jouletrace.cli.app import commands
from jouletrace.wing import registered
from places import REPOSITORY

WINGS: dict[str, set[str]] = {
    "fleet": set(),
    "jobs": set(),
    "joules": set(),
    "live": {"logs"},
    "logs": set(),
    "mig": {"serving"},
    "on_ray": set(),
    "otlp": set(),
    "pods": set(),
    "runtimes": set(),
    "serving": set(),
    "toolchain": {"runtimes", "traces", "logs"},
    "traces": set(),
    "trainers": set(),
}
"""Each wing, with the others that it may import; all others can be deleted without it."""

LATER: tuple[str, ...] = ()
"""Wings that the core's tests need still: none is added, and those that are free are taken off."""

ABSENT = {name for name in WINGS if not (REPOSITORY / "src" / "jouletrace" / "wings" / name).is_dir()}
"""Wings that aren't here: tests that walk over pages, help or names pass over what these bring."""


def is_absent(path: object) -> bool:
    """True of a file of a wing that isn't here."""
    match = re.search(r"\bwings/(\w+)/", str(path))
    return match is not None and match[1] in ABSENT


def is_read(name: str) -> bool:
    """True of a stored Run, by its name, whose figures no absent wing determines."""
    return not ("serving" in ABSENT and name.startswith("serving"))


def is_known(words: Sequence[str]) -> bool:
    """True of a command line, without ``jouletrace``, that needs no absent wing."""
    command, backend = (*words, "")[0], dict(pairwise(words)).get("--backend", "auto")
    backends = {"auto", "torch", *registered("backends"), *registered("engines")}
    there = command in {*commands(), "", "COMMAND"} or command.startswith("-")
    lacking = {"--serve", "--otlp", "--pods"} - {
        f"--{name}" for kind in ("publishers", "observers") for name in registered(kind)
    }
    return not ABSENT or (there and backend in backends and lacking.isdisjoint(words))
