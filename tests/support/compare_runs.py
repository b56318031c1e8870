"""Runs to compare, built by hand or drawn by seed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from jouletrace.comparing.pairs import Comparison
from jouletrace.report.comparison import render
from jouletrace.run import DeviceInfo, Estimate, Run, tables
from make_runs import e, gpu, power_channel, result

MODEL = {"latency_s": 2e-3, "iteration_time_s": 2e-3, "power_w": 400.0, "energy_total_j": 0.8}


def thing(
    factor: float = 1.0,
    *,
    parts: dict[str, float] | None = None,
    device: DeviceInfo | None = None,
    level: str = "layer",
    within: float = 0.001,
    **workload: object,
) -> Run:
    """A profile whose energy and power are ``factor`` of the usual; parts by name and joules."""
    board = device or gpu()
    figures = {**MODEL, "power_w": 400.0 * factor, "energy_total_j": 0.8 * factor}
    rows = [result(0, name, e(value, 1.96 * within * value, 30)) for name, value in figures.items()]
    units: list[dict[str, object]] = [{"id": 0, "level": "model", "name": "thing"}]
    for i, (name, joules) in enumerate((parts or {}).items(), start=1):
        units.append({"id": i, "parent": 0, "level": level, "name": name, "module": name, "count": 1})
        rows.append(result(i, "energy_total_j", e(joules, abs(joules) * 0.02, 20, "removal")))
        rows.append(result(i, "time_s", e(joules / 400, abs(joules) / 400 * 0.02, 20, "removal")))
    run = Run(
        kind="profile",
        workload={
            "name": "thing",
            "task": "infer",
            "batch": 8,
            "items": 8,
            "dtype": "fp16",
            "mode": "graph",
            **workload,
        },
        devices=[board],
        channels=[power_channel(board.id)],
        created_ns=1,
    )
    run.units, run.results = tables.from_rows(units, "units"), tables.from_rows(rows, "results")
    return run


def stated(found: Comparison) -> dict[str, Any]:
    """A comparison as ``--json`` states it."""
    return json.loads(render(found, "json"))


def side(*factors: float, **keys: object) -> list[tuple[Run, str]]:
    """Runs of one thing with these energies."""
    return [(thing(factor, **keys), f"run {i}") for i, factor in enumerate(factors)]  # type: ignore[arg-type]


def noisy(rng: np.random.Generator, n: int = 3, more: float = 0.0, sd: float = 0.004, parts: int = 0):
    """Runs with a common deviation of each run, and noise of each part."""
    found = []
    for i in range(n):
        off = (1 + more) * (1 + rng.normal(0, sd))
        joules = {f"layer.{k}": 0.8 / parts * off * (1 + rng.normal(0, 0.02)) for k in range(parts)}
        found.append((thing(off, parts=joules), f"run {i}"))
    return found


def null_result(run: Run, metric: str, reason: str) -> Run:
    """The same run without one figure."""
    rows = [row for row in run.results.to_pylist() if row["metric"] != metric or row["unit"] != 0]
    run.results = tables.from_rows([*rows, result(0, metric, Estimate.null(reason))], "results")
    return run
