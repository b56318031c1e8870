"""The parts of a Run with their figures: the ``results`` and ``units`` tables, indexed once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from jouletrace.run.estimate import Estimate
from jouletrace.run.forms import Recording
from jouletrace.run.model import MODEL_UNIT, Run
from jouletrace.run.recording_names import IDLE_NAME, RECORDING
from jouletrace.run.tables import UnitRow

_CAUSES = {
    "host": "waiting for the host",
    "synchronisation": "after the host had waited for the GPU",
    "data loading": "waiting for the data loader",
    "between launches": "between launches",
}
"""Causes of the time between kernels, by their keys in a Run, as they are printed."""

STORED_SCATTER = "between_runs_stored"
"""Flag of a figure whose interval holds a scatter between runs that was stored from another measurement."""

ABSENT = Estimate.null("not_measured")
"""The figure in place of one that isn't stated."""


RUN, WORKLOAD = "run", "workload"
"""What an interval is of: this run, or this workload on this GPU (docs/explanation/method.md)."""


class Parts:
    """The figures of a Run by unit and metric."""

    def __init__(self, run: Run) -> None:
        self._of = WORKLOAD if (run.settings.get("repeats") or 1) > 1 else RUN
        self._figures: dict[int, dict[str, Estimate]] = {}
        for row in run.results.to_pylist():
            if row["unit"] is None or row["metric"] is None:
                continue
            self._figures.setdefault(row["unit"], {}).setdefault(row["metric"], Estimate.from_dict(row))
        self._units: list[UnitRow] = run.units.to_pylist()
        self._causes: list[UnitRow] = []
        self._add_causes(idle_by(run))

    def _add_causes(self, shares: dict[str, float]) -> None:
        """Add a unit of level "cause" under idle for each cause: its part of the time, at the power of all of it."""
        idle = next((unit for unit in self._units if unit["level"] == "op" and unit["name"] == IDLE_NAME), None)
        if idle is None:
            return
        free = 1 + max(unit["id"] for unit in self._units)
        for id, (name, share) in enumerate(shares.items(), free):
            self._causes.append({**idle, "id": id, "parent": idle["id"], "level": "cause", "name": name, "count": None})
            self._figures[id] = {
                metric: found if metric == "power_w" else replace(found.scaled(share), method="share")
                for metric, found in self._figures.get(idle["id"], {}).items()
            }

    def causes(self, least: float = 0.0) -> list[UnitRow]:
        """Units of the causes of idle, the largest first: those with a share of ``least`` of the whole."""
        return [unit for unit in self.ranked("cause") if (self.get("share", unit["id"]).value or 0.0) >= least]

    def get(self, metric: str, unit: int = MODEL_UNIT) -> Estimate:
        """A figure; null with reason ``not_measured`` if it isn't there."""
        return self._figures.get(unit, {}).get(metric, ABSENT)

    def measurand(self, found: Estimate = ABSENT) -> str:
        """What a figure's interval is of, ``RUN`` or ``WORKLOAD``; without a figure, that of most.

        Intervals contain the scatter between runs if it was measured by repeats, or taken as stored.
        """
        return WORKLOAD if STORED_SCATTER in found.flags else self._of

    def metrics(self, unit: int = MODEL_UNIT) -> dict[str, Estimate]:
        """All figures of a unit by metric, in stored order."""
        return self._figures.get(unit, {})

    def all(self) -> list[UnitRow]:
        """Rows of all units, with the causes of idle."""
        return self._units + self._causes

    def units(self, level: str) -> list[UnitRow]:
        """Rows of the units of a level, in stored order.

        Those of level "kernel" are all that parts come down to, each joule once: the kernels under
        operators, operators whose kernels aren't known, pools of small operators as a whole, idle.
        """
        if level == "cause":
            return self._causes
        if level != "kernel":
            return [unit for unit in self._units if unit["level"] == level]
        ops = {unit["id"]: unit for unit in self._units if unit["level"] == "op"}
        pools = {unit["parent"] for unit in self._units if unit["parent"] in ops and not ops[unit["parent"]]["op"]}
        pooled = pools | {id for id, unit in ops.items() if unit["parent"] in pools}
        kernels = [unit for unit in self._units if unit["level"] == "kernel" and unit["parent"] not in pooled]
        if self.apart(kernels):
            idle = [unit for unit in ops.values() if unit["name"] == IDLE_NAME]
            return [*kernels, *(ops[id] for id in sorted(pools)), *idle]
        known = {unit["parent"] for unit in kernels}
        return kernels + [unit for id, unit in ops.items() if id in pools or id not in pooled | known]

    def apart(self, kernels: Sequence[UnitRow] | None = None) -> bool:
        """Whether kernels have their own figures and belong to no operator: both would describe the same time."""
        if kernels is None:
            kernels = [unit for unit in self._units if unit["level"] == "kernel"]
        loose = [unit["id"] for unit in kernels if not unit["op"] and unit["parent"] == MODEL_UNIT]
        own = (self.get(metric, id).value for id in loose for metric in ("time_s", "energy_total_j"))
        return len(loose) == len(kernels) and any(value is not None for value in own)

    def outside(self) -> list[UnitRow]:
        """Units of what no operator accounts for: idle time."""
        pools = {unit["parent"] for unit in self._units}
        unnamed = [unit for unit in self.units("op") if not unit["op"] and not unit["module"]]
        return [unit for unit in unnamed if unit["id"] not in pools]

    def ranked(self, level: str) -> list[UnitRow]:
        """Units of a level, those that took the most energy first (time, where energy is unknown)."""
        units = self.units(level)
        for metric in ("energy_total_j", "energy_active_j", "time_s"):
            values = {unit["id"]: self.get(metric, unit["id"]).value for unit in units}
            if any(value is not None for value in values.values()):
                return sorted(units, key=lambda unit: math.inf if (v := values[unit["id"]]) is None else -v)
        return units


def idle_by(run: Run) -> dict[str, float]:
    """Shares of the time between kernels by its cause, as printed; empty where causes aren't known."""
    stored = run.workload.get(RECORDING, Recording()).get("idle_by", {})
    return {words: share for key, words in _CAUSES.items() if (share := stored.get(key, 0.0)) > 0}
