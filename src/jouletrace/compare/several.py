"""Which of several Runs a report holds against which."""

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
"""Comparisons that are made at most: more is a sweep, for which each against the first says little."""


def against_first(runs: Sequence[Runs], options: CompareOptions | None = None) -> tuple[list[Comparison], list[str]]:
    """The first of several Runs against each other one; Runs of one thing, where there are two things, together.

    Args:
        runs: For each Run that was named, the independent runs in it (see ``sides.open_runs``).
        options: How.

    Returns:
        The comparisons, and in words what could not be compared and why.
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
    """Runs of one thing on one GPU are one side; if all are, each is a side by itself."""
    sides: list[list[tuple[Run, str]]] = []
    for each in runs:
        alike = next((side for side in sides if same_thing(side[0][0], each[0][0])), None)
        if alike is None:
            sides.append(list(each))
        else:
            alike.extend(each)
    return sides if len(sides) > 1 else [list(each) for each in runs]
