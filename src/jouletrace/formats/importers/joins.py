"""Joins on arrays: which span encloses which, and which rows share an id."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jouletrace.arrays import Mask

Ints = NDArray[np.signedinteger[Any]]

NONE, AMBIGUOUS = -1, -2
"""No row, or several rows that can't be distinguished."""

_AT_ONCE = 1 << 18
"""Spans whose containers are searched at once: the search takes ten arrays of their size."""


def enclosing(lane: NDArray[Any], start: Ints, end: Ints, container: Mask, slack_ns: int = 0) -> Ints:
    """Row number of the innermost container on each span's lane that contains the span, else ``NONE``; shape (n,).

    The innermost container is the one that starts last; containers need not be nested. Among equal spans, the first
    in stored order encloses the others. For rounded stamps, a span may exceed its container's end by ``slack_ns``.
    """
    n = len(start)
    parent = np.full(n, NONE, np.int64)
    if n == 0 or not container.any():
        return parent
    order = np.lexsort((-end, start, lane))
    held = np.flatnonzero(container[order])
    containers = order[held]
    maxima = _maxima(end[containers] + slack_ns)
    for first in range(0, n, _AT_ONCE):
        rows = order[first : first + _AT_ONCE]
        before = np.searchsorted(held, np.arange(first, first + len(rows)))
        found = _last_at_least(maxima, before, end[rows])
        around = containers[np.maximum(found, 0)]
        same = (found >= 0) & (lane[rows] == lane[around])
        parent[rows[same]] = around[same]
    return parent


def _maxima(values: Ints) -> list[Ints]:
    """Values, the larger of each pair of them, of each pair of those, and so on up to the overall maximum."""
    levels = [values]
    while len(levels[-1]) > 1:
        last = levels[-1]
        if len(last) % 2:
            last = np.append(last, np.iinfo(np.int64).min)
        levels.append(np.maximum(last[::2], last[1::2]))
    return levels


def _last_at_least(levels: list[Ints], before: Ints, wanted: Ints) -> Ints:
    """For each i the largest j < ``before[i]`` with ``values[j] >= wanted[i]``, else -1.

    Climbs the tree of ``_maxima`` until a left neighbour holds such a value, and descends in it:
    O(n log n) in whole-array steps.
    """
    found = np.full(len(before), -1, np.int64)
    climbing = np.arange(len(before))
    hits: list[tuple[Ints, Ints]] = []
    for level, row in enumerate(levels):
        node = before[climbing] >> level
        left = node - 1
        hit = (node & 1 == 1) & (row[left] >= wanted[climbing])
        hits.append((climbing[hit], left[hit]))
        climbing = climbing[~hit]
    who, node = (np.empty(0, np.int64),) * 2
    for level in range(len(levels) - 1, -1, -1):
        who, node = np.concatenate([who, hits[level][0]]), np.concatenate([node, hits[level][1]])
        if level == 0:
            break
        right, row = 2 * node + 1, levels[level - 1]
        inside = right < len(row)
        good = inside & (row[np.where(inside, right, 0)] >= wanted[who])
        node = np.where(good, right, right - 1)
    found[who] = node
    return found


class Calls(NamedTuple):
    """Calls that launch work on devices; each an array of shape (n,).

    Attributes:
        keys: Keys that they share with their work.
        start, end: Start and end in ns.
        parent: Ids of the enclosing spans.
    """

    keys: Ints
    start: Ints
    end: Ints
    parent: Ints


def match(wanted: Ints, keys: Ints) -> Ints:
    """For each wanted key its row in ``keys``: ``NONE`` without one, ``AMBIGUOUS`` with several.

    Negative keys count as missing.
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    low = np.searchsorted(ordered, wanted, side="left")
    count = np.searchsorted(ordered, wanted, side="right") - low
    rows = np.full(len(wanted), NONE, np.int64)
    one = (count == 1) & (wanted >= 0)
    rows[one] = order[low[one]]
    rows[(count > 1) & (wanted >= 0)] = AMBIGUOUS
    return rows


def match_launch(wanted: Ints, keys: Ints, start: Ints, end: Ints) -> Ints:
    """As ``match``, but nested calls (start and end in ns) with the same key count as the outermost one.

    Some recorders write a driver call inside each runtime call, with the same id.
    """
    found = match(wanted, keys)
    if not (found == AMBIGUOUS).any():
        return found
    order = np.lexsort((-end, start, keys))
    ordered = keys[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    outer = np.repeat(first, np.diff(np.append(first, len(ordered))))
    astray = end[order] > end[order][outer]
    sound = np.add.reduceat(astray, first) == 0
    single = match(wanted, ordered[first])
    return np.where((single >= 0) & sound[single], order[first[single]], np.where(single >= 0, AMBIGUOUS, NONE))


def parents_of_work(wanted: Ints, calls: Calls, joins: dict[str, int]) -> Ints:
    """The parents of kernels and copies: those of the calls that launched them, ``NONE`` where the call is missing.

    ``wanted`` are keys of the work, shape (m,). ``joins`` receives the numbers of all kernels and copies, of those with
    a launch and a parent, and of ambiguities.
    """
    found = match_launch(wanted, calls.keys, calls.start, calls.end)
    joined = np.flatnonzero(found >= 0)
    launch = found[joined]
    parent = np.full(len(found), NONE, np.int64)
    parent[joined] = calls.parent[launch]
    for name, count in (
        ("device_spans", len(found)),
        ("with_launch", len(joined)),
        ("with_parent", (parent >= 0).sum()),
        ("ambiguous_launch", (found == AMBIGUOUS).sum()),
    ):
        joins[name] = joins.get(name, 0) + int(count)
    return parent
