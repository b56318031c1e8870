"""Choice of the comparisons in a report of several Runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jouletrace.compare.compare import Runs, compare
from jouletrace.compare.options import CompareOptions
from jouletrace.compare.sides import same_thing
from jouletrace.errors import BadInputError
from jouletrace.report.comparison.data import Comparison
from jouletrace.run import Run

MOST = 8
"""Largest number of comparisons: more Runs are a sweep, for which a comparison with the first means little."""


def against_first(runs: Sequence[Runs], options: CompareOptions | None = None) -> tuple[list[Comparison], list[str]]:
    """Comparisons of the first of several Runs with each other one; Runs of one thing form one side, if things differ.

    Args:
        runs: For each named Run, the independent runs in it (see ``sides.open_runs``).
        options: How to compare.

    Returns:
        The comparisons, and notes on those that could not be made and why.
    """
    sides = _sides(runs)
    found: list[Comparison] = []
    notes: list[str] = []
    for other in sides[1 : MOST + 1]:
        try:
            found.append(compare(sides[0], other, options))
        except BadInputError as error:
            places = ", ".join(Path(place).name for _, place in other)
            notes.append(f"{places} is not compared: {error}")
    if len(sides) > MOST + 1:
        notes.append(f"{len(sides) - MOST - 1} more are not compared with the first: see jouletrace compare")
    return found, notes


def _sides(runs: Sequence[Runs]) -> list[list[tuple[Run, str]]]:
    """Sides of the comparisons: Runs of one thing on one GPU form a side; if all are, each forms its own side."""
    sides: list[list[tuple[Run, str]]] = []
    for each in runs:
        alike = next((side for side in sides if same_thing(side[0][0], each[0][0])), None)
        if alike is None:
            sides.append(list(each))
        else:
            alike.extend(each)
    return sides if len(sides) > 1 else [list(each) for each in runs]
