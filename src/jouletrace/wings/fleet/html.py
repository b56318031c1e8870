"""The report of a fleet as one HTML file, composed of parts of a Run's report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from jouletrace.report.charts import PALETTE, Spec, plain, short
from jouletrace.report.document import Footnotes
from jouletrace.report.html import assets, tables, write_page
from jouletrace.report.html.page import Card
from jouletrace.report.table import Table
from jouletrace.report.tariffs import Tariff
from jouletrace.run.places import file_mode
from jouletrace.wings.fleet.document import NAMES, document, facts, reason, sections, with_gain
from jouletrace.wings.fleet.findings import Findings
from jouletrace.wings.fleet.results import Fleet
from jouletrace.wings.fleet.spread import FIGURES, readings
from jouletrace.words.scale import NONE, PERCENT, cell, split, unit_for
from jouletrace.words.text import printable


@dataclass(frozen=True)
class GroupView:
    """One group of GPUs in the form for the template."""

    id: str
    title: str
    cards: list[Card]
    plots: dict[str, Any]
    tables: list[Table]
    facts: list[tuple[str, str]]
    simulated: bool

    def data(self) -> Markup:
        """The scripts' data as JSON, in which names are escaped."""
        return assets.embedded({"plots": self.plots, "timeline": None, "simulated": self.simulated})


def write(fleet: Fleet, found: Sequence[Findings], path: Path, tariff: Tariff | None = None) -> None:
    """Write the report; an existing report is replaced.

    Raises:
        BadInputError: If another file has that name, or it can't be written.
        NotPossibleError: If plotly isn't installed.
    """
    write_page(path, lambda: render(fleet, found, tariff), file_mode())


def render(fleet: Fleet, found: Sequence[Findings], tariff: Tariff | None = None) -> str:
    """The page.

    Raises:
        NotPossibleError: If plotly isn't installed.
    """
    whole, marks = document(fleet, found), Footnotes()
    parts = [_part(one, number, marks, tariff) for number, one in enumerate(found)]
    return assets.page(
        "fleet.html.j2",
        (part.plots for part in parts),
        "jouletrace.wings.fleet",
        title=whole.title,
        simulated=whole.simulated,
        warnings=whole.warnings,
        command=printable(fleet.command),
        parts=parts,
    )


def _part(found: Findings, number: int, marks: Footnotes, tariff: Tariff | None) -> GroupView:
    plots = {figure: _box_plots(found, figure) for figure in FIGURES}
    shown = [replace(one.shown(), id=f"part{n}") for n, one in enumerate(sections(found, marks))]
    for table in shown:
        if len(table.rows) > tables.MOST_ROWS:
            table.notes.append(f"{len(table.rows) - tables.MOST_ROWS} slower GPUs are left out")
            del table.rows[tables.MOST_ROWS :]
    return GroupView(
        f"run{number}",
        printable(found.group.title),
        [_card(found, name, figure) for name, figure in _APART],
        {name: spec for name, spec in plots.items() if spec is not None},
        shown,
        [(printable(name), printable(line)) for name, line in facts(found, tariff)],
        bool(found.group.facts["simulated"]),
    )


_APART = (("time", "time_s"), ("energy", "energy_j"))


def _card(found: Findings, name: str, figure: str) -> Card:
    """How far GPUs are apart in a figure; in energy with the share that their sensors' gain has in it."""
    label, estimate = f"GPUs apart in {name}", found.spreads[figure].range
    if estimate.value is None:
        return Card(label, NONE, interval=reason(estimate.reason))
    value, interval = split(cell(estimate, PERCENT))
    return Card(label, f"{value} %", interval=interval + (with_gain(found) if name == "energy" and found.gain else ""))


def _box_plots(found: Findings, figure: str) -> Spec | None:
    """Readings of each GPU, the fastest first: quartiles, and whiskers to the minimum and maximum."""
    values, gpu, _, kind = readings(found.group, figure)
    order = [place.gpu for place in found.spreads["time_s"].places if (gpu == place.gpu).any()]
    if not order:
        return None
    unit = unit_for([float(np.median(values))], FIGURES[figure])
    ends = np.array([np.quantile(values[gpu == code], [0, 0.25, 0.5, 0.75, 1]) for code in order]).T / unit.factor
    keys = ("lowerfence", "q1", "median", "q3", "upperfence")
    box = {
        "type": "box",
        "x": [plain(found.group.gpus[code].label) for code in order],
        **{key: short(end) for key, end in zip(keys, ends, strict=True)},
        "line": {"width": 1, "color": PALETTE[0]},
        "hoverinfo": "x+y",
    }
    name = NAMES[figure]
    layout = {
        "xaxis": {"type": "category", "showticklabels": len(order) <= 40},
        "yaxis": {"title": {"text": f"{name}, {unit.name} ({kind})"}},
        "showlegend": False,
    }
    return {"title": name[0].upper() + name[1:], "data": [box], "layout": layout}
