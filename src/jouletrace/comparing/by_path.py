"""Parts of A and B matched by their paths: by all of it, and then by ever less."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from jouletrace.comparing.pairs import LEVELS
from jouletrace.comparing.sides import metrics_of
from jouletrace.comparing.source import Listed, Side
from jouletrace.run import MODEL_UNIT
from jouletrace.run.parts import Part, Parts
from jouletrace.run.paths import Path, PathStep

_DTYPE = re.compile(r"\b(?:b?f|i|u)\d+\b|\bbool\b")

Ident = tuple[str, Path, int]
"""Level, path, and a number that distinguishes parts of one level and path."""


class Pair(NamedTuple):
    """A part of both sides, as each run has it, with flags of how it differs between them."""

    level: str
    parts: tuple[list[Part | None], list[Part | None]]
    flags: tuple[str, ...]


def matched(a: Side, b: Side) -> tuple[list[Pair], Side, Side]:
    """Parts of equal paths in the order of B, of others those that agree in ever less and are unique; what is left."""
    of_a, of_b = _parts(a), _parts(b)
    pairs: dict[Ident, tuple[Ident, tuple[str, ...]]] = {}
    left_a, left_b = list(of_a), list(of_b)
    for reduced, flags in _WAYS:
        short_a, short_b = _by(left_a, reduced), _by(left_b, reduced)
        for key, ident in short_a.items():
            if len(ident) == len(short_b.get(key, ())) == 1:
                pairs[short_b[key][0]] = ident[0], flags
        done = {ident for ident, _ in pairs.values()}
        left_a, left_b = (
            [ident for ident in left_a if ident not in done],
            [ident for ident in left_b if ident not in pairs],
        )
    both = [
        Pair(ident[0], (of_a[pairs[ident][0]], parts), pairs[ident][1])
        for ident, parts in of_b.items()
        if ident in pairs
    ]
    return both, _with(a, of_a, left_a), _with(b, of_b, left_b)


def _parts(side: Side) -> dict[Ident, list[Part | None]]:
    """The parts that have figures to compare, each as every run of the side has it; None in runs that lack it."""
    parts_of: dict[Ident, list[Part | None]] = {}
    for i, source in enumerate(side.sources):
        parts = Parts(source.run)
        for level in LEVELS:
            seen: Counter[Path] = Counter()
            for part in parts.units(level):
                if part.id == MODEL_UNIT or part.figures.keys().isdisjoint(metrics_of(level)):
                    continue
                path = part.path
                if level == "phase" and part.shapes:  # the lengths of a phase distinguish it, too
                    path = (*path, PathStep("shapes", part.shapes))
                elif path and path[-1].kind == "pool":  # as do the members of a pool, which is named by their number
                    inside = sorted(child.path for child in parts.all() if child.parent == part.id)
                    path = (*path, *(step for child_path in inside for step in child_path))
                parts_of.setdefault((level, path, seen[path]), [None] * side.count)[i] = part
                seen[path] += 1
    return parts_of


def _with(side: Side, parts: Mapping[Ident, list[Part | None]], left: Sequence[Ident]) -> Side:
    """The side with the parts that it alone has."""
    return replace(side, only=tuple(Listed(ident[0], next(filter(None, parts[ident]))) for ident in left))


def _without_dtype(path: Path) -> Path:
    return tuple(step._replace(name=_DTYPE.sub("", step.name)) if step.kind == "shapes" else step for step in path)


def _without_shapes(path: Path) -> Path:
    return tuple(step for step in path if step.kind != "shapes")


def _operator(path: Path) -> Path | None:
    """The path of a kernel's operator, whatever its shapes, since the kernel's own name has changed."""
    kinds = {step.kind for step in path}
    by_operator = "op" in kinds and "pool" not in kinds
    return tuple(step for step in path if step.kind not in ("shapes", "kernel")) if by_operator else None


_WAYS: tuple[tuple[Callable[[Path], Path | None], tuple[str, ...]], ...] = (
    (lambda path: path, ()),
    (_without_dtype, ("dtype_differs",)),
    (_without_shapes, ("shapes_differ",)),
    (_operator, ("kernel_differs",)),
)
"""Steps of a path by which a part is recognised, ever fewer, and the flag of such a pair."""


def _by(parts: Sequence[Ident], reduced: Callable[[Path], Path | None]) -> dict[Ident, list[Ident]]:
    by_short: dict[Ident, list[Ident]] = {}
    for level, path, number in parts:
        if (short := reduced(path)) is not None:
            by_short.setdefault((level, short, number), []).append((level, path, number))
    return by_short
