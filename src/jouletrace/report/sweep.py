"""A sweep as a table: a point a row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Required, TypedDict

from jouletrace.errors import check_format
from jouletrace.report.document import Column, Document, Section
from jouletrace.report.facts import SIMULATED
from jouletrace.report.results import Results
from jouletrace.report.scale import cell, unit_for
from jouletrace.report.text import typeset
from jouletrace.run import Estimate, Run

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
}
FORMATS = ("table", "json", "markdown")


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
        outcome: "done", "out_of_memory", "failed" or "timed_out".
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
        return found | {"energy_per_sample_j": results.get("energy_total_j").scaled(1 / items)}


def render(entries: Sequence[Entry], form: str = "table") -> str:
    """A sweep as text.

    Raises:
        BadInputError: If there is no such format.
    """
    check_format(form, FORMATS)
    simulated = any(entry.run is not None and entry.run.simulated for entry in entries)
    if form == "json":
        rows: list[dict[str, Any]] = []
        for one in entries:
            rows.append({"point": one.point, "outcome": one.outcome, "reason": one.reason or None, "run": one.place})
            rows[-1] |= {name: estimate.to_dict() for name, estimate in one.figures().items()}
        return json.dumps({"schema": 1, "simulated": simulated, "points": rows}, indent=2, allow_nan=False) + "\n"
    return typeset(_document(entries, SIMULATED if simulated else ""), form)


def _document(entries: Sequence[Entry], mark: str) -> Document:
    """The table, and why points are missing from it."""
    found = Document(f"Sweep of {len(entries)} points", mark)
    names = [name for name in AXES if any(name in entry.point for entry in entries)]
    varying = [name for name in names if len({str(entry.point.get(name)) for entry in entries}) > 1] or names[:1]
    same = [f"{AXES[name]} {entries[0].point.get(name)}" for name in names if name not in varying]
    devices = dict.fromkeys(device.name for entry in entries if entry.run for device in entry.run.devices)
    found.subtitle = [" · ".join([*same, *devices])]
    section = Section("", [Column(AXES[name], numeric=name not in ("workload", "dtype", "mode")) for name in varying])
    section.rows = [[_said(entry.point.get(name)) for name in varying] for entry in entries]
    for name, (heading, unit) in FIGURES.items():
        column = [entry.figures()[name] for entry in entries]
        scale = unit_for([estimate.value for estimate in column], unit)
        section.columns.append(Column(f"{heading} ({scale.name})" if heading else scale.name, numeric=True))
        for row, estimate in zip(section.rows, column, strict=True):
            row.append(cell(estimate, scale))
    for entry in entries:
        if entry.outcome != DONE:
            what = " ".join(_said(entry.point.get(name)) for name in varying)
            section.notes.append(f"{what}: {entry.outcome.replace('_', ' ')}: {entry.reason}")
    found.sections = [section]
    return found.printable()


def _said(value: object) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
