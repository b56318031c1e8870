"""Energy divided by steps of paths, as text, CSV and JSON: ``show --by``."""

from __future__ import annotations

import json
from collections.abc import Sequence

from jouletrace.analysis.divided import IDLE, Share
from jouletrace.report.document import Cell, Column, Document, Footnotes, Section
from jouletrace.report.parts import add_figures
from jouletrace.report.results import NO_KERNEL, three_cells, three_columns
from jouletrace.report.text import typeset
from jouletrace.run import Estimate
from jouletrace.run.names import short_names
from jouletrace.spreadsheets import csv_file

_HEADINGS = {"op": "operator"}
_METRICS = ("time_s", "energy_total_j", "share")


def render(title: str, found: Sequence[Share], kinds: Sequence[str], form: str, *, colour: bool = False) -> str:
    """The divisions of a Run's energy in a format of ``show``."""
    if form == "json":
        return json.dumps([_as_json(one) for one in found], indent=2) + "\n"
    if form == "csv":
        heads = [*kinds, "paths", *three_columns(["energy_total_j", "share"]), "time_s", "reason"]
        return csv_file([heads, *(_cells(one, kinds) for one in found)])
    short = short_names(step.name for one in found for step in one.path if step.kind == "kernel")
    heads = [_HEADINGS.get(kind, kind) for kind in kinds]
    section = Section("", [Column(head, long="start" if head == "module" else "middle") for head in heads])
    section.rows = [_named(one, len(kinds), short) for one in found]
    add_figures(section, [_figures(one) for one in found], _METRICS, Footnotes())
    named = Document(f"{title}: energy by {', '.join(heads)}", sections=[section])
    return typeset(named.printable(), form, colour=colour)


def _figures(one: Share) -> dict[str, Estimate]:
    time = Estimate(one.seconds, method="trace")
    return dict(zip(_METRICS, (time, one.energy, one.share), strict=True))


def _named(one: Share, width: int, short: dict[str, str]) -> list[str]:
    """A cell for each kind of step: kernels by their short names."""
    if one.path == IDLE:
        return [NO_KERNEL, *[""] * (width - 1)]
    if not one.path:
        return [f"{one.count} more, together", *[""] * (width - 1)]
    names = [(short.get(step.name, step.name), step.name or "–") for step in one.path]
    return [Cell(brief or name, full=name if brief != name else "") for brief, name in names]


def _cells(one: Share, kinds: Sequence[str]) -> list[object]:
    names = [step.name for step in one.path] if len(one.path) == len(kinds) and one.path != IDLE else []
    names = names or [NO_KERNEL if one.path == IDLE else f"{one.count} more, together", *[""] * (len(kinds) - 1)]
    return [*names, one.count, *three_cells([one.energy, one.share]), one.seconds, one.energy.reason or ""]


def _as_json(one: Share) -> dict[str, object]:
    return {
        "path": [list(step) for step in one.path],
        "paths": one.count,
        "time_s": one.seconds,
        "energy_j": one.energy.to_dict(),
        "share": one.share.to_dict(),
        "budget_j": dict(one.budget),
    }
