"""The parts of a profiled model as rows that sum to the whole: each joule counts exactly once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.tables import UnitRow
from jouletrace.stats.interval import ratio

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

    def cost(place: int) -> float:
        value = rows[place].energy.value if by_energy else rows[place].time.value
        return -math.inf if value is None else value

    return sorted(range(len(rows)), key=cost, reverse=True)


def layer_rows(run: Run) -> list[PartRow]:
    """The calls of each module that runs operators itself, in the order of the first launch; then idle.

    A module that contains others has a row for the operators that it calls itself, if there are any. The rows
    sum to the whole iteration, within its closure.
    """
    figures = _Figures(run)
    layers = {unit["id"]: unit for unit in figures.units if unit["level"] == "layer"}
    calls: dict[int | None, list[UnitRow]] = {}
    containers: set[int | None] = set()
    for unit in layers.values():
        if _is_call(unit, layers):
            calls.setdefault(unit["parent"], []).append(unit)
        elif unit["parent"] in layers:
            containers.add(unit["parent"])
    rows: list[PartRow] = []
    for unit in layers.values():
        if _is_call(unit, layers):
            continue
        contains = unit["id"] in containers
        for one in calls.get(unit["id"], [unit]):
            if contains and not figures.has(one["id"], "time_own_s"):
                continue
            call = one["name"].removeprefix(f"{unit['name']} (").rstrip(")") if one is not unit else ""
            part = ", ".join(filter(None, [call, OWN if contains else "" if call else "module"]))
            rows.append(figures.row(one, unit["name"], part, _OWN if contains else _TOTAL))
    return [*rows, *figures.rest()]


def kernel_rows(run: Run) -> list[PartRow]:
    """Kernels by operator, shapes and module; operators with unknown kernels; idle."""
    figures = _Figures(run)
    ops = {unit["id"]: unit for unit in figures.units if unit["level"] == "op"}
    kernels = [u for u in figures.units if u["level"] == "kernel" and not figures.pooled(u["parent"])]
    traced = {unit["parent"] for unit in kernels}
    rows = [figures.row(unit, unit["name"], "kernel", _TOTAL) for unit in kernels]
    for id, unit in ops.items():
        if figures.is_pool(id) or not (id in traced or figures.pooled(id) or figures.is_rest(unit)):
            rows.append(figures.row(unit, unit["name"], "operator", _TOTAL))
    return [*rows, *figures.rest()]


def _is_call(unit: UnitRow, layers: dict[int, UnitRow]) -> bool:
    """Whether a unit of level "layer" is a call of the module that is its parent."""
    above = layers.get(unit["parent"] or MODEL_UNIT)
    return above is not None and above["module"] == unit["module"]


class _Figures:
    """Units and figures of a Run, indexed once."""

    def __init__(self, run: Run) -> None:
        self.units: list[UnitRow] = run.units.to_pylist()
        unnamed = {unit["id"] for unit in self.units if unit["level"] == "op" and not unit["op"]}
        self._pools = {unit["parent"] for unit in self.units} & unnamed
        self._pooled = self._pools | {u["id"] for u in self.units if u["parent"] in self._pools}
        self._found = {(row["unit"], row["metric"]): row for row in run.results.to_pylist()}

    def has(self, unit: int, metric: str) -> bool:
        """Whether such a figure exists."""
        return (unit, metric) in self._found

    def pooled(self, unit: int | None) -> bool:
        """Whether a unit is a pool or belongs to one, which has its figures."""
        return unit in self._pooled

    def is_pool(self, unit: int) -> bool:
        """Whether a unit is a pool: the sum of parts whose energies are known together alone."""
        return unit in self._pools

    def is_rest(self, unit: UnitRow) -> bool:
        """Whether a unit of level "op" isn't an operator: launch, idle between kernels, the host."""
        return unit["level"] == "op" and not unit["op"] and unit["id"] not in self._pools

    def rest(self) -> Iterator[PartRow]:
        """The rows that belong to no operator."""
        return (
            self.row(unit, f"({unit['name']})", "rest", _TOTAL)
            for unit in self.units
            if self.is_rest(unit) and self.has(unit["id"], "time_s")
        )

    def row(self, unit: UnitRow, name: str, part: str, metrics: tuple[str, str]) -> PartRow:
        """A unit as a row."""
        time, energy = (self._estimate(unit["id"], metric) for metric in metrics)
        power = self._estimate(unit["id"], "power_w") if metrics == _TOTAL else _power(energy, time)
        flags = (self._found.get((unit["id"], metrics[1])) or {}).get("flags") or ""
        return PartRow(
            name=str(name),
            part=part,
            count=unit["count"] or 1,
            time=time,
            energy=energy,
            power=power,
            flags=tuple(flags.split(",")) if flags else (),
            op=unit["op"],
            shapes=unit["shapes"],
            module=unit["module"],
        )

    def _estimate(self, unit: int, metric: str) -> Estimate:
        row = self._found.get((unit, metric))
        return Estimate.from_dict(row) if row else Estimate.null("not_measured")


def _power(energy: Estimate, time: Estimate) -> Estimate:
    if energy.value is None or not time.value:
        return Estimate.null(energy.reason or time.reason or "no_time", energy.method)
    return ratio(energy, time, energy.method)
