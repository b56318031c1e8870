"""The operator and the module of each kernel of a program, where operators are marked for a share of the time alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from jouletrace.run import tables
from jouletrace.tracer.names import family_of
from jouletrace.tracer.process_trace import Ints, Label, Owners, ProcessTrace

_DIGITS = re.compile(r"\d+")

CONTEXTS = (6, 3, 1, 0)
"""Kernels before and after one that are compared, the most first: a sequence that names one operator names this one."""

SURE = 0.95
"""Least share of the sampled kernels of a sequence that one operator launched."""

_UNSURE = -1


def labels_of(traced: ProcessTrace) -> tuple[list[Label], Ints]:
    """Distinct labels, and the index of that of each kernel, shape (n,).

    Equal layers of a model, whose kernels no sequence distinguishes, share a label.
    """
    labels, place = traced.owners.labels, _places(traced.owners.thread)
    same = _same(traced.owners, _sequences(_line(traced.work.name, place), place, CONTEXTS[0]))
    label = _learned(traced, same, place)
    texts: dict[Label, int] = {}
    number = np.zeros(len(labels), np.int64)
    for one in np.flatnonzero(np.bincount(label)).tolist():
        members = [labels[i] for i in np.flatnonzero(same == one).tolist()]
        text = members[0][0], _pattern([module for _, module in members])
        number[one] = texts.setdefault(text, len(texts))
    return list(texts), number[label]


def _learned(traced: ProcessTrace, same: Ints, place: Ints) -> Ints:
    """The label of each kernel: as it was marked, or as that of sampled ones in the same module and sequence.

    A sequence that was never sampled is compared by the families of its kernels, which libraries choose by shape. A
    kernel that was sampled outside of operators has none, and neither have those like it.
    """
    owners = traced.owners
    found, sampled = same[owners.label], owners.sampled
    nameless = np.array([not op for op, _ in owners.labels])
    if not sampled.any() or nameless.all():
        return found
    families: dict[str, int] = {}
    family = np.array([families.setdefault(family_of(name), len(families)) for name in traced.work.names])
    module = owners.unmarked[owners.label] * len(traced.work.names)
    lines = [_line(module + one, place) for one in (traced.work.name, family[traced.work.name])]
    teach, open_ = np.flatnonzero(sampled), np.flatnonzero(~sampled & nameless[owners.label])
    for reach, line in product(CONTEXTS, lines):
        known, sure = _sure(_sequences(line, place[teach], reach), found[teach])
        key = _sequences(line, place[open_], reach)
        at = np.minimum(np.searchsorted(known, key), len(known) - 1)
        there = (known[at] == key) & (sure[at] != _UNSURE)
        found[open_[there]] = sure[at[there]]
        open_ = open_[~there]
    return found


def _places(thread: Ints) -> Ints:
    """Where each launch lies in a line of all launches, thread by thread with space around each; shape (n,)."""
    space = CONTEXTS[0]
    threads, which = tables.distinct(thread)
    if len(threads) <= 1:
        return np.arange(space, space + len(thread))
    order = np.argsort(which, kind="stable")
    place = np.empty(len(thread), np.int64)
    place[order] = np.arange(len(thread)) + space * (1 + which[order])
    return place


def _line(unit: Ints, place: Ints) -> NDArray[np.uint64]:
    """The units of all launches in the line, 0 where it is empty."""
    line = np.zeros(int(place.max(initial=0)) + 1 + CONTEXTS[0], np.uint64)
    line[place] = unit + 1
    return line


def _sequences(line: NDArray[np.uint64], place: Ints, reach: int) -> NDArray[np.uint64]:
    """A number for each place with those before and after it, equal for equal sequences of units; shape (m,)."""
    key = np.zeros(len(place), np.uint64)
    for offset in range(-reach, reach + 1):
        key = (key ^ line[place + offset]) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    return key


def _sure(key: NDArray[np.uint64], label: Ints) -> tuple[NDArray[np.uint64], Ints]:
    """Distinct sequences and the label of each; ``_UNSURE`` where several operators launch it."""
    known, which = np.unique(key, return_inverse=True)
    pairs, count = np.unique(which.reshape(-1) * (label.max() + 1) + label, return_counts=True)
    sequence, launched = np.divmod(pairs, label.max() + 1)
    total, most = np.bincount(sequence, count), np.zeros(len(known))
    np.maximum.at(most, sequence, count)
    best = np.full(len(known), _UNSURE, np.int64)
    top = count >= np.maximum(SURE * total, most)[sequence]
    best[sequence[top]] = launched[top]
    return known, best


def _same(owners: Owners, key: NDArray[np.uint64]) -> Ints:
    """Of each label, the first of those that go by it: of one operator, with a sequence in common; shape (labels,).

    Where the module of a launch is always known, numbers in its name are all that may differ.
    """
    labels, label = owners.labels, owners.label
    known = [bool(one) for one in owners.unmarked.tolist()]
    kinds = [(op, _DIGITS.sub("*", module) if sure else "") for (op, module), sure in zip(labels, known, strict=True)]
    codes = {kind: code for code, kind in enumerate(dict.fromkeys(kinds))}
    kind = np.array([codes[one] for one in kinds])
    sequence = tables.distinct(key.view(np.int64))[1]
    sequence, used = np.divmod(tables.distinct(sequence * len(labels) + label)[0], len(labels))
    order = np.lexsort((used, kind[used], sequence))
    before, after = order[:-1], order[1:]
    alike = (sequence[before] == sequence[after]) & (kind[used[before]] == kind[used[after]])
    same = np.arange(len(labels))
    for pair in np.unique(np.stack([used[before[alike]], used[after[alike]]]), axis=1).T:
        low, high = np.sort(same[pair])
        same[same == high] = low
    return same


def _pattern(modules: Sequence[str]) -> str:
    """What some qualified names have in common: equal words stay, numbers that differ become *."""
    found: list[str] = []
    for words in zip(*(module.split(".") for module in modules), strict=False):
        alike = set(words) if len(set(words)) == 1 else {_DIGITS.sub("*", word) for word in words}
        if len(alike) > 1:
            return ".".join([*found, "*"])
        found += alike
    return ".".join(found)
