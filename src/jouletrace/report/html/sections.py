"""Tables of the report that are not of parts: kernels of a trace, counters, windows, sensors, where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jouletrace.analysis.latency import distribution
from jouletrace.report import checks
from jouletrace.report.document import printable
from jouletrace.report.html import tables
from jouletrace.report.html.tables import Heading, Table
from jouletrace.report.results import Results
from jouletrace.report.traced import by_name
from jouletrace.run import Run
from jouletrace.run.header import jsonable

_PERCENTILES = ("min", "p25", "median", "p75", "p90", "p95", "p99", "max", "mean", "std", "iqr")


def traced(run: Run, results: Results) -> list[Table]:
    """Kernels by name, where no unit describes them."""
    if results.units("kernel"):
        return []
    found = by_name(run)
    if not found:
        return []
    whole = sum(one.total_s for one in found)
    columns = [("kernel", ""), ("kind", ""), ("launches", "1"), ("time", "s"), ("share", "%")]
    columns += [("mean", "s"), ("shortest", "s"), ("longest", "s")]
    rows: list[list[Any]] = [
        [named, t.kind, t.count, t.total_s, t.total_s / whole if whole else None, t.mean_s, t.least_s, t.most_s]
        for named, t in zip(tables.kernels([one.name for one in found[: tables.MOST_ROWS]]), found, strict=False)
    ]
    if len({one.device for one in found}) > 1:
        columns.insert(2, ("device", ""))
        for row, one in zip(rows, found, strict=False):
            row.insert(2, one.device)
    table = tables.plain("traced", "Kernels by name", columns, rows)
    if len(found) > len(rows):
        table.notes.append(f"{len(found) - len(rows)} more names, those with the least time, are in the Run.")
    return [table]


def counters(run: Run) -> list[Table]:
    """Hardware counters that another profiler read, by kernel and metric: the mean over launches."""
    if not len(run.counters):
        return []
    names = dict(zip(run.spans["id"].to_pylist(), run.spans["name"].to_pylist(), strict=True))
    groups: dict[tuple[str, str, str, str], list[float]] = {}
    for row in run.counters.to_pylist():
        key = (names.get(row["span"]) or "?", row["section"] or "", row["metric"] or "?", row["value_unit"] or "")
        values = groups.setdefault(key, [])
        if row["value"] is not None:
            values.append(row["value"])
    rows: list[tuple[Any, ...]] = []
    cells = tables.kernels([key[0] for key in groups])
    for kernel, ((_, section, name, unit), values) in zip(cells, groups.items(), strict=True):
        middle = float(np.mean(values)) if values else None
        ends = (min(values), max(values)) if values else (None, None)
        rows.append((kernel, section, name, unit, middle, *ends, len(values)))
    columns = [("kernel", ""), ("section", ""), ("counter", ""), ("unit", ""), ("mean", "plain")]
    columns += [("least", "plain"), ("most", "plain"), ("launches", "1")]
    table = tables.plain("counters", "Hardware counters", columns, rows)
    table.headings = [
        Heading(h.name.removesuffix(" (plain)"), h.key.removesuffix(" (plain)"), h.numeric) for h in table.headings
    ]
    return [table]


def percentiles(run: Run) -> Table | None:
    """The distribution of latency in figures."""
    found = distribution(run)
    if not found["n"]:
        return None
    rows = [(name, None if found[name] is None else found[name] / 1e3) for name in _PERCENTILES]  # type: ignore[operator]  # not None
    table = tables.plain("percentiles", "Latency", [("of iterations one by one", ""), ("latency", "s")], rows)
    table.notes.append(f"n = {found['n']}")
    return table


def check_table(results: Results) -> Table | None:
    """The checks of experiments on parts."""
    section = checks.section(results, "kernel").printable()
    return tables.of_section(section, "checks") if section.rows else None


def provenance(run: Run) -> list[tuple[str, list[tuple[str, str]]]]:
    """Everything that the Run says of how it was made, under headings."""
    groups: list[tuple[str, Mapping[str, object]]] = [
        ("Command", {"command": run.command, "kind": run.kind, "complete": run.complete}),
        ("Workload", run.workload),
        ("Settings", run.settings),
        *((f"Device {device.name}", device.to_dict()) for device in run.devices),
        ("Versions", dict(run.versions)),
        ("Environment", dict(run.environment)),
        ("Stored figures", run.stored),
        ("Calibration", run.calibration),
        ("Recorder", dict(run.recorder)),
    ]
    return [(name, _flat(values)) for name, values in groups if _flat(values)]


def _flat(values: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    """Keys and values as text, those of nested dictionaries with dots."""
    found: list[tuple[str, str]] = []
    for key, value in jsonable(values).items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            found += _flat(value, f"{name}.")
        elif value not in (None, "", []):
            found.append(
                (printable(name), printable(", ".join(map(str, value)) if isinstance(value, list) else str(value)))
            )
    return found
