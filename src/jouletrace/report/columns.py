"""Columns of figures: a metric each, in one unit, with footnotes for what is missing and what is flagged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from jouletrace.report.document import Footnotes
from jouletrace.report.table import Cell, Column, Table
from jouletrace.run import Estimate, Run
from jouletrace.run.metrics import BEST, CLOSURES, EACH, OF_PARTS, metric
from jouletrace.run.parts import ABSENT, Part, Parts, of_time
from jouletrace.words import reasons
from jouletrace.words.scale import NBSP, NONE, PrintedUnit, cell, figure, number, unit_for

_LEADING = ("energy_total_j", "time_s")
"""Metrics whose scale others of the same kind take on."""

_A_TOKEN = ("tokens_per_s", "energy_per_token_j")


def add_figures(
    section: Table,
    figures: Sequence[dict[str, Estimate]],
    names: Sequence[str],
    marks: Footnotes,
    secondary: Sequence[str] = (),
) -> None:
    """Add a column a metric to the rows, with footnotes for what is missing and what is flagged.

    Args:
        section: With its rows, to which cells are added.
        figures: By row and metric.
        names: Of the metrics.
        marks: Footnotes of the same output.
        secondary: Metrics that are shown where there is room.
    """
    footnotes, names = marks.of_table(), [name for name in names if name not in BEST.values()]
    timed = any(map(of_time, figures))
    units = _units_of(figures, names)
    common = [_common_flags(row_figures, [name for name in names if name not in secondary]) for row_figures in figures]
    of_all = set.intersection(*map(set, common)) if len(common) > 1 else set()
    places = {name: 1 + 2 * number for number, name in enumerate(secondary)}
    for name in names:
        unit, short = units[name], "share of time" if timed and name == "share" else metric(name).short
        unit_shown = "" if name in BEST else unit
        section.columns.append(
            Column(short, wide=places.get(name, 0), brief=name == "share", key=name, unit=unit_shown)
        )
        for row, row_figures, shared in zip(section.rows, figures, common, strict=True):
            if name not in row_figures and (
                name in secondary or name in _A_TOKEN or section.id in ("layer", "phase", "op", "kernel", "")
            ):
                row.append("")  # what isn't shown of every part is no figure that is missing
                continue
            estimate = row_figures.get(name, ABSENT)
            remarks = [reasons.flag(code) for code in estimate.flags if code not in shared]
            row.append(of_best(row_figures, name) if name in BEST else _figure(estimate, unit, remarks, footnotes))
    apart = [[code for code in shared if code not in of_all] for shared in common]
    if any(apart):
        section.columns.append(Column("", numeric=True, key="remarks"))
        for row, codes in zip(section.rows, apart, strict=True):
            row.append(NBSP.join(footnotes.mark(reasons.flag(code)) for code in codes))
    section.notes.extend([*footnotes.lines(), *footnotes.of_all([reasons.flag(code) for code in sorted(of_all)])])


def of_best(figures: Mapping[str, Estimate], share: str) -> Cell:
    """A rate as its share (a key of ``BEST``) of the best one: "51 % of 733 TFLOP/s bf16"."""
    figure, best = figures.get(share, ABSENT), figures.get(BEST[share], ABSENT)
    if figure.value is None or best.value is None:
        return Cell(NONE)
    return Cell(f"{100 * figure.value:.0f}{NBSP}% of {rate(best)}", figure.value)


def rate(best: Estimate) -> str:
    """A best rate: "733 TFLOP/s bf16", "2.71 TB/s copy"."""
    unit = unit_for([best.value], "B/s" if best.method == "copy" else "FLOP/s")
    return NBSP.join([number((best.value or 0.0) / unit.factor, 3), unit.name, best.method])


def _figure(estimate: Estimate, unit: PrintedUnit, remarks: list[str], footnotes: Footnotes) -> Cell:
    """A figure with the marks of its remarks behind its interval, and how it came about on request."""
    if estimate.value is None:
        remarks.insert(0, reasons.reason(estimate.reason))
    text = NBSP.join(filter(None, [cell(estimate, unit), *sorted(map(footnotes.mark, remarks))]))
    how = [reasons.method(estimate.method)] if estimate.method else []
    hint = remarks if estimate.value is None else [*how, *([f"n = {estimate.n}"] if estimate.n else []), *remarks]
    return Cell(text, estimate.value, estimate.low, estimate.high, hint=", ".join(hint))


def _units_of(figures: Sequence[dict[str, Estimate]], names: Sequence[str]) -> dict[str, PrintedUnit]:
    """A unit for each column; energies share one, and times, so that columns can be compared, but those of each."""
    units: dict[str, PrintedUnit] = {}
    for name in names:
        unit = metric(name).unit
        leads = () if name in EACH.values() else _LEADING
        leading = next((lead for lead in (*leads, name) if lead in names and metric(lead).unit == unit), name)
        units[name] = unit_for([row[leading].value for row in figures if leading in row], unit)
    return units


def _common_flags(figures: dict[str, Estimate], names: Sequence[str]) -> tuple[str, ...]:
    """Flags that all figures of a row have, where it has several: said once, of the row."""
    flags = [figures[name].flags for name in names if name in figures and figures[name].value is not None]
    return tuple(code for code in flags[0] if all(code in row_flags for row_flags in flags)) if len(flags) > 1 else ()


def check_section(results: Parts) -> Table:
    """How well parts make the whole, and how well the sensor behind them is understood; no rows without parts."""
    checks = Table("Checks", [Column("check"), Column("value", numeric=True), Column("remark")], id="checks")
    for gpu, unit in {"": results.whole, **results.gpus}.items():
        there = unit.figures
        for name in OF_PARTS:
            if name not in there or (name == "closure_layers" and "closure_kernels" in there):
                continue
            estimate = there[name]
            remarks = [reasons.flag(code) for code in there[name].flags]
            if name in CLOSURES and estimate.low is not None and estimate.high is not None:
                remarks += [] if estimate.low <= 1 <= estimate.high else ["its interval misses 1"]
            label = ": ".join(filter(None, (gpu, metric(name).label.strip())))
            checks.rows.append([label, figure(estimate, metric(name).unit), "; ".join(remarks)])
    return checks


_SPREAD = "±: how they differ from one to the next, steps in blocks of many"
_ALONE = "±: what the sensor leaves open of those that ran, not how they differ"


def distinguished(run: Run, results: Parts, units: Sequence[Part]) -> tuple[list[dict[str, Estimate]], list[str]]:
    """Figures of ranges with a flag where an interval is the sensor's alone, and notes below the table.

    A mean over windows or times has the interval of how these differ. One window, and the regression over all short
    ranges, have that of the sensor: it concerns the ranges that ran, not how others would differ. Figures that other
    tools state get no note.
    """
    figures = [unit.figures for unit in units]
    if run.kind not in ("record", "monitor"):
        return figures, []
    every = results.units("range")
    kinds = [{name: _alone(name, unit, every) for name in unit.figures} for unit in units]
    there = {alone for row in kinds for alone in row.values()} - {None}
    if there != {True, False}:
        return figures, [_ALONE if True in there else _SPREAD] if there else []
    flagged = [
        {name: replace(f, flags=(*f.flags, "sensor_interval")) if row[name] else f for name, f in row_figures.items()}
        for row, row_figures in zip(kinds, figures, strict=True)
    ]
    return flagged, [f"other {_SPREAD}"]


def _alone(metric: str, unit: Part, every: Sequence[Part]) -> bool | None:
    """True if the interval of a figure is the sensor's alone; None where there is none."""
    figure = unit.get(metric)
    if figure.low is None or figure.high is None or figure.low == figure.high:
        return None
    if figure.method == "ranks":  # a sum over ranks is of the kind that theirs are
        path = unit.name.partition("/")[2]
        alike = [
            other for other in every if other.name.partition("/")[2] == path and other.get(metric).method != "ranks"
        ]
        return {_alone(metric, other, ()) for other in alike} - {None} == {True}
    return figure.n == 1 or figure.method in ("repeated", "together")
