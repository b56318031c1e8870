"""A comparison as CSV: a row a unit and metric, in SI units, changes as fractions."""

from __future__ import annotations

import csv
from io import StringIO

from jouletrace.report.comparison.data import Comparison, Row
from jouletrace.report.document import printable
from jouletrace.run import Estimate
from jouletrace.spreadsheets import csv_cells

_NAMES = ("level", "name", "where", "shapes", "metric")
_FIGURES = ("a", "b", "difference", "change")
_REST = ("confidence", "p", "detectable", "verdict", "reason")


def render(found: Comparison, *, top: int = 10) -> str:
    """All rows, then units of one side only with the side as verdict; ``top`` is for people."""
    sink = StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    figures = [f"{name}{end}" for name in _FIGURES for end in ("", "_low", "_high")]
    writer.writerow(["simulated", *_NAMES, *figures, *_REST, "flags"])
    mark = str(found.simulated).lower()
    for row in found.rows:
        writer.writerow([mark, *_cells(row)])
    blank = [""] * (len(figures) + len(_REST) - 2)
    for verdict, units in (("only in A", found.unmatched_a), ("only in B", found.unmatched_b)):
        for level, name in units:
            writer.writerow([mark, level, *csv_cells([printable(name)]), "", "", "", *blank, verdict, "", ""])
    return sink.getvalue()


def _cells(row: Row) -> list[object]:
    names = csv_cells(printable(getattr(row, name)) for name in _NAMES)
    figures = [end for name in _FIGURES for end in _ends(getattr(row, name))]
    return [*names, *figures, *(getattr(row, name) for name in _REST), ",".join(row.flags)]


def _ends(estimate: Estimate) -> tuple[float | None, float | None, float | None]:
    return estimate.value, estimate.low, estimate.high
