"""Loads of two single runs that were sent the same requests: their differences are free of the chance of arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jouletrace.comparing.pairs import LOAD, ComparedRow
from jouletrace.run import Run
from jouletrace.run.forms import LoadFacts
from jouletrace.wings.serving.analysis.levels import CHANCES, Blocks, blocks_of
from jouletrace.wings.serving.analysis.measured import measured
from jouletrace.wings.serving.analysis.steady import Requests, requests_of, steady_window

_SAME_S = 1e-3
"""Times of arrival that differ by less are those of one plan."""


def pair(rows: Sequence[ComparedRow], a: Run, b: Run) -> list[ComparedRow]:
    """The rows, where both runs were sent the same requests with the scatter of a load's paired parts in energies."""
    numbers = [
        {load["name"]: k for k, load in enumerate((run.workload.get("serving") or {"levels": []})["levels"])}
        for run in (a, b)
    ]
    judged = {row.name for row in rows if row.level == LOAD and row.metric in CHANCES and row.contrast is not None}
    shared = judged & numbers[0].keys() & numbers[1].keys()
    known = {name: _blocks(a, b, numbers[0][name], numbers[1][name]) for name in shared}
    return [_paired(row, known.get(row.name)) if row.level == LOAD else row for row in rows]


def _paired(row: ComparedRow, both: tuple[Blocks, Blocks] | None) -> ComparedRow:
    """The row with the scatter of paired parts, if its contrast can have it."""
    k = CHANCES.get(row.metric)
    if both is None or k is None or row.contrast is None:
        return row
    a, b = (side.energy_j / side.counts[k] for side in both)
    error = both[1].error(k, both[0])
    own = replace(row.contrast, a=a, b=b, var_a=0.0, var_b=(error * b) ** 2, df=float(both[1].freedom))
    return replace(row, contrast=own)


def _blocks(a: Run, b: Run, level_a: int, level_b: int) -> tuple[Blocks, Blocks] | None:
    """Both sides in the time that is steady in both.

    None if their requests aren't the same, or only one of them is read at the offered rate.
    """
    sides = requests_of(a, level_a), requests_of(b, level_b)
    if not _same(*sides):
        return None
    windows = [steady_window(one) for one in sides]
    window = max(one[0] for one in windows), min(one[1] for one in windows)
    if window[1] <= window[0]:
        return None
    loads = [run.workload["serving"]["levels"][k] for run, k in ((a, level_a), (b, level_b))]
    of_a, of_b = (_of(run, one, load, window) for run, one, load in zip((a, b), sides, loads, strict=True))
    return None if of_a is None or of_b is None or of_a.method != of_b.method else (of_a, of_b)


def _of(run: Run, requests: Requests, load: LoadFacts, window: tuple[float, float]) -> Blocks | None:
    """The parts of a window of one side."""
    start_ns, end_ns, last_ns = (requests.nanoseconds(edge) for edge in (*window, float(np.nanmax(requests.last))))
    drawn = measured(run, [(start_ns, end_ns)], [(requests.origin_ns, last_ns)])[0]
    return blocks_of(drawn.blocks_j, requests, load, window)


def _same(a: Requests, b: Requests) -> bool:
    """True if two loads have the same times and lengths."""
    if len(a) != len(b) or not len(a):
        return False
    first, second = (np.argsort(one.due, kind="stable") for one in (a, b))
    apart = (a.due[first] - a.due[first[0]]) - (b.due[second] - b.due[second[0]])
    same = np.array_equal(a.input_tokens[first], b.input_tokens[second])
    return bool(same and np.abs(apart).max() < _SAME_S)
