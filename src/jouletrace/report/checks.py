"""How well parts make the whole, and whether the experiments behind them were undisturbed."""

from __future__ import annotations

from jouletrace.report import reasons
from jouletrace.report.document import Column, Section
from jouletrace.report.metrics import metric
from jouletrace.report.results import Results
from jouletrace.report.scale import figure

OF_PARTS = (
    "energy_step_j",
    "closure_layers",
    "closure_kernels",
    "closure_kernels_time",
    "closure_kernels_matched",
    "perturbation",
    "null_experiment",
    "energy_resolvable_j",
    "pause_s",
    "detuned_s",
    "clock_spread_mhz",
)
"""Metrics of the model that say how far its parts can be trusted; listed under the parts."""

_ONE = ("closure_layers", "closure_kernels", "closure_kernels_time", "closure_kernels_matched", "null_experiment")
"""Metrics that should be 1."""

_SPIKE, _PAIR = "spike_recovered", "additivity_residual"


def section(results: Results, level: str) -> Section:
    """The checks as a table; without rows where no experiment was run."""
    found = Section("Checks", [Column("check"), Column("value", numeric=True), Column("remark")])
    if level not in ("phase", "layer", "kernel", "op"):
        return found
    there = results.metrics()
    for name in OF_PARTS:
        if name in there:
            remarks = [reasons.flag(code) for code in there[name].flags]
            low, high = there[name].estimate.low, there[name].estimate.high
            if name in _ONE and low is not None and high is not None and not low <= 1 <= high:
                remarks.insert(0, "its interval misses 1")
            remark = "; ".join(remarks)
            found.rows.append([metric(name).label.strip(), figure(there[name].estimate, metric(name).unit), remark])
    for unit in results.units("group"):
        metrics = results.metrics(unit["id"])
        metric_of = "energy" if "energy_removed_j" in metrics and metrics["energy_removed_j"].estimate.value else "time"
        suffix = "j" if metric_of == "energy" else "s"
        whole, parts = (metrics.get(f"{metric_of}_{name}_{suffix}") for name in ("removed", "summed"))
        if whole is not None and parts is not None:
            removed, summed = (figure(one.estimate, {"j": "J", "s": "s"}[suffix]) for one in (whole, parts))
            said = f"sum of its operators {summed}" + (f"; {reasons.flags(whole.flags)}" if whole.flags else "")
            found.rows.append([f"{unit['name']} removed as a whole", removed, said])
    for name, label, missed in (
        (_SPIKE, "Spikes recovered", "spike_missed"),
        (_PAIR, "Pairs that add up", "not_additive"),
    ):
        figures = [results.metrics(unit["id"])[name] for unit in results.all() if name in results.metrics(unit["id"])]
        if figures:
            passed = sum(missed not in one.flags for one in figures)
            values = ", ".join(figure(one.estimate, "1") for one in figures)
            found.rows.append([label, f"{passed} of {len(figures)}", values])
    return found
