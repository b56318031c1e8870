"""Parts of A and B matched by their paths: by all of it, and then by ever less."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jouletrace.compare.pairs import LEVELS, Listed, Side
from jouletrace.compare.sides import metrics_of
from jouletrace.run import MODEL_UNIT
from jouletrace.run.parts import Part, Parts, Path

_DTYPE = re.compile(r"\b(?:b?f|i|u)\d+\b|\bbool\b")

Ident = tuple[str, Path, int]
"""Level, path, and a number that distinguishes parts of one level and path."""

Found = dict[Ident, list[Part | None]]
"""The parts of a side, each as every run of the side has it; None in runs that lack it."""


class Matched(NamedTuple):
    """Level, and both sides of parts of both, with flags of how they differ; and parts of one side only."""

    pairs: list[tuple[str, tuple[list[Part | None], list[Part | None]], tuple[str, ...]]]
    only_a: list[Listed]
    only_b: list[Listed]


def parts_of(side: Side) -> Found:
    """The parts of a side's runs that have figures to compare."""
    found: Found = {}
    for i, source in enumerate(side.sources):
        parts = Parts(source.run)
        for level in LEVELS:
            seen: Counter[Path] = Counter()
            for part in parts.units(level):
                if part.id == MODEL_UNIT or part.figures.keys().isdisjoint(metrics_of(level)):
                    continue
                found.setdefault((level, part.path, seen[part.path]), [None] * side.count)[i] = part
                seen[part.path] += 1
    return found


def match(a: Found, b: Found) -> Matched:
    """Pair parts of equal paths, in the order of B, then those whose paths agree in ever less and are unique."""
    pairs: dict[Ident, tuple[Ident, tuple[str, ...]]] = {}
    left_a, left_b = list(a), list(b)
    for reduced, flags in _WAYS:
        of_a, of_b = _by(left_a, reduced), _by(left_b, reduced)
        pairs |= {of_b[key][0]: (own[0], flags) for key, own in of_a.items() if len(own) == len(of_b.get(key, ())) == 1}
        done_a = {own for own, _ in pairs.values()}
        left_a, left_b = [own for own in left_a if own not in done_a], [own for own in left_b if own not in pairs]
    both = [(own[0], (a[pairs[own][0]], b[own]), pairs[own][1]) for own in b if own in pairs]
    only_a, only_b = ([_listed(own, side) for own in left] for left, side in ((left_a, a), (left_b, b)))
    return Matched(both, only_a, only_b)


def _listed(own: Ident, side: Found) -> Listed:
    return Listed(own[0], next(part for part in side[own] if part is not None))


def _without_dtype(path: Path) -> Path:
    return tuple(step._replace(name=_DTYPE.sub("", step.name)) if step.kind == "shapes" else step for step in path)


def _without_shapes(path: Path) -> Path:
    return tuple(step for step in path if step.kind != "shapes")


def _operator(path: Path) -> Path | None:
    """The path of a kernel's operator, whatever its shapes, since the kernel's own name has changed."""
    known = any(step.kind == "op" for step in path)
    return tuple(step for step in path if step.kind not in ("shapes", "kernel")) if known else None


_WAYS: tuple[tuple[Callable[[Path], Path | None], tuple[str, ...]], ...] = (
    (lambda path: path, ()),
    (_without_dtype, ("dtype_differs",)),
    (_without_shapes, ("shapes_differ",)),
    (_operator, ("kernel_differs",)),
)
"""What of a path a part is recognised by, ever less, and the flag of such a pair."""


def _by(parts: Sequence[Ident], reduced: Callable[[Path], Path | None]) -> dict[Ident, list[Ident]]:
    found: dict[Ident, list[Ident]] = {}
    for level, path, number in parts:
        if (short := reduced(path)) is not None:
            found.setdefault((level, short, number), []).append((level, path, number))
    return found
