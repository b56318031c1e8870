"""Rows of layers and kernels as records and CSV files."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.profiler.detail.rows import PartRow, by_cost
from jouletrace.run import Estimate, Run
from jouletrace.run.files import check_replaceable
from jouletrace.run.store import check_free
from jouletrace.spreadsheets import csv_cells

TOP = 10

_LAYER = ("start_time", "end_time", "duration_ms", "start_power_w", "end_power_w", "avg_power_w", "energy_j")
_KERNEL = ("duration_ms", "avg_power_w", "energy_j")
_MORE = ("energy_low_j", "energy_high_j", "share", "run", "part", "count")
_NOTES = ("method", "flags", "reason")


def iteration_time(run: Run) -> Estimate:
    """Seconds per iteration back to back; without an energy pass, the median latency."""
    back_to_back = run.result("iteration_time_s")
    return back_to_back if back_to_back.value is not None else run.result("latency_s")


def columns(noun: str, *, simulated: bool) -> list[str]:
    """The columns of a table of layers or kernels, in order; columns that other profilers share come first.

    Starts, ends and their power are always empty: figures are means over thousands of executions, and a sensor that
    updates every 20 ms can't be read at the edges of a layer.
    """
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
    """Write ``NAME.csv``, and the ten costliest rows of the last run as ``NAME_top10_energy.csv``.

    Returns:
        The two paths.

    Raises:
        BadInputError: If a file exists and ``overwrite`` is False or it is of another kind, or a file can't be
            written.
    """
    target = Path(path)
    stem = target.with_suffix("") if target.suffix.lower() == ".csv" else target
    places = [stem.with_name(stem.name + end) for end in (".csv", "_top10_energy.csv")]
    heads = columns(noun, simulated=runs[0].simulated)
    for place in places:
        if overwrite and place.is_file():
            check_replaceable(place, (",".join(heads[:2]),), f"a table of {noun}s")
        else:
            check_free(place)
    every = records(runs, tables, noun)
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for place, some in zip(places, (every, costliest(every, tables, TOP)), strict=True):
            with place.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, heads, lineterminator="\n")
                writer.writeheader()
                writer.writerows(dict(zip(one, csv_cells(one.values()), strict=True)) for one in some)
    except OSError as error:
        raise BadInputError(f"cannot write {stem}.csv: {error.strerror or error}") from None
    return places
