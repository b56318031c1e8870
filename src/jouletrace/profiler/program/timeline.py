"""From launches and marks to the rows of a Run: whose each kernel is, and the part whose power is analysed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.recording import IDLE_NAME
from jouletrace.profiler.program.operators import BETWEEN, UNLABELLED, Label
from jouletrace.run import MODEL_UNIT
from jouletrace.tracing.log import Ints, Launched

_DIGITS = re.compile(r"\d+")

MOST_KERNELS, BLOCK_S = 1_500_000, 30.0
"""Largest part of a program whose power is analysed: powers of its kernels hold for the rest."""

CONTEXTS = (6, 3, 1, 0)
"""Kernels before and after one that are compared, the most first: a sequence that names one operator names this one."""

SURE = 0.95
"""Least share of the sampled kernels of a sequence that one operator launched."""


@dataclass(frozen=True)
class Marks:
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


def ranges_of(work: Launched, marks: Marks) -> tuple[list[tuple[str, ...]], Ints]:
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


def operators_of(work: Launched, marks: Marks) -> Ints:
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


def merged(work: Launched, marks: Marks) -> Marks:
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


def _sampled(work: Launched, marks: Marks) -> tuple[NDArray[np.bool_], Ints]:
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


@dataclass(frozen=True)
class Rows:
    """A program as rows of a Run.

    Attributes:
        units: Operators, their kernels, the places where they are called, and idle.
        activity: Columns of ``activity``, for the part that is analysed.
        seconds: Unit, place and seconds over the whole program.
        begin_ns, end_ns: Of the part that is analysed.
        unmatched: Share of the kernels of unknown operators; None where none was sampled.
    """

    units: list[dict[str, object]]
    activity: dict[str, Ints]
    seconds: list[list[float]]
    begin_ns: int
    end_ns: int
    unmatched: float | None


def rows_of(work: Launched, weight: NDArray[np.float64], marks: Marks, first_id: int) -> Rows:
    """The rows of a program.

    Args:
        work: In the order of launches, of one device.
        weight: For how many of its like each kernel stands, where parts of the time weren't traced, shape (n,).
        marks: Of ranges and operators.
        first_id: Of the first unit.
    """
    marks = merged(work, marks)
    paths, path = ranges_of(work, marks)
    operator = operators_of(work, marks)
    units: dict[tuple[Any, ...], int] = {}
    rows: list[dict[str, object]] = []

    def unit(key: tuple[Any, ...], **columns: object) -> int:
        if key not in units:
            units[key] = first_id + len(rows)
            rows.append({"id": units[key], "count": 0, "op": None, "module": None, **columns})
        return units[key]

    triples, which, count = np.unique(
        np.stack([operator, work.name, path]), axis=1, return_inverse=True, return_counts=True
    )
    of_unit, of_site = np.empty(triples.shape[1], np.int64), np.empty(triples.shape[1], np.int64)
    for k, (label, name, where) in enumerate(triples.T.tolist()):
        op, module = marks.labels[label] if label >= 0 else ("", "")
        about: dict[str, object] = {"op": op or None, "module": module or None}
        parent = MODEL_UNIT
        if op:
            parent = unit(("op", op, module), parent=MODEL_UNIT, level="op", name=op, **about)
        shown = work.names[name]
        of_unit[k] = unit(("kernel", op, module, shown), parent=parent, level="kernel", name=shown, **about)
        place = ".".join(one.replace(".", "\u2024") for one in paths[where])
        inside = ".".join(filter(None, [place, module]))
        owner = parent if op else int(of_unit[k])
        of_site[k] = unit(
            ("site", inside, op or shown),
            parent=owner,
            level="site",
            name=op or shown,
            module=inside or None,
            op=op or None,
        )
    for k, n in enumerate(count.tolist()):
        for id in {int(of_unit[k]), int(of_site[k])}:
            row = rows[id - first_id]
            row["count"] = int(str(row["count"])) + n
    rows[unit(("idle",), parent=MODEL_UNIT, level="op", name=IDLE_NAME) - first_id]["count"] = 1
    which = which.reshape(-1)
    length = (work.end_ns - work.start_ns) / 1e9
    seconds = np.bincount(which, length * weight, triples.shape[1])
    block = _block(work)
    order = np.flatnonzero(block)[np.argsort(work.start_ns[block], kind="stable")]
    known = operator[operator != UNLABELLED].size / max(len(work), 1)
    return Rows(
        rows,
        {
            "start_ns": work.start_ns[order],
            "end_ns": work.end_ns[order],
            "unit": of_unit[which[order]],
            "site": of_site[which[order]],
        },
        [[int(of_unit[k]), int(of_site[k]), float(seconds[k])] for k in range(len(seconds))],
        int(work.start_ns[order].min()),
        int(work.end_ns[order].max()),
        1 - known if (marks.meaning >= 0).any() and len(marks.labels) else None,
    )


def _block(work: Launched) -> NDArray[np.bool_]:
    """The span of ``BLOCK_S`` in which kernels ran for the longest, with at most ``MOST_KERNELS``."""
    start, end = work.start_ns, work.end_ns
    first, last = int(start.min()), int(end.max())
    best, most = first, -1.0
    for begin in range(first, max(first + 1, last - int(BLOCK_S * 1e9)), 1_000_000_000):
        inside = (start >= begin) & (start < begin + BLOCK_S * 1e9)
        busy = float((end[inside] - start[inside]).sum())
        if busy > 1.02 * most:
            best, most = begin, busy
    chosen = (start >= best) & (end <= best + BLOCK_S * 1e9)
    if chosen.sum() > MOST_KERNELS:
        until = np.sort(end[chosen])[MOST_KERNELS]
        chosen &= end <= until
    return np.asarray(chosen)
