"""What "±" means in a table of ranges: intervals of two kinds stand side by side there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from jouletrace.analysis.ranks import METHOD as OF_RANKS
from jouletrace.report.results import Figure, Results
from jouletrace.run import Estimate, Run
from jouletrace.run.tables import UnitRow

SENSOR = "sensor_interval"
"""Flag of an energy whose interval isn't of the kind that most of the table's are."""

_SPREAD = "±: how they differ from one to the next, steps in blocks of many"
_OURS = ("record", "monitor")
_ALONE = "±: what the sensor leaves open of those that ran, not how they differ"


def told_apart(run: Run, results: Results, units: Sequence[UnitRow]) -> tuple[list[dict[str, Figure]], list[str]]:
    """Figures of ranges with a flag where an interval is the sensor's alone, and notes below the table.

    A mean over windows or times has the interval of how these differ. One window, and the regression over all short
    ranges, have that of the sensor: it concerns the ranges that ran, not how others would differ.

    Args:
        run: Their Run; figures stated by other tools get no note.
        results: Its figures.
        units: Those of its ranges that are shown.
    """
    figures = [results.metrics(unit["id"]) for unit in units]
    if run.kind not in _OURS:
        return figures, []
    by_name = {str(unit["name"]): results.metrics(unit["id"]) for unit in results.units("range")}
    kinds = [
        {metric: _alone(metric, str(unit["name"]), found.estimate, by_name) for metric, found in row.items()}
        for unit, row in zip(units, figures, strict=True)
    ]
    there = {alone for row in kinds for alone in row.values()} - {None}
    if there != {True, False}:
        return figures, [_ALONE if True in there else _SPREAD] if there else []
    flagged = [
        {metric: replace(f, flags=(*f.flags, SENSOR)) if row[metric] else f for metric, f in own.items()}
        for row, own in zip(kinds, figures, strict=True)
    ]
    return flagged, [f"other {_SPREAD}"]


def _alone(metric: str, name: str, estimate: Estimate, by_name: Mapping[str, dict[str, Figure]]) -> bool | None:
    """Whether an interval is the sensor's alone; None where there is none."""
    if estimate.low is None or estimate.high is None or estimate.low == estimate.high:
        return None
    if estimate.method == OF_RANKS:  # a sum over ranks is of the kind that theirs are
        path = name.partition("/")[2]
        own = [row[metric].estimate for n, row in by_name.items() if n.partition("/")[2] == path and metric in row]
        kinds = {_alone(metric, "", one, {}) for one in own if one.method != OF_RANKS} - {None}
        return kinds == {True}
    return estimate.n == 1 or estimate.method == "repeated"
