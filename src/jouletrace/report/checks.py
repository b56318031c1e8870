"""How well parts make the whole, and how well the sensor behind them is understood."""

from __future__ import annotations

from jouletrace.report import reasons
from jouletrace.report.document import Column, Section
from jouletrace.report.results import Results, metric
from jouletrace.report.scale import figure

OF_PARTS = ("closure_layers", "closure_kernels", "closure_kernels_time", "residual_w", "sample_rate_hz")
"""Metrics of the model that say how far its parts can be trusted; listed under the parts."""

_ONE = ("closure_layers", "closure_kernels", "closure_kernels_time")
"""Metrics that should be 1."""


def section(results: Results, level: str) -> Section:
    """The checks as a table; without rows where no parts were distinguished."""
    found = Section("Checks", [Column("check"), Column("value", numeric=True), Column("remark")])
    if level not in ("phase", "layer", "kernel", "op"):
        return found
    there = results.metrics()
    for name in OF_PARTS:
        if name not in there or (name == "closure_layers" and "closure_kernels" in there):
            continue
        estimate = there[name].estimate
        remarks = [reasons.flag(code) for code in there[name].flags]
        if name in _ONE and estimate.low is not None and estimate.high is not None:
            remarks += [] if estimate.low <= 1 <= estimate.high else ["its interval misses 1"]
        found.rows.append([metric(name).label.strip(), figure(estimate, metric(name).unit), "; ".join(remarks)])
    return found
