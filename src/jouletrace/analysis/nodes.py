"""Figures of the nodes that a runtime's own counters timed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.analysis.latency import mean
from jouletrace.arrays import Floats
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.figures import Figures
from jouletrace.stats.interval import percentile, ratio

LANE = "nodes"
METHOD = "runtime's counters"
REST_NAME = "between nodes"
"""Name of the unit for what of an iteration no node takes: the runtime itself, and what calls it."""


def has_nodes(run: Run) -> bool:
    """True if a runtime timed the nodes of the model."""
    return "nodes" in run.workload


def add_nodes(run: Run, figures: Figures) -> None:
    """Add the time of every node in an iteration, what is left between them, and how well they close.

    All are medians over iterations, as latency is: a processor is interrupted now and then. Where a runtime
    reports only means, they are means, compared with the mean latency.
    Counters slow a model down: ``perturbation`` is an iteration with them over the untouched one, and
    ``closure_kernels_time`` the nodes together over the untouched one. Energy isn't split over nodes.
    """
    rows: list[dict[str, Any]] = [
        row for row in run.units.to_pylist() if row["level"] == "op" and row["name"] != REST_NAME
    ]
    spans = run.spans.filter(pc.equal(run.spans["lane"], LANE))
    whole = spans.filter(pc.equal(spans["kind"], "iteration"))
    if not rows or not len(whole):
        return
    figures.units.keep(rows)
    seconds = _seconds(spans, whole, [row["id"] for row in rows])
    total = (whole["end_ns"].to_numpy() - whole["start_ns"].to_numpy()) / 1e9
    together = seconds.sum(axis=0)
    for row, of_node in zip(rows, seconds, strict=True):
        _add(figures, row["id"], of_node, total)
    _add(figures, figures.units.add("op", REST_NAME, count=1), total - together, total)
    mean_of = run.workload["nodes"].get("mean_of", 1)
    untouched = mean(run) if mean_of > 1 else figures.get(MODEL_UNIT, "latency_s")
    figures.add(MODEL_UNIT, "closure_kernels_time", ratio(percentile(together, 0.5, METHOD), untouched))
    figures.add(MODEL_UNIT, "perturbation", ratio(percentile(total, 0.5, METHOD), untouched))


def _add(figures: Figures, unit: int, seconds: Floats, total: Floats) -> None:
    time = percentile(seconds, 0.5, METHOD)
    figures.add(unit, "time_s", time)
    whole = float(np.median(total))
    figures.add(unit, "share", time.scaled(1 / whole) if whole > 0 else Estimate.null("empty_window", METHOD))


def _seconds(spans: pa.Table, whole: pa.Table, units: list[int]) -> Floats:
    """Seconds of each unit in each iteration, shape (units, iterations)."""
    seconds = np.zeros((len(units), len(whole)))
    executed = spans.filter(pc.equal(spans["kind"], "op"))
    number = {unit: i for i, unit in enumerate(units)}
    iteration = {id: k for k, id in enumerate(whole["id"].to_pylist())}
    rows = [number[unit] for unit in executed["unit"].to_pylist()]
    columns = [iteration[parent] for parent in executed["parent"].to_pylist()]
    np.add.at(seconds, (rows, columns), (executed["end_ns"].to_numpy() - executed["start_ns"].to_numpy()) / 1e9)
    return seconds
