"""Whose each kernel of this process is, from marks between launches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jouletrace.profiler.program.operators import BETWEEN
from jouletrace.profiler.program.range_marks import FIRST_RANGE
from jouletrace.tracer.process_trace import Ints, Label, Launched, Owners


def owners_of(
    work: Launched, number: Ints, meaning: Ints, labels: Sequence[Label], ranges: Sequence[tuple[str, ...]]
) -> Owners:
    """What each launch belongs to, by the number and the meaning of each mark, in the order of launches.

    A meaning is ``UNLABELLED``, ``BETWEEN``, the index of a label, or ``FIRST_RANGE`` plus twice the index of a range,
    plus one where it ends.
    """
    of_ranges = meaning >= FIRST_RANGE
    paths, path = _paths(work, number[of_ranges], meaning[of_ranges] - FIRST_RANGE, ranges)
    number, meaning = number[~of_ranges], meaning[~of_ranges]
    after = np.searchsorted(number, work.correlation)
    inside = np.append(np.cumsum(meaning == BETWEEN) % 2 == 1, False)
    sampled = (after > 0) & (after < len(number)) & inside[after - 1]
    label = np.where(sampled, np.append(np.maximum(meaning, -1) + 1, 0)[after], 0)
    none = np.zeros(len(labels) + 1, np.int64)
    return Owners([("", ""), *labels], none, label, sampled, np.zeros(len(work), np.int64), paths, path)


def _paths(
    work: Launched, number: Ints, meaning: Ints, ranges: Sequence[tuple[str, ...]]
) -> tuple[list[tuple[str, ...]], Ints]:
    """Distinct paths, () first, and the path that is innermost at each launch, shape (n,)."""
    paths: dict[tuple[str, ...], int] = {(): 0}
    inner, still = [0], list[int]()
    for one in meaning.tolist():
        if one % 2 == 0:
            still.append(one // 2)
        elif one // 2 in still:
            still.remove(one // 2)
        path = ranges[still[-1]] if still else ()
        inner.append(paths.setdefault(path, len(paths)))
    return list(paths), np.array(inner, np.int64)[np.searchsorted(number, work.correlation)]
