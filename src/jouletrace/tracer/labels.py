"""The operator and the module of each kernel of a program, where operators are marked for a share of the time alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, product

import numpy as np
from numpy.typing import NDArray

from jouletrace.arrays import Ints, Mask
from jouletrace.run import tables
from jouletrace.tracer.names import family_of
from jouletrace.tracer.process_trace import Label, Launched

_DIGITS = re.compile(r"\d+")
_LISTED = 3
"""Words that a name lists of modules that can't be distinguished."""

CONTEXTS = (6, 3, 1, 0)
"""Kernels before and after one that are compared, the most first: a sequence that names one operator names this one."""

SURE = 0.95
"""Least share of the sampled kernels of a sequence that one operator launched."""

_UNSURE = -1


def labels_of(work: Launched) -> tuple[list[Label], Ints]:
    """Distinct labels, and the index of that of each kernel, shape (n,).

    A kernel has the label with which it was marked. Others get that of marked ones in the same module and the same
    sequence of kernels: all of them since work without modules began (backward, the optimizer), or until it ended, or
    some neighbours. Where a sequence has labels that differ in their modules, what these have in common counts.
    """
    labels = list(work.labels)
    nameless = np.array([not op for op, _ in labels])
    found = work.label.copy()
    open_ = np.flatnonzero(~work.sampled & nameless[work.label])
    marked = np.flatnonzero(work.sampled)
    if not len(marked) or nameless.all() or not len(open_):
        return _distinct(labels, found)
    families: dict[str, int] = {}
    family = np.array([families.setdefault(family_of(name), len(families)) for name in work.names])
    module = work.module * len(work.names)
    units = module + work.name, module + family[work.name]
    place = _places(work.thread)
    near = _near(units, place)
    open_ = _teach(found, open_, chain(_outside(units, work), near), marked)
    unseen = work.thread[open_] == 0  # nothing is known of these launches: their modules are learned, too
    if unseen.any():
        left = _teach(found, open_[unseen], _near([work.name], place), marked)
        open_ = np.concatenate([open_[~unseen], left])
    labels, shared = _shared(labels, work, near[0](marked))
    merged = shared[found]
    _teach(merged, open_, near, marked)
    found[open_] = merged[open_]
    return _distinct(labels, found)


def taught(name: Ints, label: Ints, turn: Ints) -> Ints:
    """Labels of the launches of a program that does the same turn after turn, shape (n,); -1 where they stay unknown.

    A launch without a label gets that of those with equal launches before them in their turn, or after, or beside them.

    Args:
        name: Number of its name, shape (n,).
        label: Number of its label; -1 where it has none, shape (n,).
        turn: Number of its turn, ascending, shape (n,).
    """
    found, open_ = label.copy(), np.flatnonzero(label == _UNSURE)
    if not len(name):
        return found
    begins = np.append(True, turn[1:] != turn[:-1])
    whole = (key.__getitem__ for key in _whole([name], begins))
    beside = _near([name], _places(np.zeros_like(name)))[:-1]  # a name alone says little in one turn
    _teach(found, open_, chain(whole, beside), np.flatnonzero(label != _UNSURE))
    return found


Key = Callable[[Ints], NDArray[np.uint64]]
"""A number for each of some launches, equal for those that belong together."""


def _teach(label: Ints, open_: Ints, keys: Iterable[Key], marked: Ints) -> Ints:
    """Give open launches the labels of marked ones with equal keys, the first keys first; returns those left open."""
    for key in keys:
        if not len(open_) or not len(marked):
            break
        known, sure = _sure(key(marked), label[marked])
        mine = key(open_)
        at = np.minimum(np.searchsorted(known, mine), len(known) - 1)
        there = (known[at] == mine) & (sure[at] != _UNSURE)
        label[open_[there]] = sure[at[there]]
        open_ = open_[~there]
    return open_


def _distinct(labels: Sequence[Label], label: Ints) -> tuple[list[Label], Ints]:
    """The labels that occur, each once, and the index of that of each kernel."""
    texts: dict[Label, int] = {}
    number = np.zeros(len(labels), np.int64)
    for one in np.flatnonzero(np.bincount(label)).tolist():
        number[one] = texts.setdefault(labels[one], len(texts))
    return list(texts), number[label]


def _outside(units: Sequence[Ints], work: Launched) -> Iterator[Key]:
    """Keys by all units since work without modules began in a thread, and by all until it ends.

    Launches within modules have keys of their own, which no other has.
    """
    thread, outside = work.thread, work.module == 0
    for key in _whole(units, np.append(True, (thread[1:] != thread[:-1]) | (outside[1:] != outside[:-1]))):
        key[~outside] = np.flatnonzero(~outside)
        yield key.__getitem__


def _whole(units: Sequence[Ints], begins: Mask) -> Iterator[NDArray[np.uint64]]:
    """Keys of all launches by all units since their sequence began, and by all until it ends."""
    run, first = np.cumsum(begins) - 1, np.flatnonzero(begins)
    last = np.append(first[1:], len(begins)) - 1
    power, inverse = (np.cumprod(np.full(len(begins), base, np.uint64)) for base in (_BASE, _INVERSE))
    for unit in units:
        terms = (unit.astype(np.uint64) + np.uint64(1)) * np.uint64(_BASE >> 1 | 1) * power
        sums = np.cumsum(terms)
        yield (sums - (sums[first] - terms[first])[run]) * inverse[first][run]
        yield (sums[last][run] - sums + terms) * inverse


def _near(units: Sequence[Ints], place: Ints) -> list[Key]:
    """Keys by the neighbours of a launch, the most first."""
    lines = [_line(unit, place) for unit in units]
    return [
        lambda rows, line=line, reach=reach: _sequences(line, place[rows], reach)  # type: ignore[misc]
        for reach, line in product(CONTEXTS, lines)
    ]


_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 2**64)
"""Of a polynomial hash modulo 2^64, in which a factor shifts a sequence to its beginning."""


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


def _shared(labels: list[Label], work: Launched, key: NDArray[np.uint64]) -> tuple[list[Label], Ints]:
    """More labels, of what those of one operator with a sequence in common share, and the one of each label.

    ``key`` is of the sequences of marked launches.
    """
    same = _same(labels, work, key)
    more, number = list(labels), np.arange(len(labels))
    for one in np.unique(same):
        members = np.flatnonzero(same == one)
        if len(members) > 1:
            number[members] = len(more)
            more.append((labels[one][0], _pattern([labels[i][1] for i in members.tolist()])))
    return more, number


def _same(labels: Sequence[Label], work: Launched, key: NDArray[np.uint64]) -> Ints:
    """Of each label, the first of those that go by it: of one operator, with a sequence in common; shape (labels,)."""
    codes = {op: code for code, op in enumerate(dict.fromkeys(op for op, _ in labels))}
    kind = np.array([codes[op] for op, _ in labels])
    marked = work.sampled
    sequence = tables.distinct(key.view(np.int64))[1]
    sequence, used = np.divmod(tables.distinct(sequence * len(labels) + work.label[marked])[0], len(labels))
    order = np.lexsort((used, kind[used], sequence))
    before, after = order[:-1], order[1:]
    alike = (sequence[before] == sequence[after]) & (kind[used[before]] == kind[used[after]])
    same = np.arange(len(labels))
    for pair in np.unique(np.stack([used[before[alike]], used[after[alike]]]), axis=1).T:
        low, high = np.sort(same[pair])
        same[same == high] = low
    return same


def _pattern(modules: Sequence[str]) -> str:
    """The common part of qualified names, with * for numbers that differ, and the words that follow it: "conv|norm".

    Launches outside of modules, whose name is "", have nothing in common with those of one.
    """
    if "" in modules:
        return ""
    found: list[str] = []
    for words in zip(*(module.split(".") for module in modules), strict=False):
        alike = set(words) if len(set(words)) == 1 else {_DIGITS.sub("*", word) for word in words}
        if len(alike) > 1:
            listed = sorted(alike)
            found.append("|".join([*listed[:_LISTED], *(["…"] if len(listed) > _LISTED else [])]))
            break
        found += alike
    return ".".join(found) if set(found) != {"*"} else ""
