"""A comparison for programs and spreadsheets: every row, in SI units, changes as fractions."""

from __future__ import annotations

import json

from jouletrace.report.comparison.data import Comparison
from jouletrace.report.document import printable
from jouletrace.report.results import three_cells, three_columns
from jouletrace.run.header import jsonable
from jouletrace.spreadsheets import csv_file

_NAMES = ("level", "name", "where", "shapes", "metric")
_FIGURES = ("a", "b", "difference", "change")
_REST = ("confidence", "p", "detectable", "verdict", "reason")


def json_text(found: Comparison) -> str:
    """One JSON object."""
    return json.dumps(jsonable(found.to_dict()), indent=2, allow_nan=False) + "\n"


def csv_text(found: Comparison) -> str:
    """A row a unit and metric, then units of one side only with the side as verdict."""
    names = ["simulated", *_NAMES, *three_columns(_FIGURES), *_REST, "flags"]
    mark = str(found.simulated).lower()
    lines: list[list[object]] = [list(names)]
    for row in found.rows:
        figures = three_cells(getattr(row, name) for name in _FIGURES)
        lines.append([mark, *(printable(getattr(row, name)) for name in _NAMES), *figures])
        lines[-1] += [*(getattr(row, name) for name in _REST), ",".join(row.flags)]
    for verdict, units in (("only in A", found.unmatched_a), ("only in B", found.unmatched_b)):
        for level, name in units:
            cells = {"simulated": mark, "level": level, "name": printable(name), "verdict": verdict}
            lines.append([cells.get(column, "") for column in names])
    return csv_file(lines)
