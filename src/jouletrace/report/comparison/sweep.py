"""A sweep as a table: a point a row, the Pareto front marked."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Required, TypedDict

import numpy as np

from jouletrace.errors import check_format
from jouletrace.report.document import Column, Document, Footnotes, Section, printable
from jouletrace.report.facts import SIMULATED
from jouletrace.report.results import Results, three_cells, three_columns
from jouletrace.report.scale import NONE, cell, unit_for
from jouletrace.report.text import typeset
from jouletrace.run import Estimate, Run
from jouletrace.spreadsheets import csv_file

DONE = "done"

AXES = {
    "workload": "workload",
    "batch": "batch",
    "seq_len": "tokens",
    "dtype": "dtype",
    "mode": "mode",
    "power_limit_w": "limit (W)",
}
"""What may be varied, and its heading."""

FIGURES = {
    "latency_s": ("latency", "s"),
    "throughput_per_s": ("", "samples/s"),
    "power_w": ("power", "W"),
    "energy_per_sample_j": ("per sample", "J"),
    "memory_bytes": ("memory", "GiB"),
}

FORMATS = ("table", "json", "csv", "markdown")

_BETTER = {"latency_s": 1, "throughput_per_s": -1, "energy_per_sample_j": 1}
"""What the Pareto front is of: 1 where less is better."""

_GIB = 2**30
_FRONT = "★"


class Point(TypedDict, total=False):
    """What is set in a point of a sweep, by the names of ``AXES``."""

    workload: Required[str]
    batch: int
    seq_len: int
    dtype: str
    mode: str
    power_limit_w: float


@dataclass(frozen=True)
class Entry:
    """A point of a sweep.

    Attributes:
        point: What was set, by axis.
        outcome: "done", "out_of_memory", "failed", "timed_out" or "pending".
        reason: Why it is not done.
        place: Where its Run is.
        run: The Run; None if it isn't done.
    """

    point: Point
    outcome: str
    reason: str
    place: str
    run: Run | None = None

    def figures(self) -> dict[str, Estimate]:
        """The figures of a point, by the names of ``FIGURES``."""
        if self.run is None:
            return {name: Estimate.null(self.outcome) for name in FIGURES}
        results = Results(self.run)
        items = self.run.workload.get("items") or 1
        found = {name: results.get(name) for name in ("latency_s", "throughput_per_s", "power_w")}
        found["energy_per_sample_j"] = results.get("energy_total_j").scaled(1 / items)
        found["memory_bytes"] = _memory(self.run)
        return found


def render(entries: Sequence[Entry], form: str = "table") -> str:
    """A sweep as text.

    Raises:
        BadInputError: If there is no such format.
    """
    check_format(form, FORMATS)
    if form == "json":
        return json.dumps(to_dict(entries), indent=2, allow_nan=False) + "\n"
    if form == "csv":
        return _csv(entries)
    return typeset(document(entries), form)


def front(entries: Sequence[Entry]) -> list[bool]:
    """Which points no other of the same workload dominates.

    One dominates another if it is better in latency, throughput or energy per sample, and worse in none of them.
    """
    values = []
    for entry in entries:
        figures = entry.figures()
        known = [figures[name].value for name in _BETTER]
        signed = [math.inf if v is None else sign * v for v, sign in zip(known, _BETTER.values(), strict=True)]
        values.append(np.array(signed))
    found = []
    for i, one in enumerate(values):
        alike = [
            values[k] for k, entry in enumerate(entries) if entry.point["workload"] == entries[i].point["workload"]
        ]
        beaten = any(bool(np.all(other <= one) and np.any(other < one)) for other in alike)
        found.append(not beaten and bool(np.isfinite(one).all()))
    return found


def to_dict(entries: Sequence[Entry]) -> dict[str, Any]:
    """The object that ``--json`` prints."""
    rows = [
        {
            "point": entry.point,
            "outcome": entry.outcome,
            "reason": entry.reason or None,
            "run": entry.place,
            "pareto": best,
            **{name: estimate.to_dict() for name, estimate in entry.figures().items()},
        }
        for entry, best in zip(entries, front(entries), strict=True)
    ]
    return {"schema": 1, "simulated": _simulated(entries), "points": rows}


def document(entries: Sequence[Entry]) -> Document:
    """The table, and why points are missing from it."""
    found = Document(f"Sweep of {len(entries)} points", SIMULATED if _simulated(entries) else "")
    names = [name for name in AXES if any(name in entry.point for entry in entries)]
    varying = [name for name in names if len({str(entry.point.get(name)) for entry in entries}) > 1] or names[:1]
    same = [f"{AXES[name]} {entries[0].point.get(name)}" for name in names if name not in varying]
    devices = dict.fromkeys(device.name for entry in entries if entry.run for device in entry.run.devices)
    found.subtitle = [" · ".join([*same, *devices])] if same or devices else []
    section = Section("", [Column(AXES[name], numeric=name not in ("workload", "dtype", "mode")) for name in varying])
    section.columns.append(Column(_FRONT))
    figures = [entry.figures() for entry in entries]
    best = front(entries)
    section.rows = [
        [_said(entry.point.get(name)) for name in varying] + [_FRONT if first else ""]
        for entry, first in zip(entries, best, strict=True)
    ]
    footnotes = Footnotes()
    for name, (heading, unit) in FIGURES.items():
        _add_column(section, name, heading, unit, entries, figures, footnotes)
    section.notes = footnotes.lines()
    if any(best):
        text = "no other point is better in latency, throughput or energy per sample, and worse in none"
        section.notes.append(f"{_FRONT} Pareto front: {text}")
    found.sections = [section]
    return found.printable()


def _add_column(
    section: Section,
    name: str,
    heading: str,
    unit: str,
    entries: Sequence[Entry],
    figures: Sequence[dict[str, Estimate]],
    footnotes: Footnotes,
) -> None:
    column = [row[name].scaled(1 / _GIB) if unit == "GiB" else row[name] for row in figures]
    scale = unit_for([estimate.value for estimate in column], unit)
    section.columns.append(Column(f"{heading} ({scale.name})" if heading else scale.name, numeric=True))
    for row, entry, estimate in zip(section.rows, entries, column, strict=True):
        text = cell(estimate, scale)
        if text == NONE and name == "latency_s" and entry.outcome != DONE:
            why = entry.outcome.replace("_", " ")
            text = f"{NONE} {footnotes.mark(f'{why}: {entry.reason}' if entry.reason else why)}"
        row.append(text)


def _csv(entries: Sequence[Entry]) -> str:
    lines: list[list[object]] = [["simulated", *AXES, "outcome", *three_columns(FIGURES), "pareto", "run", "reason"]]
    mark = str(_simulated(entries)).lower()
    for entry, best in zip(entries, front(entries), strict=True):
        axes = [entry.point.get(name, "") for name in AXES]
        words = [str(best).lower(), printable(entry.place), printable(entry.reason)]
        lines.append([mark, *axes, entry.outcome, *three_cells(entry.figures().values()), *words])
    return csv_file(lines)


def _memory(run: Run) -> Estimate:
    """Most device memory in use while it ran; on a simulated GPU, what it needs at least."""
    for device in run.devices:
        _, used = run.series(device.id, "memory_used_bytes")
        if len(used) and np.isfinite(used).any():
            return Estimate(float(np.nanmax(used)), n=len(used), method="samples")
    least = run.workload.get("least_memory_bytes")
    return Estimate(float(least), n=1, method="counted") if least else Estimate.null("not_measured")


def _simulated(entries: Sequence[Entry]) -> bool:
    return any(entry.run is not None and entry.run.simulated for entry in entries)


def _said(value: object) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
