"""The parts of a Run as tables: one a row, a column a metric, in one unit a column."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from jouletrace.report import checks, layers, reasons
from jouletrace.report.document import Column, Footnotes, Section
from jouletrace.report.metrics import metric, ordered
from jouletrace.report.results import ABSENT, Figure, Results
from jouletrace.report.scale import NBSP, cell, quantity, unit_for
from jouletrace.run import Run

LEVELS = {
    "phase": "Phases",
    "layer": "Layers",
    "op": "Operators",
    "kernel": "Operators and kernels",
    "range": "Ranges",
    "device": "Devices",
}
"""Heading of each level."""

_ASIDE = (
    "power_w",
    "energy_own_j",
    "time_own_s",
    "energy_matched_j",
    "time_matched_s",
    "energy_removal_j",
    "energy_repetition_j",
    "time_removal_s",
    "time_repetition_s",
    "time_traced_s",
    "energy_resolvable_j",
    "spike_recovered",
    "additivity_residual",
)
"""Metrics of parts that stand where there is room."""


def sections(run: Run, results: Results, level: str, top: int | None) -> list[Section]:
    """The units of a level, and beneath them how well they make the whole."""
    tree = level == "layer" and top is None
    found = [_tree_section(results) if tree else _parts_section(run, results, level, top)]
    return [*found, checks.section(results, level)]


def _parts_section(run: Run, results: Results, level: str, top: int | None) -> Section:
    """The units of a level: one a row, a column a metric, in one unit a column."""
    units = results.ranked(level) if top is not None or level == "kernel" else results.units(level)
    if level == "phase" and units:
        units = units + results.outside()
    shown = units if top is None else units[:top]
    columns, fields = _naming(level, shown)
    counted = any(unit["count"] is not None for unit in shown)
    if counted:
        columns.append(Column("×", numeric=True))
    section = Section(LEVELS[level], columns)
    for unit in shown:
        row = [_named(run, unit, field) for field in fields]
        section.rows.append(row + ([str(unit["count"] or "")] if counted else []))
    figures = [results.metrics(unit["id"]) for unit in shown]
    add_figures(section, figures, ordered({name for row in figures for name in row}), _ASIDE)
    if len(shown) < len(units):
        section.notes.append(_rest(results, units[len(shown) :]))
    return section


def _tree_section(results: Results) -> Section:
    """Layers under the modules around them."""
    tree = layers.lines(results)
    section = Section(LEVELS["layer"], [Column("layer"), Column("×", numeric=True)])
    section.rows = [[line.label, str(len(line.units))] for line in tree]
    figures = [line.figures for line in tree]
    add_figures(section, figures, ordered({name for row in figures for name in row}), _ASIDE)
    return section


def _naming(level: str, units: Sequence[dict[str, Any]]) -> tuple[list[Column], list[str]]:
    """The columns that say which part a row is, and what of a unit each holds."""
    if level == "device":
        return [Column("device")], ["device"]
    if level == "kernel" and any(unit["op"] for unit in units):
        # A kernel's name says little: one serves many operators, and operators differ by where they are.
        columns, fields = [Column("operator"), Column("module")], ["operator", "module"]
        columns += [Column("kernel", wide=True), Column("shapes", wide=True)]
        return columns, [*fields, "kernel", "shapes"]
    columns, fields = [Column(level)], ["name"]
    for key, name in (("op", "operator"), ("shapes", "shapes"), ("module", "module")):
        if any(unit[key] and unit[key] != unit["name"] for unit in units):
            columns.append(Column(name, wide=True))
            fields.append(key)
    return columns, fields


def _named(run: Run, unit: dict[str, Any], field: str) -> str:
    if field == "device":
        return device_name(run, unit)
    if field == "operator":
        return str(unit["op"] or unit["name"] or "?").removeprefix("aten.")
    if field == "kernel":
        return str(unit["name"]) if unit["level"] == "kernel" else ""
    return str(unit[field] or ("?" if field == "name" else ""))


def device_name(run: Run, unit: dict[str, Any]) -> str:
    """A device's name with what tells it from others of that name: its index on the host."""
    for device in run.devices:
        if device.id == unit["module"] and device.index is not None:
            return f"{device.index}: {device.name}"
    return str(unit["name"] or "?")


def add_figures(
    section: Section, figures: Sequence[dict[str, Figure]], names: Sequence[str], aside: Collection[str] = ()
) -> None:
    """Add a column a metric to the rows, with footnotes for what is missing and what is flagged."""
    footnotes = Footnotes()
    for name in names:
        words = metric(name)
        column = [row[name].estimate if name in row else ABSENT for row in figures]
        unit = unit_for([estimate.value for estimate in column], words.unit)
        heading = f"{words.short} ({unit.name})" if words.short and unit.name else words.short or unit.name
        section.columns.append(Column(heading, numeric=True, wide=name in aside))
        for row, estimate, found in zip(section.rows, column, figures, strict=True):
            if name not in found and (name in aside or section.title == LEVELS["layer"]):
                row.append("")  # what isn't shown of every part is no figure that is missing
                continue
            text = cell(estimate, unit)
            remarks = [reasons.flag(code) for code in found[name].flags] if name in found else []
            if estimate.value is None:
                remarks.insert(0, reasons.reason(estimate.reason))
            value, *interval = text.split(" ", 1)
            marked = NBSP.join([value, *(footnotes.mark(remark) for remark in remarks)])
            row.append(" ".join([marked, *interval]))
    section.notes.extend(footnotes.lines())


def _rest(results: Results, units: Sequence[dict[str, Any]]) -> str:
    """What the rows that are left out come to."""
    parts = []
    for name in ("energy_total_j", "energy_active_j", "time_s", "share"):
        values = [results.get(name, unit["id"]).value for unit in units]
        known = [value for value in values if value is not None]
        if known:
            unknown = f" ({len(values) - len(known)} unknown)" if len(known) < len(values) else ""
            parts.append(f"{metric(name).short} {quantity(sum(known), metric(name).unit)}{unknown}")
    together = f", together {', '.join(parts)}" if parts else ""
    return f"{len(units)} more{together}"
