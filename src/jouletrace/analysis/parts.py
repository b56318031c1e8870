"""Figures of operators and the kernels under them, from the windows of experiments and the traced spans."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow.compute as pc

from jouletrace.analysis.forwards import gaps_weight, part_weights, weigh
from jouletrace.analysis.generation import between_forwards
from jouletrace.analysis.layers import add_layers
from jouletrace.analysis.phases import ORDER, add_phases
from jouletrace.analysis.power import measured_sampling, sampling
from jouletrace.analysis.rows import Figures
from jouletrace.analysis.shared_out import SharedOut, Stated
from jouletrace.analysis.sites import Site, sites_of
from jouletrace.energy.interval import difference, ratio, total
from jouletrace.experiments.estimate import Cost, Estimator, Findings, PartCost
from jouletrace.experiments.parts import GAPS_NAME, POOLED_OP
from jouletrace.run import MODEL_UNIT, Estimate, Run

Row = dict[str, Any]

RAW = ("op", "site", "group", "kernel")
"""Levels of units that say what was changed and traced; all others are computed from them."""

BETWEEN_NAME = "between forwards"
"""Name of the unit for what happens between the forwards that generate tokens."""

HOST_NAME = "host gaps"
"""Name of the unit for what a step that the host launches costs more than the same kernels in a graph."""


def add_parts(run: Run, figures: Figures) -> None:
    """Add operators, launch and gaps, kernels, and how well they close; nothing where no experiment was run.

    ``figures`` has the model's own figures already.
    """
    computed = (HOST_NAME, BETWEEN_NAME)
    rows: list[Row] = [row for row in run.units.to_pylist() if row["level"] in RAW and row["name"] not in computed]
    ops = [row for row in rows if row["level"] == "op"]
    if not ops:
        return
    weigh(run, rows)
    figures.keep(rows)
    traced = _traced(run, rows)
    of_ops = _of_operators(rows, traced)
    parts = [row["id"] for row in ops if row["parent"] == MODEL_UNIT and row["name"] != GAPS_NAME]
    device = run.devices[0].id if run.devices else ""
    known = sampling(run, device), measured_sampling(run, device)
    estimator = Estimator(run.windows, part_weights(rows, of_ops), *known)
    found = estimator.findings(parts)
    scale = _Scale(run, figures, found)
    gaps = found.gaps.scaled(gaps_weight(run))
    for row in ops:
        if row["name"] == GAPS_NAME:
            scale.add(row["id"], gaps)
        elif row["id"] in found.parts:
            _add_part(figures, scale, row["id"], found.parts[row["id"]])
        else:
            _add_member(figures, row, ops, found)
    _add_kernels(figures, scale, rows, traced, estimator.paced)
    next_id = max(row["id"] for row in rows) + 1
    first = next_id + 1
    sites = sites_of(rows, of_ops)
    generates = "generation" in run.workload
    if not generates:  # whose phases were measured as such
        add_phases(figures, sites, estimator, scale.add, range(first, first + len(ORDER)))
    whole_phases = all(any(op["parent"] == part for op in ops) for part in parts)
    if not whole_phases:  # of which nothing is known by module
        add_layers(figures, rows, estimator, sites, scale.add, first + len(ORDER))
        figures.add(MODEL_UNIT, "closure_layers", found.closure, found.flags)
    if _launched_beside_graph(run):
        same = _together(estimator.sum(dict.fromkeys(parts, 1.0)), gaps) if generates else found.untouched
        _add_host(figures, scale, next_id, same)
    elif generates:
        figures.unit(next_id, "op", BETWEEN_NAME, MODEL_UNIT, count=1)
        scale.add(next_id, between_forwards(figures))
    _add_checks(figures, found)


def _launched_beside_graph(run: Run) -> bool:
    """Whether the host launches the user's step, and its parts were changed in a graph of the same kernels."""
    made = run.workload.get("parts") or {}
    on_gpu = bool(run.devices) and run.devices[0].kind == "gpu"
    return on_gpu and run.workload.get("mode") in ("eager", "compile") and "fallback" not in made


class _Scale:
    """Adds the figures of a part, with what they share with the model's."""

    def __init__(self, run: Run, figures: Figures, found: Findings) -> None:
        self._figures = figures
        self._idle = figures.get(MODEL_UNIT, "baseline_context_idle_w")
        energy, time = (figures.get(MODEL_UNIT, name) for name in ("energy_total_j", "iteration_time_s"))
        costs = [found.untouched, *(part.cost for part in found.parts.values())]
        self.by_energy = any(cost.energy_j.value is not None for cost in costs)
        # Where the host launches it, the user's step isn't the one whose parts were changed; nor is a whole generation.
        plain = energy if self.by_energy else time
        own = found.untouched.energy_j if self.by_energy else found.untouched.time_s
        other = own.value is None or _launched_beside_graph(run) or "generation" in run.workload
        self._whole = (plain if other else own).value
        metric = "energy_total_j" if self.by_energy else "iteration_time_s"
        self._flags = figures.flags(MODEL_UNIT, metric) if own.value is None else []

    def add(self, unit: int, cost: Cost, flags: Iterable[str] = (), alone: Cost | None = None) -> None:
        """Add what a unit costs.

        Args:
            unit: Id.
            cost: In context.
            flags: Of all its figures.
            alone: At equal clocks: under a power cap what a step saves without a part is the cap times a time,
                which says nothing of the part's own power.
        """
        flags = list(flags)
        energy, time = cost.energy_j, cost.time_s
        self._figures.add(unit, "time_s", time, flags)
        self._figures.add(unit, "energy_total_j", energy, flags)
        self._figures.add(unit, "energy_active_j", self._active(energy, time), flags)
        self._figures.add(unit, "power_w", mean_power(alone or cost), [*flags, *(["equal_clocks"] if alone else [])])
        of = energy if self.by_energy else time
        if of.value is not None and self._whole:
            self._figures.add(unit, "share", of.scaled(1 / self._whole), [*flags, *self._flags])

    def _active(self, energy: Estimate, time: Estimate) -> Estimate:
        if energy.value is None or time.value is None or self._idle.value is None:
            return Estimate.null(energy.reason or time.reason or self._idle.reason or "not_measured", energy.method)
        return difference(energy, self._idle.scaled(time.value), energy.method)


def mean_power(cost: Cost) -> Estimate:
    """Energy over time; null where either isn't known, or the time can't be told from nothing."""
    energy, time = cost.energy_j, cost.time_s
    if energy.value is None or time.value is None:
        return Estimate.null(energy.reason or time.reason or "not_measured", energy.method)
    if time.value <= 0 or (time.low is not None and time.low <= 0):
        return Estimate.null("denominator_near_zero", energy.method)
    return ratio(energy, time, energy.method)


def _add_part(figures: Figures, scale: _Scale, unit: int, cost: PartCost) -> None:
    scale.add(unit, cost.cost, cost.flags, cost.matched)
    if cost.matched is not None:
        figures.add(unit, "time_matched_s", cost.matched.time_s, cost.flags)
        figures.add(unit, "energy_matched_j", cost.matched.energy_j, cost.flags)
    for name, one in (("removal", cost.removal), ("repetition", cost.repetition)):
        if one.energy_j.value is not None:
            figures.add(unit, f"energy_{name}_j", one.energy_j)
        if one.time_s.value is not None:
            figures.add(unit, f"time_{name}_s", one.time_s)


def _add_member(figures: Figures, row: Row, ops: list[Row], found: Findings) -> None:
    """An operator that was measured with others alone: too small to be told from nothing, or not to be had alone."""
    unit = row["id"]
    pool = next((op["name"] or "" for op in ops if op["id"] == row["parent"]), "")
    small = pool.startswith(POOLED_OP)
    for metric in ("time_s", "energy_total_j", "energy_active_j"):
        reason = "below_resolution" if small else "measured_together"
        figures.add(unit, metric, Estimate.null(reason, "experiment"))
    if small and found.resolvable_j is not None:
        figures.add(unit, "energy_resolvable_j", Estimate(found.resolvable_j, None, None, 1, "experiment"))


def _traced(run: Run, rows: list[Row]) -> dict[int, float]:
    """Seconds of an iteration in each kernel unit, by the trace."""
    weights = {row["id"]: row.get("weight") or 1.0 for row in rows if row["level"] == "op"}
    above = {row["id"]: weights.get(row["parent"], 1.0) for row in rows if row["level"] == "kernel"}
    return {unit: seconds * above.get(unit, 1.0) for unit, seconds in _traced_once(run).items()}


def _of_operators(rows: list[Row], traced: dict[int, float]) -> dict[int, float]:
    """The same in each operator, where it was traced."""
    found: dict[int, float] = {}
    for row in rows:
        if row["level"] == "kernel" and row["parent"] != MODEL_UNIT and traced.get(row["id"]):
            found[row["parent"]] = found.get(row["parent"], 0.0) + traced[row["id"]]
    return found


def _traced_once(run: Run) -> dict[int, float]:
    """Seconds of an iteration of the experiment in each kernel unit."""
    spans = run.spans.filter(pc.and_(pc.is_valid(run.spans["unit"]), pc.is_valid(run.spans["parent"])))
    if not len(spans):
        return {}
    iterations = len(pc.unique(spans["parent"]))
    units = spans["unit"].to_numpy()
    seconds = (spans["end_ns"].to_numpy() - spans["start_ns"].to_numpy()) / 1e9
    ids, where = np.unique(units, return_inverse=True)
    return dict(zip(ids.tolist(), (np.bincount(where, seconds) / iterations).tolist(), strict=True))


def _add_kernels(figures: Figures, scale: _Scale, rows: list[Row], traced: dict[int, float], paced: bool) -> None:
    """Each kernel has its operator's figures; several share out its cost by traced time."""
    under: dict[int, list[Row]] = {}
    for row in rows:
        if row["level"] == "kernel":
            under.setdefault(row["parent"], []).append(row)
            if row["id"] in traced:
                figures.add(row["id"], "time_traced_s", _plain(traced[row["id"]]))
    for op, kernels in under.items():
        whole = sum(traced.get(row["id"], 0.0) for row in kernels)
        if op == MODEL_UNIT or not whole:
            for row in kernels:
                for metric in ("time_s", "energy_total_j"):
                    figures.add(row["id"], metric, Estimate.null("no_operator", "trace"))
            continue
        if len(kernels) > 1 and figures.has(op, "power_w"):  # a member of a pool has none, and nothing to share out
            # by their own names: the "op" of their rows is the operator, one for all
            sites = [Site({**row, "op": None}, op, traced.get(row["id"], 0.0) / whole, traced=True) for row in kernels]
            _split(figures, scale, SharedOut(Stated(figures.get, paced), sites), sites)
        else:
            for row in kernels:
                for metric in figures.metrics(op):
                    figures.add(row["id"], metric, figures.get(op, metric), figures.flags(op, metric))
        figures.add(op, "time_traced_s", _plain(whole))


def _split(figures: Figures, scale: _Scale, shared: SharedOut, kernels: list[Site]) -> None:
    """Add the figures of several kernels under one operator."""
    for kernel in kernels:
        flags = [*figures.flags(kernel.part, "time_s"), "split"]
        scale.add(kernel.row["id"], shared.sum([kernel]), flags, shared.at_equal_clocks([kernel]))


def _plain(seconds: float) -> Estimate:
    return Estimate(seconds, None, None, 1, "trace")


def _together(one: Cost, other: Cost) -> Cost:
    return Cost(total([one.energy_j, other.energy_j]), total([one.time_s, other.time_s]))


def _add_host(figures: Figures, scale: _Scale, unit: int, graph: Cost) -> None:
    """What the host's launches cost: the user's step less the same kernels in a graph."""
    figures.unit(unit, "op", HOST_NAME, MODEL_UNIT, count=1)
    eager = Cost(figures.get(MODEL_UNIT, "energy_total_j"), figures.get(MODEL_UNIT, "iteration_time_s"))
    energy = difference(eager.energy_j, graph.energy_j, "eager_less_graph")
    time = difference(eager.time_s, graph.time_s, "eager_less_graph")
    scale.add(unit, Cost(energy, time), ["measured_apart"])


def _add_checks(figures: Figures, found: Findings) -> None:
    """How well the parts make the whole, and whether the experiment was undisturbed."""
    by_energy = found.closure.value is not None
    figures.add(MODEL_UNIT, "closure_kernels", found.closure, found.flags)
    figures.add(MODEL_UNIT, "closure_kernels_time", found.closure_time, found.flags)
    if found.closure_matched is not None:
        figures.add(MODEL_UNIT, "closure_kernels_matched", found.closure_matched, found.flags)
    if by_energy:
        figures.add(MODEL_UNIT, "energy_step_j", found.untouched.energy_j)
        figures.add(MODEL_UNIT, "perturbation", found.perturbation)
        figures.add(MODEL_UNIT, "null_experiment", found.null)
    if found.resolvable_j is not None:
        figures.add(MODEL_UNIT, "energy_resolvable_j", _count(found.resolvable_j, found.windows))
    if found.pause_s:
        figures.add(MODEL_UNIT, "pause_s", _count(found.pause_s, found.windows))
    if found.detuned_s:
        figures.add(MODEL_UNIT, "detuned_s", _count(found.detuned_s, found.windows))
    if found.clock_spread_mhz is not None:
        figures.add(MODEL_UNIT, "clock_spread_mhz", _count(found.clock_spread_mhz, found.windows))
    for spike in found.spikes:
        figures.add(spike.part, "spike_recovered", spike.recovered, [] if spike.passed else ["spike_missed"])
    for pair in found.additivity:
        flags = [f"with_unit_{pair.parts[1]}", *([] if pair.passed else ["not_additive"])]
        figures.add(pair.parts[0], "additivity_residual", pair.residual, flags)


def _count(value: float, n: int) -> Estimate:
    return Estimate(value, None, None, n, "experiment")
