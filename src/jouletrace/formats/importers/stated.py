"""Figures that other tools state in their output: units and results of a Run, with the tool in ``method``.

What another tool computed is checked here, for all formats, before it is believed: 0 J or 0 W of a device wasn't
measured, a total with it lacks a part, and rows that overlap in time have no sum unless they are of different machines.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from jouletrace.formats.importers.base import NO_CLOCK, counted, new_run
from jouletrace.run import MODEL_UNIT, DeviceInfo, Estimate, Run
from jouletrace.run.estimate import STATED
from jouletrace.run.figures import Figures
from jouletrace.run.forms import stated_facts

_OF_ENERGIES = ("energy_total_j", "co2_g")
"""Figures that a tool sums up of the energies of all parts."""

_ALIKE_TIME, _ALIKE_POWER = 0.02, 0.01
"""Shares by which times and mean powers of trackers of one machine differ at most: each starts by itself."""

_NAMED = 4
"""As many rows are named."""


@dataclass(frozen=True)
class StatedRow:
    """Figures that a tool states of a time.

    Attributes:
        name: Its name.
        figures: By metric, in the SI unit of each; None where the file has no number.
        end_s: When the time ended, on any clock, rounded down to its resolution; None if unknown.
        duration_s: How long it lasted; None if unknown.
        machine: Facts that are equal for all rows of one machine.
        device: All facts of what was measured: rows of equal ones may be of the same devices. None where a row is of an
            unknown part of the machine.
        doubt: The code of why its totals can't be believed; "" if they can.
    """

    name: str
    figures: Mapping[str, float | None]
    end_s: float | None
    duration_s: float | None
    machine: tuple[str, ...] = ()
    device: tuple[str, ...] | None = None
    doubt: str = ""

    @property
    def span_s(self) -> tuple[float, float]:
        """Its start and end."""
        end = self.end_s or 0.0
        return end - (self.duration_s or 0.0), end


class Stated:
    """Units and figures stated in a file, without intervals, since tools state none.

    Attributes:
        method: Method of its figures.
        undone: What was undone of its energies, to stand behind their method; "" if nothing.
    """

    def __init__(self, tool: str) -> None:
        self.method, self.undone = STATED + tool, ""
        self._figures = Figures()
        self._count = 0
        self._notes: list[tuple[str, str]] = []

    def __len__(self) -> int:
        return self._count

    def unit(self, level: str, name: str, parent: int = MODEL_UNIT, **columns: Any) -> int:
        """A new unit; returns its id."""
        return self._figures.units.add(level, name, parent, **columns | {"count": _counted(columns.get("count"))})

    def add(self, unit: int, metric: str, value: float | None, n: int = 0, doubt: str = "") -> None:
        """Add a figure of a unit in the SI unit of its metric, null for a ``doubt``; does nothing without a value."""
        if value is not None:
            self._count += 1
            null = Estimate.null(doubt, self._method(metric))
            self._figures.add(unit, metric, null if doubt else self._checked(metric, value, _counted(n) or 0))

    def add_rows(self, rows: Sequence[StatedRow], resolution_s: float) -> None:
        """Add a unit for each of several rows, and as figures of the whole what they are together.

        Rows of one machine count one after another. Of those that overlap, one counts if all agree in time and power,
        and else there are no figures of the whole, as nothing says whether they have devices in common.
        """
        each = [self._of_row(row) for row in rows]
        for row, figures in zip(rows, each, strict=True) if len(rows) > 1 else ():
            self._add_all(self.unit("range", row.name, count=1), figures)
        counting, unclear = _counting(rows, resolution_s)
        if unclear:
            names = ", ".join(row.name for row in unclear[:_NAMED]) + (", ..." if len(unclear) > _NAMED else "")
            text = "rows have no time" if any(row.end_s is None for row in rows) else "rows overlap in time"
            way = "no sum of them is known. Each has figures of its own; to count one alone, remove the others"
            self.note("rows_overlap", f"{len(unclear)} {text} ({names}) and may be of the same devices: {way}")
        elif len(counting) < len(rows):
            text = "rows repeat another one of the same time, machine and power: one measurement counts once"
            self.note("rows_repeat", counted(len(rows) - len(counting), text))
        there = [figures for row, figures in zip(rows, each, strict=True) if unclear or row in counting]
        together = {
            metric: Estimate.null("rows_overlap", self._method(metric)) if unclear else _sum(metric, there)
            for metric in dict.fromkeys(metric for figures in there for metric in figures)
        }
        if not unclear and not _in_turn(counting, resolution_s):
            together["time_s"] = _common_time(counting, resolution_s, self.method)
        self._add_all(MODEL_UNIT, together)

    def note(self, code: str, text: str) -> None:
        """Add a warning to the Run."""
        self._notes.append((code, text))

    def _of_row(self, row: StatedRow) -> dict[str, Estimate]:
        """Figures of a row, of which totals with a part that wasn't measured are unknown."""
        unread = any(is_unread(metric, value) for metric, value in row.figures.items() if metric not in _OF_ENERGIES)
        figures = {
            metric: self._checked(metric, value, 1)
            if value is not None
            else Estimate.null("not_measured", self._method(metric))
            for metric, value in row.figures.items()
        }
        why = "part_not_measured" if unread else row.doubt
        doubted = {metric for metric in _OF_ENERGIES if metric in figures and why}
        return figures | {metric: Estimate.null(why, self._method(metric)) for metric in doubted}

    def _checked(self, metric: str, value: float, n: int) -> Estimate:
        """A figure, or why it is none: no device that is on draws nothing."""
        method = self._method(metric)
        return (
            Estimate.null("not_measured", method) if is_unread(metric, value) else Estimate(value, n=n, method=method)
        )

    def _method(self, metric: str) -> str:
        return self.method + (self.undone if metric.startswith("energy") else "")

    def _add_all(self, unit: int, figures: Mapping[str, Estimate]) -> None:
        self._count += sum(figure.value is not None for figure in figures.values())
        self._figures.add_each(unit, figures)

    def write(self, run: Run) -> None:
        """Add them to a Run, below the unit of the whole model."""
        model = Figures()
        model.model(run.workload.get("name", "model"))
        model.units.keep(self._figures.units.rows.values())
        self._figures.units = model.units
        self._figures.become(run)
        for code, text in self._notes:
            run.warn(code, text, run.settings["imported"][0]["path"])

    def run(self, path: Path, form: str, device: str | None, workload: Mapping[str, Any], dialect: str = "") -> Run:
        """A Run of them without times, with the known facts of the workload and the name of the device, if known."""
        run = new_run(path, form, NO_CLOCK, dialect)
        run.workload |= stated_facts(workload)
        if device:
            run.devices.append(DeviceInfo("imported:0", device, kind="cpu" if device == "CPU" else "gpu", index=0))
        self.write(run)
        return run


def _counted(n: object) -> int | None:
    """A count within the range of a table; None for a missing or larger one."""
    return n if isinstance(n, int) and 0 <= n < 1 << 62 else None


def is_unread(metric: str, value: float | None) -> bool:
    """True of 0 J and 0 W, which a tool states of a device that it didn't measure: none that is on draws nothing."""
    return value == 0 and metric.startswith(("energy", "power"))


def _counting(rows: Sequence[StatedRow], resolution_s: float) -> tuple[list[StatedRow], list[StatedRow]]:
    """The rows that count in a sum, and those that overlap, or may, without a word on what they have in common."""
    if len(rows) > 1 and any(row.end_s is None or row.duration_s is None for row in rows):
        return [], list(rows)
    counting, unclear = list[StatedRow](), list[StatedRow]()
    for _, some in groupby(sorted(rows, key=lambda row: (row.machine, row.span_s)), key=lambda row: row.machine):
        for cluster in _clusters(some, resolution_s):
            if _in_turn(cluster, resolution_s):
                counting += cluster
            elif all(_one_measurement(cluster[0], other, resolution_s) for other in cluster[1:]):
                counting.append(min(cluster, key=lambda row: (row.duration_s, row.name)))
            else:
                unclear += cluster
    return counting, unclear


def _clusters(rows: Iterable[StatedRow], resolution_s: float) -> list[list[StatedRow]]:
    """Rows in the order of their starts, apart where a pause lies between them."""
    clusters, until_s = list[list[StatedRow]](), 0.0
    for row in rows:
        start, end = row.span_s
        if clusters and start < until_s + resolution_s:
            clusters[-1].append(row)
            until_s = max(until_s, end)
        else:
            clusters.append([row])
            until_s = end
    return clusters


def _in_turn(rows: Sequence[StatedRow], resolution_s: float) -> bool:
    """True if all may have run one after another: each ended within the resolution after its stamp."""
    free_s = float("-inf")
    for row in sorted(rows, key=lambda row: row.end_s or 0.0):
        end = row.span_s[1]
        free_s = max(end, free_s + (row.duration_s or 0.0))
        if free_s > end + resolution_s:
            return False
    return True


def _alike_in_time(one: StatedRow, other: StatedRow, resolution_s: float) -> bool:
    most_s = resolution_s + _ALIKE_TIME * max(one.duration_s or 0.0, other.duration_s or 0.0)
    return all(abs(a - b) <= most_s for a, b in zip(one.span_s, other.span_s, strict=True))


def _one_measurement(one: StatedRow, other: StatedRow, resolution_s: float) -> bool:
    """True of two rows of equal devices, times, and mean powers of each part: two trackers of one machine."""
    if one.device is None or one.device != other.device or not _alike_in_time(one, other, resolution_s):
        return False
    powers = [
        {
            metric: (value or 0.0) / (row.duration_s or 1.0)
            for metric, value in row.figures.items()
            if metric != "time_s"
        }
        for row in (one, other)
    ]
    return powers[0].keys() == powers[1].keys() and all(
        math.isclose(watts, powers[1][metric], rel_tol=_ALIKE_POWER) for metric, watts in powers[0].items()
    )


def _common_time(rows: Sequence[StatedRow], resolution_s: float, method: str) -> Estimate:
    """The time of rows of several machines at once; null where these ran at different times."""
    wholes = []
    for machine in {row.machine for row in rows}:
        own = [row for row in rows if row.machine == machine]
        ends = [row.span_s for row in own]
        seconds = sum(row.duration_s or 0.0 for row in own)
        start, end = min(start for start, _ in ends), max(end for _, end in ends)
        wholes.append(replace(own[0], end_s=end, duration_s=seconds))
        wholes.append(replace(own[0], end_s=end, duration_s=end - start))
    if all(_alike_in_time(wholes[0], other, resolution_s) for other in wholes[1:]):
        return Estimate(max(row.duration_s or 0.0 for row in wholes[::2]), n=len(rows), method=method)
    return Estimate.null("times_differ", method)


def _sum(metric: str, rows: Sequence[Mapping[str, Estimate]]) -> Estimate:
    """The sum of a figure of all rows that have it; null with the reason of the first that is."""
    found = [figures[metric] for figures in rows if metric in figures]
    missing = next((figure for figure in found if figure.value is None), None)
    return missing or replace(found[0], value=math.fsum(figure.value or 0.0 for figure in found), n=len(found))
