"""Whose each kernel of a program is: its operator by what was sampled, its ranges by where they begin and end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from jouletrace.profiler.program.operators import BETWEEN, UNLABELLED, Label
from jouletrace.tracing.log import Ints, Launched

_DIGITS = re.compile(r"\d+")

CONTEXTS = (6, 3, 1, 0)
"""Kernels before and after one that are compared, the most first: a sequence that names one operator names this one."""

SURE = 0.95
"""Least share of the sampled kernels of a sequence that one operator launched."""


@dataclass(frozen=True)
class LaunchMarks:
    """Marks by launch number, ascending; both of shape (m,), and what their meanings stand for.

    Attributes:
        number, meaning: Of each mark. A meaning is ``UNLABELLED``, ``BETWEEN``, the index of a label, or
            ``first_range`` plus twice the index of a range, plus one where it ends.
        labels: Operators and modules.
        ranges: Path of each range that was opened.
        first_range: Of the meanings.
        same: Of each label, the one by which it goes, shape (labels,); see ``merged``.
    """

    number: Ints
    meaning: Ints
    labels: Sequence[Label]
    ranges: Sequence[tuple[str, ...]]
    first_range: int
    same: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


def ranges_of(work: Launched, marks: LaunchMarks) -> tuple[list[tuple[str, ...]], Ints]:
    """Distinct paths, () first, and the path that is innermost at each launch, shape (n,)."""
    paths: dict[tuple[str, ...], int] = {(): 0}
    chosen = marks.meaning >= marks.first_range
    numbers, inner, still = marks.number[chosen], [0], list[int]()
    for meaning in (marks.meaning[chosen] - marks.first_range).tolist():
        if meaning % 2 == 0:
            still.append(meaning // 2)
        elif meaning // 2 in still:
            still.remove(meaning // 2)
        path = marks.ranges[still[-1]] if still else ()
        inner.append(paths.setdefault(path, len(paths)))
    return list(paths), np.array(inner, np.int64)[np.searchsorted(numbers, work.correlation)]


def operators_of(work: Launched, marks: LaunchMarks) -> Ints:
    """Index of the label of each kernel, ``UNLABELLED`` where it isn't known; shape (n,)."""
    sampled, label = _sampled(work, marks)
    if len(marks.same):
        label = np.where(label >= 0, marks.same[label], label)
    found = np.full(len(work), UNLABELLED, np.int64)
    open_ = np.ones(len(work), bool)
    if not sampled.any():
        return found
    for reach in CONTEXTS:
        key = _context(work.name, reach)
        known, sure = _learned(key[sampled], label[sampled])
        place = np.minimum(np.searchsorted(known, key), len(known) - 1)
        there = open_ & (known[place] == key) & (sure[place] != BETWEEN)
        found[there] = sure[place[there]]
        open_ &= ~there
    found[sampled] = label[sampled]
    return found


def merged(work: Launched, marks: LaunchMarks) -> LaunchMarks:
    """The marks with one label for the equal layers of a model, whose kernels no sequence distinguishes."""
    sampled, label = _sampled(work, marks)
    same = np.arange(len(marks.labels))
    key = _context(work.name, CONTEXTS[0])[sampled]
    pairs = np.unique(np.stack([key, label[sampled].astype(np.uint64)]), axis=1)
    for k in np.unique(pairs[0][1:][pairs[0][1:] == pairs[0][:-1]]):
        alike: dict[str, int] = {}
        for one in np.sort(pairs[1][pairs[0] == k].astype(np.int64)).tolist():
            if one >= 0:
                root = alike.setdefault(marks.labels[one][0], int(same[one]))
                same[same == same[one]] = root
    labels = list(marks.labels)
    for root in np.unique(same):
        members = [marks.labels[int(i)] for i in np.flatnonzero(same == root)]
        labels[root] = members[0][0], _pattern([module for _, module in members])
    return replace(marks, labels=labels, same=same)


def _pattern(modules: Sequence[str]) -> str:
    """What some qualified names have in common: equal words stay, numbers that differ become *."""
    found: list[str] = []
    for words in zip(*(module.split(".") for module in modules), strict=False):
        alike = set(words) if len(set(words)) == 1 else {_DIGITS.sub("*", word) for word in words}
        if len(alike) > 1:
            return ".".join([*found, "*"])
        found += alike
    return ".".join(found)


def _sampled(work: Launched, marks: LaunchMarks) -> tuple[NDArray[np.bool_], Ints]:
    """Which kernels were launched within a sample, and the label of each."""
    chosen = marks.meaning < marks.first_range
    number, meaning = marks.number[chosen], marks.meaning[chosen]
    after = np.searchsorted(number, work.correlation)
    inside = np.append(np.cumsum(meaning == BETWEEN) % 2 == 1, False)
    within = np.zeros(len(work), bool)
    label = np.full(len(work), UNLABELLED, np.int64)
    some = (after > 0) & (after < len(number))
    within[some] = inside[after[some] - 1]
    label[some] = np.where(meaning[after[some]] >= 0, meaning[after[some]], UNLABELLED)
    return within, label


def _context(name: Ints, reach: int) -> NDArray[np.uint64]:
    """A number for each kernel with those before and after it, equal for equal sequences; shape (n,)."""
    padded = np.concatenate([np.full(reach, -1), name, np.full(reach, -1)]).astype(np.uint64)
    key = np.zeros(len(name), np.uint64)
    for offset in range(2 * reach + 1):
        key = (key ^ (padded[offset : offset + len(name)] + np.uint64(1))) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    return key


def _learned(key: NDArray[np.uint64], label: Ints) -> tuple[NDArray[np.uint64], Ints]:
    """Distinct sequences and the label of each; ``BETWEEN`` where several operators launch it."""
    known, which = np.unique(key, return_inverse=True)
    pairs, count = np.unique(np.stack([which.reshape(-1), label]), axis=1, return_counts=True)
    total, most = np.bincount(pairs[0], count), np.zeros(len(known))
    np.maximum.at(most, pairs[0], count)
    best = np.full(len(known), BETWEEN, np.int64)
    top = count >= np.maximum(SURE * total, most)[pairs[0]]
    best[pairs[0][top]] = pairs[1][top]
    return known, best
