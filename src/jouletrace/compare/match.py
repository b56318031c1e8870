"""Matching of the units of A and B: by range label, qualified name, operator and shapes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from jouletrace.compare.pairs import LOAD, Key
from jouletrace.compare.sides import LOAD_METRICS, PART_METRICS, Source
from jouletrace.run import MODEL_UNIT, Estimate
from jouletrace.run.estimate import widened
from jouletrace.run.parts import ABSENT, Part, Parts
from jouletrace.stats.interval import Z95

_DTYPE = re.compile(r"\b(?:b?f|i|u)\d+\b|\bbool\b")

Figures = dict[Key, list[dict[str, Estimate]]]
"""Figures by metric for each run of the side, by unit; empty where a run lacks the unit."""


class Matched(NamedTuple):
    """Units of both sides, with flags of how they differ, and units of one side only."""

    pairs: list[tuple[Key, Key, tuple[str, ...]]]
    only_a: list[Key]
    only_b: list[Key]


def parts_of(side: Sequence[Source], levels: Sequence[str]) -> Figures:
    """The units of a side's runs and their figures."""
    found: Figures = {}
    for i, source in enumerate(side):
        results = Parts(source.run)
        for level in levels:
            seen: Counter[Key] = Counter()
            for unit in results.units(level):
                metrics = unit.figures
                named = LOAD_METRICS if level == LOAD else PART_METRICS
                figures = {name: _with_chance(name, metrics) for name in named if name in metrics}
                if unit.id == MODEL_UNIT or not figures:
                    continue
                plain = replace(_key(level, unit), device=unit.gpu)
                key = replace(plain, number=seen[plain])
                seen[plain] += 1
                found.setdefault(key, [{} for _ in side])[i] = figures
    return found


def _with_chance(name: str, metrics: Mapping[str, Estimate]) -> Estimate:
    """A figure, its interval widened by the chance within the run where that is stated apart."""
    found, chance = metrics[name], metrics.get(f"{name.removesuffix('_j')}_error_pct", ABSENT)
    return found if chance.value is None else widened(found, Z95 * chance.value / 100 * abs(found.value or 0.0))


def match(a: Sequence[Key], b: Sequence[Key]) -> Matched:
    """Pair units that agree in everything, then those that agree in ever fewer properties and are unique."""
    pairs: list[tuple[Key, Key, tuple[str, ...]]] = []
    left_a, left_b = list(a), list(b)
    for reduced, flags in _WAYS:
        of_a, of_b = _by(left_a, reduced), _by(left_b, reduced)
        for shape, keys in of_a.items():
            others = of_b.get(shape, [])
            if len(keys) == len(others) == 1:
                pairs.append((keys[0], others[0], flags))
        done_a, done_b = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
        left_a = [key for key in left_a if key not in done_a]
        left_b = [key for key in left_b if key not in done_b]
    place = {key: i for i, key in enumerate(b)}
    return Matched(sorted(pairs, key=lambda pair: place[pair[1]]), left_a, left_b)


def _key(level: str, unit: Part) -> Key:
    texts = (unit.name, unit.op, unit.shapes, unit.module, unit.phase)
    name, op, shapes, module, phase = (" ".join(str(text).split()) if text else "" for text in texts)
    # An operator's name is composed of the other properties.
    return Key(level, op if level == "op" and op else name, op, shapes, module, phase)


_WAYS: tuple[tuple[Callable[[Key], Key | None], tuple[str, ...]], ...] = (
    (lambda key: key, ()),
    (lambda key: replace(key, shapes=_DTYPE.sub("", key.shapes)), ("dtype_differs",)),
    (lambda key: replace(key, shapes=""), ("shapes_differ",)),
    # a kernel by its operator, where its own name has changed
    (lambda k: replace(k, name="", shapes="") if k.level == "kernel" and k.op else None, ("kernel_differs",)),
)
"""What a unit is recognised by, ever less, and the flag of such a pair."""


def _by(keys: Sequence[Key], reduced: Callable[[Key], Key | None]) -> dict[Key, list[Key]]:
    found: dict[Key, list[Key]] = {}
    for key in keys:
        if (short := reduced(key)) is not None:
            found.setdefault(short, []).append(key)
    return found


def fits(key: Key, pattern: str) -> bool:
    """True if a pattern with ``*`` and ``?`` matches a unit: its name, operator, or module."""
    texts = (key.name, key.op, key.module, key.called)
    return any(text and (fnmatchcase(text, pattern) or text == pattern) for text in texts)
