"""Matching of the units of A and B: by range label, qualified name, operator and shapes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from jouletrace.compare.sides import PART_METRICS, Source, squeezed
from jouletrace.errors import BadInputError
from jouletrace.report.results import Results
from jouletrace.run import MODEL_UNIT, Estimate

LEVELS = ("phase", "layer", "op", "kernel", "range")

_DTYPE = re.compile(r"\b(?:b?f|i|u)\d+\b|\bbool\b")


@dataclass(frozen=True)
class Key:
    """The properties by which a unit is recognised.

    Attributes:
        level: Its level.
        name: Label of a range, qualified name of a layer, name of a kernel or operator.
        op, shapes, module, phase: As in the ``units`` table; "" for none.
        number: Distinguishes units that agree in all the others.
    """

    level: str
    name: str
    op: str = ""
    shapes: str = ""
    module: str = ""
    phase: str = ""
    number: int = 0


Parts = dict[Key, list[dict[str, Estimate]]]
"""Figures by metric for each run of the side, by unit; empty where a run lacks the unit."""


@dataclass(frozen=True)
class Matched:
    """Units of both sides, and units of one side only.

    Attributes:
        pairs: Keys of A and B, with flags of how they differ.
        only_a, only_b: Keys without a partner.
    """

    pairs: list[tuple[Key, Key, tuple[str, ...]]]
    only_a: list[Key]
    only_b: list[Key]


def parts_of(side: Sequence[Source], levels: Sequence[str]) -> Parts:
    """The units of a side's runs and their figures."""
    found: Parts = {}
    for i, source in enumerate(side):
        results = Results(source.run)
        for level in levels:
            seen: Counter[Key] = Counter()
            for unit in results.units(level):
                metrics = results.metrics(unit["id"])
                figures = {name: metrics[name].estimate for name in PART_METRICS if name in metrics}
                if unit["id"] == MODEL_UNIT or not figures:
                    continue
                plain = _key(level, unit)
                key = replace(plain, number=seen[plain])
                seen[plain] += 1
                found.setdefault(key, [{} for _ in side])[i] = figures
    return found


def match(a: Sequence[Key], b: Sequence[Key], renames: Mapping[str, str]) -> Matched:
    """Pair units: first those that agree in everything, then those that agree in ever fewer properties and are unique.

    Args:
        a: Units of A.
        b: Units of B.
        renames: Names, modules (with all below them) or operators of A, by their names in B.

    Raises:
        BadInputError: If a renamed name is in neither side; the message offers the nearest.
    """
    new_names = {key: _renamed(key, renames) for key in a}
    _check_renames(a, b, renames)
    pairs: list[tuple[Key, Key, tuple[str, ...]]] = []
    left_a, left_b = list(a), list(b)
    for reduced, flags in _WAYS:
        of_a, of_b = _by(left_a, reduced, new_names), _by(left_b, reduced, {})
        for shape, keys in of_a.items():
            others = of_b.get(shape, [])
            if len(keys) == len(others) == 1:
                pairs.append((keys[0], others[0], flags))
        done_a, done_b = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
        left_a = [key for key in left_a if key not in done_a]
        left_b = [key for key in left_b if key not in done_b]
    place = {key: i for i, key in enumerate(b)}
    return Matched(sorted(pairs, key=lambda pair: place[pair[1]]), left_a, left_b)


def _key(level: str, unit: Mapping[str, Any]) -> Key:
    name, op, shapes, module, phase = (squeezed(unit.get(text)) for text in ("name", "op", "shapes", "module", "phase"))
    # An operator's name is composed of the other properties.
    return Key(level, op if level == "op" and op else name, op, shapes, module, phase)


def _everything(key: Key) -> Key:
    return key


def _without_dtype(key: Key) -> Key:
    return replace(key, shapes=_DTYPE.sub("", key.shapes))


def _without_shapes(key: Key) -> Key:
    return replace(key, shapes="")


def _operator(key: Key) -> Key | None:
    """A kernel identified by its operator, where its own name has changed."""
    return replace(key, name="", shapes="") if key.level == "kernel" and key.op else None


_WAYS: tuple[tuple[Callable[[Key], Key | None], tuple[str, ...]], ...] = (
    (_everything, ()),
    (_without_dtype, ("dtype_differs",)),
    (_without_shapes, ("shapes_differ",)),
    (_operator, ("kernel_differs",)),
)


def _by(
    keys: Sequence[Key], reduced: Callable[[Key], Key | None], new_names: Mapping[Key, Key]
) -> dict[Key, list[Key]]:
    found: dict[Key, list[Key]] = {}
    for key in keys:
        if (short := reduced(new_names.get(key, key))) is not None:
            found.setdefault(short, []).append(key)
    return found


def _renamed(key: Key, renames: Mapping[str, str]) -> Key:
    name, op, module = (_new(text, renames) for text in (key.name, key.op, key.module))
    return replace(key, name=name, op=op, module=module)


def _new(text: str, renames: Mapping[str, str]) -> str:
    for old, new in renames.items():
        if text == old or text.startswith(f"{old}."):
            return new + text[len(old) :]
    return text


def _check_renames(a: Sequence[Key], b: Sequence[Key], renames: Mapping[str, str]) -> None:
    for names, keys, side in ((renames, a, "A"), (renames.values(), b, "B")):
        there = {text for key in keys for text in (key.name, key.op, key.module) if text}
        for name in names:
            if not any(text == name or text.startswith(f"{name}.") for text in there):
                near = get_close_matches(name, sorted(there), 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise BadInputError(f"--map: {side} has nothing called {name!r}{hint}")


def fits(key: Key, pattern: str) -> bool:
    """Whether a pattern with ``*`` and ``?`` matches a unit: its name, operator, or module."""
    texts = (key.name, key.op, key.module)
    return any(text and (fnmatchcase(text, pattern) or text == pattern) for text in texts)
