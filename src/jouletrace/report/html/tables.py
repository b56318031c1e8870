"""Tables of the page: those of the terminal with what a page adds to cells, and those that the page alone has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jouletrace.analysis.facts import Facts
from jouletrace.report import parts
from jouletrace.report.document import Footnotes
from jouletrace.report.table import Cell, Column, Table, shortened
from jouletrace.report.tree import by_name
from jouletrace.run import Run
from jouletrace.run.header import jsonable
from jouletrace.run.parts import Part, Parts
from jouletrace.run.sums import Sums
from jouletrace.words import reasons
from jouletrace.words.text import printable

MOST_ROWS = 1000
"""Rows that a table has in the page; of more, the costliest are shown and the rest is counted."""

_LEVELS = ("device", "phase", "context", "range", "layer", "op", "kernel")
_FIRST = ("energy_total_j", "energy_active_j", "share", "time_s", "power_w")
"""Figures of parts that are always shown; the others stand behind "all columns"."""

_DRAWN = ("energy_total_j", "time_s")
_PERCENTILES = ("min", "p25", "median", "p75", "p90", "p95", "p99", "max", "mean", "std", "iqr")


def of_parts(run: Run, results: Parts, marks: Footnotes | None = None) -> list[Table]:
    """A table for each level that the Run has units of; ``marks`` are the footnotes of the page."""
    marks = Footnotes(marks)
    levels = [level for level in _LEVELS if results.units(level) and level != results.stated.level]
    if "kernel" in levels and "op" in levels and not results.apart():
        levels.remove("op")  # shown with their kernels
    listed: list[Table] = []
    sums = Sums(run, results)
    for level in levels:
        if level == "layer":  # as a terminal lists them
            table = parts.layer_table(run, results, sums, marks, brief=True, most=MOST_ROWS)
            listed.append(_level(results, level, replace(_leading(table.shown()), id="layer")))
            continue
        table, rest, unattributed = parts.table(run, results, level, MOST_ROWS, marks, ranked=True, sums=sums)
        listed.append(_level(results, level, _leading(table.shown())))
        listed[-1].notes += parts.above_limit(run, table)
        if rest:
            hint = f"jouletrace show --detail {level}"
            listed[-1].notes.append(f"{len(rest)} more rows, the cheapest, are in the Run: {hint}")
        if unattributed:
            listed.append(_unattributed(results, unattributed))
    return listed


def _leading(table: Table) -> Table:
    """The same with energy and share before other figures: a narrow screen shows the first ones."""
    keys = [column.key for column in table.columns]
    leads = [n for n, key in enumerate(keys) if key in ("energy_total_j", "share")]
    first = next((n for n, key in enumerate(keys) if key in _FIRST), 0)
    order = [*range(first), *leads, *(n for n in range(first, len(keys)) if n not in leads)]
    rows: list[list[str]] = [[row[n] for n in order] for row in table.rows]
    return replace(table, columns=[table.columns[n] for n in order], rows=rows)


def _level(results: Parts, level: str, table: Table) -> Table:
    """The costliest units of a level, with rarely used figures hidden at first, and bars."""
    secondary = {name for unit in results.units(level) for name in unit.figures} - {*_FIRST}
    secondary |= {"shapes"} if level == "kernel" else set()
    table.columns = [
        replace(column, name=column.name or column.key, secondary=column.key in secondary) for column in table.columns
    ]
    for key in _DRAWN:
        column = table.cells(key)
        ends = [x for cell in column for x in (cell.value, cell.low, cell.high) if x is not None]
        low, high = min([0.0, *ends]), max([0.0, *ends])
        draw_bars(column, low, high)
    return table


def draw_bars(cells: Sequence[Cell], low: float, high: float) -> None:
    """Draw intervals, values and zero in percent of a range, which holds zero; what reaches further is cut off."""
    for cell in cells:
        if cell.value is not None and high > low:
            start, end = (cell.value if edge is None else edge for edge in (cell.low, cell.high))
            places = (min(max(x, low), high) for x in (start, end, cell.value, 0.0))
            cell.bar = tuple(round(100 * (x - low) / (high - low), 2) for x in places)


def _unattributed(results: Parts, units: Sequence[Part]) -> Table:
    """Kernels that no part accounts for: what the trace says of them."""
    rows, short = [], shortened(unit.name or "?" for unit in units)
    for unit in units:
        codes = dict.fromkeys(figure.reason for figure in unit.figures.values())
        why = "; ".join(reasons.reason(code) for code in codes if code not in (None, "not_measured"))
        rows.append((short[unit.name or "?"], unit.count, unit.get("time_traced_s").value, why))
    rows.sort(key=lambda row: -(row[2] or 0.0))
    columns = [("kernel", ""), ("×", "1"), ("traced", "s"), ("why", "")]
    return _listed("unattributed", "Kernels not attributed", columns, rows)


def _listed(id: str, title: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> Table:
    """Rows under columns with a name and a unit each (see ``Column``), as far as a page has room for them."""
    table = Table(title, [Column(name, unit=unit) for name, unit in columns], list(map(list, rows[:MOST_ROWS])), id=id)
    if len(rows) > MOST_ROWS:
        table.notes.append(f"{len(rows) - MOST_ROWS} more rows are in the Run.")
    return table.shown()


def traced(run: Run, results: Parts) -> list[Table]:
    """Kernels by name, where no unit describes them."""
    launched = by_name(run)
    if results.units("kernel") or not launched:
        return []
    whole = sum(kernel.total_s for kernel in launched)
    several = len({kernel.device for kernel in launched}) > 1
    columns = [("kernel", ""), ("kind", ""), *([("device", "")] if several else []), ("×", "1"), ("time", "s")]
    columns += [("share", "%"), ("each", "s"), ("shortest", "s"), ("longest", "s")]
    rows: list[list[Any]] = []
    short = shortened(kernel.name for kernel in launched[:MOST_ROWS])
    for kernel in launched[:MOST_ROWS]:
        share = kernel.total_s / whole if whole else None
        where = [kernel.device] if several else []
        times = [kernel.total_s, share, kernel.total_s / kernel.count, kernel.least_s, kernel.most_s]
        rows.append([short[kernel.name], kernel.kind, *where, kernel.count, *times])
    table = _listed("traced", "Kernels by name", columns, rows)
    if len(launched) > len(rows):
        table.notes.append(f"{len(launched) - len(rows)} more names, those with the least time, are in the Run.")
    return [table]


def counters(run: Run) -> list[Table]:
    """Hardware counters that another profiler read, by kernel and metric: the mean over launches."""
    if not len(run.counters):
        return []
    names = dict(zip(run.spans["id"].to_pylist(), run.spans["name"].to_pylist(), strict=True))
    groups: dict[tuple[str, str, str, str], list[float]] = {}
    for row in run.counters.to_pylist():
        key = (names.get(row["span"]) or "?", row["section"] or "", row["metric"] or "?", row["value_unit"] or "")
        groups.setdefault(key, []).extend([] if row["value"] is None else [row["value"]])
    rows, short = list[tuple[Any, ...]](), shortened(kernel for kernel, *_ in groups)
    for key, values in groups.items():
        figures = (float(np.mean(values)), min(values), max(values)) if values else (None, None, None)
        rows.append((short[key[0]], *key[1:], *figures, len(values)))
    columns = [("kernel", ""), ("section", ""), ("counter", ""), ("unit", ""), ("each", "1")]
    columns += [("least", "1"), ("most", "1"), ("×", "1")]
    return [_listed("counters", "Hardware counters", columns, rows)]


def percentiles(run_facts: Facts) -> Table | None:
    """The distribution of latency in figures."""
    latency = run_facts.latency
    if not latency["n"]:
        return None
    each: dict[str, Any] = {name: None if ms is None else ms / 1e3 for name, ms in latency.items()}
    for name, estimate in run_facts.percentiles.items():
        each[name] = estimate if estimate.value is not None else Cell("not known", hint=reasons.reason(estimate.reason))
    rows = [(name, each[name]) for name in _PERCENTILES]
    table = _listed("percentiles", "Latency", [("of iterations one by one", ""), ("latency", "s")], rows)
    table.notes.append(f"n = {latency['n']}")
    return table


def provenance(run: Run) -> list[tuple[str, list[tuple[str, str]]]]:
    """Everything that the Run says of how it was made, under headings."""
    groups: list[tuple[str, Mapping[str, object]]] = [
        ("Command", {"command": run.command, "kind": run.kind, "complete": run.complete}),
        ("Workload", run.workload),
        ("Settings", run.settings),
        *((printable(f"Device {device.name}"), device.to_dict()) for device in run.devices),
        ("Versions", dict(run.versions)),
        ("Environment", dict(run.environment)),
        ("Stored figures", run.stored),
        ("Calibration", run.calibration),
        ("Recorder", dict(run.recorder)),
    ]
    return [(name, flat) for name, values in groups if (flat := _flat(values))]


def _flat(values: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    """Keys and values as text, those of nested dictionaries, and of lists of these, with dots."""
    flat: list[tuple[str, str]] = []
    for key, stored in jsonable(values).items():
        listed = isinstance(stored, list) and stored and isinstance(stored[0], dict)
        value = dict(enumerate(stored)) if listed else stored
        if isinstance(value, dict):
            flat += _flat(value, f"{prefix}{key}.")
        elif value not in (None, "", []):
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            flat.append((printable(f"{prefix}{key}"), printable(text)))
    return flat
