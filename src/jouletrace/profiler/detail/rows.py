"""The parts of a profiled model as rows that sum to the whole (each joule counts exactly once), and as CSV files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.files import check_replaceable, write_whole
from jouletrace.run.metrics import METRICS
from jouletrace.run.parts import Part, Parts
from jouletrace.run.places import OVERWRITE, check_free
from jouletrace.spreadsheets import csv_file
from jouletrace.stats.interval import ratio
from jouletrace.words.text import printable

OWN = "own operators"

_TOTAL = ("time_s", "energy_total_j")
_OWN = ("time_own_s", "energy_own_j")


@dataclass(frozen=True)
class PartRow:
    """A layer, or a kernel, in one iteration.

    Attributes:
        name: Qualified name of the module; name of the kernel.
        part: Its kind: "module", "own operators" (of a module that contains others), "call 2" of a module that is
            called several times, "kernel", "operator" (with unknown kernels), or "rest" (idle).
        count: Number of executions behind the figures, in total.
        time: Time in seconds.
        energy: Energy of the GPU in joules, idle power included.
        power: Power in watts: energy by time.
        flags: Codes of caveats about the figures.
        op, shapes, module: For a kernel: the operator that launches it; None where there is none.
    """

    name: str
    part: str
    count: int
    time: Estimate
    energy: Estimate
    power: Estimate
    flags: tuple[str, ...] = ()
    op: str | None = None
    shapes: str | None = None
    module: str | None = None

    @property
    def label(self) -> str:
        """The name; marked for a module's own operators, which are only a part of the module."""
        return f"{self.name} ({OWN})" if self.part.endswith(OWN) else self.name


def by_cost(rows: Sequence[PartRow]) -> list[int]:
    """Indices of the rows, most energy first; by time if no energy is known."""
    by_energy = any(row.energy.value is not None for row in rows)

    def cost(index: int) -> float:
        value = rows[index].energy.value if by_energy else rows[index].time.value
        return -math.inf if value is None else value

    return sorted(range(len(rows)), key=cost, reverse=True)


def layer_rows(run: Run) -> list[PartRow]:
    """The calls of each module that runs operators itself, in the order of the first launch; then idle.

    A module that contains others has a row for the operators that it calls itself, if there are any. The rows
    sum to the whole iteration, within its closure.
    """
    results = Parts(run)
    layers = {unit.id: unit for unit in results.units("layer")}
    calls: dict[int | None, list[Part]] = {}
    containers: set[int | None] = set()
    for unit in layers.values():
        if _is_call(unit, layers):
            calls.setdefault(unit.parent, []).append(unit)
        elif unit.parent in layers:
            containers.add(unit.parent)
    rows: list[PartRow] = []
    for unit in layers.values():
        if _is_call(unit, layers):
            continue
        contains = unit.id in containers
        for called in calls.get(unit.id, [unit]):
            if contains and "time_own_s" not in called.figures:
                continue
            call = called.name.removeprefix(f"{unit.name} (").rstrip(")") if called is not unit else ""
            part = ", ".join(filter(None, [call, OWN if contains else "" if call else "module"]))
            rows.append(_row(results, called, unit.name, part, _OWN if contains else _TOTAL))
    return [*rows, *_rest(results, _pools(results.all()))]


def kernel_rows(run: Run) -> list[PartRow]:
    """Kernels by operator, shapes and module; operators with unknown kernels; idle."""
    results = Parts(run)
    units = results.all()
    pools = _pools(units)
    pooled = pools | {unit.id for unit in units if unit.parent in pools}
    kernels = [unit for unit in units if unit.level == "kernel" and unit.parent not in pooled]
    traced = {unit.parent for unit in kernels}
    rows = [_row(results, unit, unit.name, "kernel", _TOTAL) for unit in kernels]
    for unit in results.units("op"):
        if unit.id in pools or (unit.op and unit.id not in traced | pooled):
            rows.append(_row(results, unit, unit.name, "operator", _TOTAL))
    return [*rows, *_rest(results, pools)]


def _is_call(unit: Part, layers: dict[int, Part]) -> bool:
    """True if a unit of level "layer" is a call of the module that is its parent."""
    above = layers.get(unit.parent or MODEL_UNIT)
    return above is not None and above.module == unit.module


def _pools(units: Sequence[Part]) -> set[int | None]:
    """Ids of pools: sums of operators whose energies are known together alone."""
    unnamed = {unit.id for unit in units if unit.level == "op" and not unit.op}
    return {unit.parent for unit in units} & unnamed


def _rest(results: Parts, pools: set[int | None]) -> list[PartRow]:
    """The rows of no operator: launch, idle between kernels, the host."""
    unnamed = [unit for unit in results.units("op") if not unit.op and unit.id not in pools]
    there = [unit for unit in unnamed if "time_s" in unit.figures]
    return [_row(results, unit, f"({unit.name})", "rest", _TOTAL) for unit in there]


def _row(results: Parts, unit: Part, name: str, part: str, metrics: tuple[str, str]) -> PartRow:
    time, energy = (unit.get(metric).in_unit(METRICS[metric].unit) for metric in metrics)
    power = unit.get("power_w").in_unit("W") if metrics == _TOTAL else _power(energy, time)
    flags = unit.get(metrics[1]).flags
    count, of = unit.count or 1, (unit.op, unit.shapes, unit.module)
    return PartRow(str(name), part, count, time, energy, power, flags, *of)


def _power(energy: Estimate, time: Estimate) -> Estimate:
    if energy.value is None or not time.value:
        return Estimate.null(energy.reason or time.reason or "no_time", energy.method)
    return ratio(energy, time, energy.method).in_unit("W")


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
    of_noun = _LAYER if noun == "layer" else _KERNEL
    more = (*_MORE, *(() if noun == "layer" else ("op", "shapes", "module")), *_NOTES)
    return [f"{noun}_name", "exec_id", *of_noun, *more, *(["SIMULATED"] if simulated else [])]


def records(runs: Sequence[Run], tables: Sequence[Sequence[PartRow]], noun: str) -> list[dict[str, Any]]:
    """One record per row, run after run; unknown values are None."""
    rows_made: list[dict[str, Any]] = []
    wanted = columns(noun, simulated=runs[0].simulated)
    for number, (run, rows) in enumerate(zip(runs, tables, strict=True)):
        energy, time = run.result("energy_total_j").value, iteration_time(run).value
        for row in rows:
            part, whole = (row.energy.value, energy) if energy is not None else (row.time.value, time)
            figures = {
                f"{noun}_name": row.name,
                "exec_id": len(rows_made),
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
            rows_made.append({name: figures.get(name) for name in wanted})
    return rows_made


def costliest(every: Sequence[dict[str, Any]], tables: Sequence[Sequence[PartRow]], n: int) -> list[dict[str, Any]]:
    """The records of the ``n`` rows of the last run with the most energy (time, if no energy is known)."""
    first = len(every) - len(tables[-1])
    return [every[first + index] for index in by_cost(tables[-1])[:n]]


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
    for target_path in places:
        if overwrite and target_path.is_file():
            check_replaceable(target_path, (",".join(heads[:2]),), f"a table of {noun}s")
        else:
            check_free(target_path, OVERWRITE)
    every = records(runs, tables, noun)
    try:
        for place, some in zip(places, (every, costliest(every, tables, TOP)), strict=True):
            cells = (
                [printable(cell) if isinstance(cell, str) else cell for cell in map(row.get, heads)] for row in some
            )
            write_whole(place, csv_file([heads, *cells]).encode(), first=not overwrite)
    except OSError as error:
        raise BadInputError(f"cannot write {stem}.csv: {error.strerror or error}") from None
    return places
