"""Rows of layers and kernels as records and CSV files, with a companion that states what is missing and why."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.profiler.detail.rows import PartRow, by_cost
from jouletrace.run import Estimate, Run
from jouletrace.run.files import check_replaceable
from jouletrace.run.header import jsonable
from jouletrace.run.store import check_free
from jouletrace.spreadsheets import csv_cells

_MEAN = "figures are means over thousands of executions, without a single start or end; the Run has spans of kernels"
_EDGE = "a power sensor updates at most every 20 ms: read at the edges of a layer, it gives all layers the same value"

TOP = 10

UNKNOWABLE = {"start_time": _MEAN, "end_time": _MEAN, "start_power_w": _EDGE, "end_power_w": _EDGE}
"""Columns that other profilers provide, and why they are empty here."""

_COLUMNS: dict[str, tuple[str, str]] = {
    "exec_id": ("", "number of the row over all runs"),
    "start_time": ("s", "start since the Unix epoch"),
    "end_time": ("s", "end since the Unix epoch"),
    "duration_ms": ("ms", "time of all executions of the row per iteration"),
    "start_power_w": ("W", "power at the start"),
    "end_power_w": ("W", "power at the end"),
    "avg_power_w": ("W", "mean power of the GPU"),
    "energy_j": ("J", "energy of the GPU, idle power included, per iteration"),
    "energy_low_j": ("J", "lower end of its 95 % interval"),
    "energy_high_j": ("J", "upper end of its 95 % interval"),
    "share": ("1", "share of the iteration's energy (of its time, where energy is unknown)"),
    "run": ("", "number of the run of the profiler, from 0"),
    "part": ("", "module, own operators of a module that contains others, call N, kernel, operator, or rest"),
    "count": ("1/iteration", "executions of the row per iteration"),
    "op": ("", "operator that launches the kernel"),
    "shapes": ("", "input shapes and types of the operator"),
    "module": ("", "qualified name of the module"),
    "method": ("", "how the energy was obtained"),
    "flags": ("", "comma-separated codes"),
    "reason": ("", "code for why the energy is empty"),
    "SIMULATED": ("", "true: from a simulated GPU, no hardware was measured"),
}
"""Unit and description of each column."""

_LAYER = ("start_time", "end_time", "duration_ms", "start_power_w", "end_power_w", "avg_power_w", "energy_j")
_KERNEL = ("duration_ms", "avg_power_w", "energy_j")
_MORE = ("energy_low_j", "energy_high_j", "share", "run", "part", "count")
_NOTES = ("method", "flags", "reason")


def iteration_time(run: Run) -> Estimate:
    """Seconds per iteration back to back; without an energy pass, the median latency."""
    back_to_back = run.result("iteration_time_s")
    return back_to_back if back_to_back.value is not None else run.result("latency_s")


def columns(noun: str, *, simulated: bool) -> list[str]:
    """The columns of a table of layers or kernels, in order; columns that other profilers share come first."""
    own = _LAYER if noun == "layer" else _KERNEL
    more = (*_MORE, *(() if noun == "layer" else ("op", "shapes", "module")), *_NOTES)
    return [f"{noun}_name", "exec_id", *own, *more, *(["SIMULATED"] if simulated else [])]


def records(runs: Sequence[Run], tables: Sequence[Sequence[PartRow]], noun: str) -> list[dict[str, Any]]:
    """One record per row, run after run; unknown values are None."""
    found: list[dict[str, Any]] = []
    wanted = columns(noun, simulated=runs[0].simulated)
    for number, (run, rows) in enumerate(zip(runs, tables, strict=True)):
        energy, time = run.result("energy_total_j").value, iteration_time(run).value
        for row in rows:
            part, whole = (row.energy.value, energy) if energy is not None else (row.time.value, time)
            known = {
                f"{noun}_name": row.name,
                "exec_id": len(found),
                "duration_ms": None if row.time.value is None else row.time.value * 1e3,
                "avg_power_w": row.power.value,
                "energy_j": row.energy.value,
                "energy_low_j": row.energy.low,
                "energy_high_j": row.energy.high,
                "share": part / whole if part is not None and whole else None,
                "run": number,
                "part": row.part,
                "count": row.count,
                "op": row.op,
                "shapes": row.shapes,
                "module": row.module,
                "method": row.energy.method or None,
                "flags": ",".join(row.flags) or None,
                "reason": row.energy.reason,
                "SIMULATED": True,
            }
            found.append({name: known.get(name) for name in wanted})
    return found


def costliest(every: Sequence[dict[str, Any]], tables: Sequence[Sequence[PartRow]], n: int) -> list[dict[str, Any]]:
    """The records of the ``n`` rows of the last run with the most energy (time, if no energy is known)."""
    first = len(every) - len(tables[-1])
    return [every[first + place] for place in by_cost(tables[-1])[:n]]


def write_files(
    path: Path | str, runs: Sequence[Run], tables: Sequence[Sequence[PartRow]], noun: str, *, overwrite: bool = False
) -> list[Path]:
    """Write ``NAME.csv``, the ten costliest rows of the last run as ``NAME_top10_energy.csv``, and ``NAME.json``.

    Returns:
        The three paths.

    Raises:
        BadInputError: If a file exists and ``overwrite`` is False or it is of another kind, or a file can't be
            written.
    """
    target = Path(path)
    stem = target.with_suffix("") if target.suffix.lower() == ".csv" else target
    places = [stem.with_name(stem.name + end) for end in (".csv", "_top10_energy.csv", ".json")]
    heads = columns(noun, simulated=runs[0].simulated)
    for place, mark in zip(places, (*[",".join(heads[:2])] * 2, '"energy_missing"'), strict=True):
        if overwrite and place.is_file():
            check_replaceable(place, (mark,), f"a table of {noun}s or its companion")
        else:
            check_free(place)
    every = records(runs, tables, noun)
    top = costliest(every, tables, TOP)
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for place, some in zip(places, (every, top), strict=False):
            with place.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, heads, lineterminator="\n")
                writer.writeheader()
                writer.writerows(dict(zip(one, csv_cells(one.values()), strict=True)) for one in some)
        text = json.dumps(_companion(runs, heads, every, noun), indent=2, ensure_ascii=False)
        places[2].write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"cannot write {stem}.csv: {error.strerror or error}") from None
    return places


def _companion(runs: Sequence[Run], heads: Sequence[str], every: Sequence[dict[str, Any]], noun: str) -> dict[str, Any]:
    """The companion of a table: units, missing values with reasons, the device, the whole model."""
    described = {}
    for name in heads:
        unit, text = _COLUMNS.get(name, ("", f"name of the {noun}"))
        described[name] = {"unit": unit, "description": text, "empty_because": UNKNOWABLE.get(name)}
    missing = [
        {"exec_id": row["exec_id"], "name": row[f"{noun}_name"], "reason": row["reason"]}
        for row in every
        if row["reason"] is not None
    ]
    whole = ("iteration_time_s", "latency_s", "energy_total_j", "power_w", "closure_layers")
    found = {
        "schema": 1,
        "simulated": runs[0].simulated,
        "device": runs[0].devices[0].to_dict(),
        "workload": runs[0].workload,
        "settings": runs[0].settings,
        "columns": described,
        "energy_missing": missing,
        "runs": [
            {
                "created_ns": run.created_ns,
                "model": {name: run.result(name).to_dict() for name in whole},
                "warnings": [warning.to_dict() for warning in run.warnings],
            }
            for run in runs
        ],
    }
    return dict(jsonable(found))
