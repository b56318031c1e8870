"""Looking up figures: the ``results`` and ``units`` tables of a Run, indexed once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from jouletrace.analysis.between_runs import FLAG
from jouletrace.analysis.recording_names import IDLE_NAME
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.forms import Recording
from jouletrace.run.metrics import METRICS, Metric
from jouletrace.run.tables import UnitRow

NO_KERNEL = "no kernel running"
"""The time between kernels, and its energy, as it is printed: in files it is ``IDLE_NAME``, which people take for the
power of an idle GPU."""

_CAUSES = {
    "host": "waiting for the host",
    "synchronisation": "after the host had waited for the GPU",
    "data loading": "waiting for the data loader",
    "between launches": "between launches",
}
"""Causes of the time between kernels, by their keys in a Run, as they are printed."""

ABSENT = Estimate.null("not_measured")
"""The figure in place of one that isn't stated."""


@dataclass(frozen=True)
class Figure:
    """A figure with its flags.

    Attributes:
        estimate: The figure.
        flags: Codes of what a reader must know about it.
    """

    estimate: Estimate = ABSENT
    flags: tuple[str, ...] = ()


NO_FIGURE = Figure()
"""What stands in place of one that isn't stated."""

RUN, WORKLOAD = "run", "workload"
"""What an interval is of: this run, or this workload on this GPU (docs/explanation/method.md)."""


class Results:
    """The figures of a Run by unit and metric.

    Attributes:
        gpus: Names of GPUs ("rank-0") by their units, where the kernels of several were recorded.
    """

    def __init__(self, run: Run) -> None:
        self._of = WORKLOAD if (run.settings.get("repeats") or 1) > 1 else RUN
        self._figures: dict[int, dict[str, Figure]] = {}
        for row in run.results.to_pylist():
            if row["unit"] is None or row["metric"] is None:
                continue
            flags = tuple(row["flags"].split(",")) if row["flags"] else ()
            metrics = self._figures.setdefault(row["unit"], {})
            metrics.setdefault(row["metric"], Figure(Estimate.from_dict(row), flags))
        self._units: list[UnitRow] = run.units.to_pylist()
        self._above = {unit["id"]: unit["parent"] for unit in self._units}
        recordings = run.workload.get("recordings", [])
        names = {one["device"]: one["name"] for one in recordings if "name" in one}
        devices = [unit for unit in self._units if unit["level"] == "device"]
        self._tops = {MODEL_UNIT, *(unit["id"] for unit in devices)}
        self.gpus = {unit["id"]: names[unit["module"]] for unit in devices if unit["module"] in names}
        self._causes: list[UnitRow] = []
        for about in recordings:
            self._add_causes(about)

    def gpu(self, unit: UnitRow) -> str:
        """The name of the GPU of several on which a unit runs; "" for any other unit."""
        above = unit["parent"]
        while above is not None and above not in self.gpus:
            above = self._above.get(above)
        return "" if above is None else self.gpus[above]

    def place(self, gpu: str) -> int:
        """The place of a GPU among several, by which rows are ordered."""
        return [*self.gpus.values(), ""].index(gpu)

    def is_top(self, unit: UnitRow) -> bool:
        """Whether a unit lies right below the whole, or below one of its devices."""
        return unit["parent"] in self._tops

    def _add_causes(self, about: Recording) -> None:
        """Add a unit of level "cause" under idle for each cause: its part of the time, at the power of all of it."""
        idles = (unit for unit in self._units if unit["level"] == "op" and unit["name"] == IDLE_NAME)
        idle = next((unit for unit in idles if self.gpu(unit) == about.get("name", "")), None)
        if idle is None:
            return
        free = 1 + max(unit["id"] for unit in self.all())
        for id, (name, share) in enumerate(idle_by(about).items(), free):
            self._causes.append({**idle, "id": id, "parent": idle["id"], "level": "cause", "name": name, "count": None})
            self._figures[id] = {
                metric: found
                if metric == "power_w"
                else replace(found, estimate=replace(found.estimate.scaled(share), method="share"))
                for metric, found in self._figures.get(idle["id"], {}).items()
            }

    def causes(self, least: float = 0.0) -> list[UnitRow]:
        """Units of the causes of idle, the largest first: those with a share of ``least`` of the whole."""
        return [unit for unit in self.ranked("cause") if (self.get("share", unit["id"]).value or 0.0) >= least]

    def get(self, metric: str, unit: int = MODEL_UNIT) -> Estimate:
        """A figure; null with reason ``not_measured`` if it isn't there."""
        return self.figure(metric, unit).estimate

    def figure(self, metric: str, unit: int = MODEL_UNIT) -> Figure:
        """A figure with its flags."""
        return self._figures.get(unit, {}).get(metric) or NO_FIGURE

    def measurand(self, found: Figure = NO_FIGURE) -> str:
        """What a figure's interval is of, ``RUN`` or ``WORKLOAD``; without a figure, that of most.

        Intervals contain the scatter between runs if it was measured by repeats, or taken as stored.
        """
        return WORKLOAD if FLAG in found.flags else self._of

    def metrics(self, unit: int = MODEL_UNIT) -> dict[str, Figure]:
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
        loose = [unit["id"] for unit in kernels if not unit["op"] and self.is_top(unit)]
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


def idle_by(about: Recording) -> dict[str, float]:
    """Shares of the time between kernels of a recording by its cause, as printed; empty where causes aren't known."""
    stored = about.get("idle_by", {})
    return {words: share for key, words in _CAUSES.items() if (share := stored.get(key, 0.0)) > 0}


def printed(name: str | None) -> str:
    """A unit's name as it is printed, in parentheses or not."""
    if name is not None and name.strip("()") == IDLE_NAME:
        return name.replace(IDLE_NAME, NO_KERNEL)
    return str(name or "?")


def three_columns(names: Iterable[str]) -> list[str]:
    """Headings of figures and of the ends of their intervals, for CSV."""
    return [f"{name}{end}" for name in names for end in ("", "_low", "_high")]


def three_cells(estimates: Iterable[Estimate]) -> list[float | None]:
    """Figures and the ends of their intervals, for CSV."""
    return [end for one in estimates for end in (one.value, one.low, one.high)]


PROFILE = (
    "latency_s",
    "throughput_per_s",
    "power_w",
    "energy_total_j",
    "energy_active_over_context_idle_j",
    "energy_active_over_deep_idle_j",
    "baseline_context_idle_w",
    "baseline_deep_idle_w",
)
"""What a profile always states: a figure, or why there is none."""

CLOSURES = ("closure_layers", "closure_kernels", "closure_kernels_time")
"""Metrics of the model that should be 1."""

OF_PARTS = (*CLOSURES, "residual_w", "sample_rate_hz", "powers_possible")
"""Metrics of the model that say how far its parts can be trusted; listed under the parts."""

_SUFFIXES = {"_per_s": "1/s", "_s": "s", "_w": "W", "_j": "J", "_mhz": "MHz", "_c": "°C", "_bytes": "B", "_pct": "pct"}


def metric(name: str) -> Metric:
    """How a metric is printed; one that isn't in the table is named and measured by its own name."""
    if name in METRICS:
        return METRICS[name]
    for suffix, unit in _SUFFIXES.items():
        if name.endswith(suffix):
            words = name.removesuffix(suffix).replace("_", " ")
            return Metric(words.capitalize(), unit, words)
    words = name.replace("_", " ")
    return Metric(words.capitalize(), "1", words)


def ordered(names: set[str]) -> list[str]:
    """Metrics in the order of ``METRICS``, unknown ones last by name."""
    return [name for name in METRICS if name in names] + sorted(names - set(METRICS))
