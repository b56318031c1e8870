"""Sub-tracks: overlapping spans of one track are drawn one below another, as far as viewers support that."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 15
_NEAR = 8
"""Sub-tracks in which a parent is searched; a span that overlaps more deeply gets a new sub-track."""


def sub_tracks(start: NDArray[np.int64], end: NDArray[np.int64], *, nest: bool) -> NDArray[np.int32]:
    """Assign each span to a sub-track so that any two spans of one are nested or disjoint.

    Args:
        start: Starts, increasing, shape (n,).
        end: Ends, not before their starts; of equal starts the longest span first.
        nest: Whether a span may lie inside another (calls do; kernels don't, they run beside each
            other).

    Returns:
        Numbers from 0, shape (n,).
    """
    number = np.zeros(len(start), np.int32)
    if np.all(start[1:] >= end[:-1]):
        return number
    stacks: list[list[int]] = []
    """Ends of the open spans on each sub-track, outermost first."""
    taken: list[tuple[int, int]] = []
    free: list[int] = []
    for i, (begin, finish) in enumerate(_pairs(start, end)):
        while taken and taken[0][0] <= begin:
            heappush(free, heappop(taken)[1])
        found = _enclosing(stacks, begin, finish) if nest else None
        if found is None:
            found = heappop(free) if free else len(stacks)
            if found == len(stacks):
                stacks.append([])
            stacks[found] = [finish]
            heappush(taken, (finish, found))
        number[i] = found
    return number


def _pairs(start: NDArray[np.int64], end: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Starts and ends as Python numbers, of which only a part exists at a time."""
    for i in range(0, len(start), _BLOCK):
        yield from zip(start[i : i + _BLOCK].tolist(), end[i : i + _BLOCK].tolist(), strict=True)


def _enclosing(stacks: list[list[int]], begin: int, finish: int) -> int | None:
    """A sub-track whose innermost open span contains this one, to which it is added."""
    for k, stack in enumerate(stacks[:_NEAR]):
        while stack and stack[-1] <= begin:
            stack.pop()
        if stack and finish <= stack[-1]:
            stack.append(finish)
            return k
    return None
