"""Paths of parts: where something ran, in steps from the outside in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple


class PathStep(NamedTuple):
    """One name on a path, and of what kind it is: "device", "phase", "module", "op", "shapes", "kernel", "idle", ..."""

    kind: str
    name: str


Path = tuple[PathStep, ...]
"""Where something ran, from the outside in: a module is as many steps as its name has words; () is the whole."""


MOST_STEPS = 128
"""Most steps of a module or range; no network and no loop is nested as deeply."""


def steps_of(kind: str, name: str, separator: str) -> Path:
    """The steps of a name: its words, those beyond ``MOST_STEPS`` together; empty words are left out."""
    return tuple(PathStep(kind, word) for word in name.split(separator, MOST_STEPS - 1) if word)


def path_of(
    phase: str | None = None,
    module: str | None = None,
    op: str | None = None,
    shapes: str | None = None,
    kernel: str | None = None,
) -> Path:
    """The path of a kernel, or of an operator or module, by what is known of it."""
    modules, operator = steps_of("module", module or "", "."), (op or "").removeprefix("aten.")
    steps = [("phase", phase), *modules, ("op", operator), ("shapes", shapes), ("kernel", kernel)]
    return tuple(PathStep(kind, name) for kind, name in steps if name)


def names_of(path: Path) -> Mapping[str, str]:
    """The names on a path by their kind, "" for kinds that it lacks: those of ``path_of``, the words of each joined."""
    words = defaultdict[str, list[str]](list)
    for step in path:
        words[step.kind].append(step.name)
    return defaultdict(str, {kind: ".".join(some) for kind, some in words.items()})
