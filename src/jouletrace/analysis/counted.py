"""Hardware counters of kernels: the percentages that are shown, and figures of launches that have counters alone."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.analysis.figures import Figures
from jouletrace.run import MODEL_UNIT, Estimate, Run, tables

METHOD = "counters"


class Shown(NamedTuple):
    """A percentage of a kernel that is shown.

    Attributes:
        title: Name of its line in a trace.
        metric: Its mean over launches, in ``results``.
        names: Names in the tools, in lower case: headings of ncu's details page, by age, and the metric of its raw page
            behind them. Only in percent, since a throughput in bytes per second has the same name.
    """

    title: str
    metric: str
    names: tuple[str, ...]


SHOWN = (
    Shown(
        "Memory",
        "memory_throughput_pct",
        (
            "memory throughput",
            "memory [%]",
            "sol memory",
            "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
        ),
    ),
    Shown(
        "Compute",
        "compute_throughput_pct",
        (
            "compute (sm) throughput",
            "compute (sm) [%]",
            "sm [%]",
            "sol sm",
            "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        ),
    ),
    Shown(
        "Theoretical occupancy",
        "theoretical_occupancy_pct",
        ("theoretical occupancy", "sm__maximum_warps_per_active_cycle_pct"),
    ),
    Shown(
        "Achieved occupancy",
        "achieved_occupancy_pct",
        ("achieved occupancy", "achieved_occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active"),
    ),
)

_DURATION = ("duration", "gpu__time_duration.sum", "gpu__time_duration.avg")
"""Names of the time of a launch, in lower case."""


def to_percent(metric: str, unit: str) -> float:
    """The factor that turns a reading into a percentage; NaN if it is another quantity."""
    if unit == "%" or (not unit and ("[%]" in metric or "pct" in metric)):
        return 1.0
    return 100.0 if metric.lower() == "achieved_occupancy" else math.nan  # nvprof's is a fraction


def add_counted(run: Run, figures: Figures, free: int) -> int:
    """Add a unit for each name of kernels that have counters but no times, as ncu alone gives them; the next free id.

    ``time_s`` is the sum of their durations as ncu measured them, one launch at a time at clocks of its own.
    """
    kernels = run.spans.filter(pc.and_(pc.equal(run.spans["kind"], "kernel"), pc.is_null(run.spans["start_ns"])))
    counters = run.counters
    at = pc.index_in(counters["span"].combine_chunks(), value_set=kernels["id"].combine_chunks())
    row = at.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    if not (row >= 0).any():
        return free
    (name, names), (device, devices) = (tables.decoded(kernels[column]) for column in ("name", "device"))
    key = (name + 1) * (len(devices) + 1) + device + 1
    _, first, unit, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    means = _means(run, row, unit.reshape(-1), len(first))
    seconds = np.nan_to_num(means["time_mean_s"][0] * means["time_mean_s"][1])
    for k in np.lexsort((first, -seconds)):
        where = devices[device[first[k]]] if len(devices) > 1 and device[first[k]] >= 0 else None
        shown = names[name[first[k]]] if name[first[k]] >= 0 else ""
        figures.unit(free, "kernel", shown, MODEL_UNIT, module=where, count=int(count[k]))
        whole = means["time_mean_s"][1][k] == count[k]  # a sum that lacks some would be wrong without a word
        total = Estimate(float(seconds[k]), n=int(count[k]), method=METHOD)
        figures.add(free, "time_s", total if whole else Estimate.null("not_measured", METHOD))
        for metric, (mean, n) in means.items():
            if n[k]:
                figures.add(free, metric, Estimate(float(mean[k]), n=int(n[k]), method=METHOD))
        free += 1
    return free


def _means(
    run: Run, row: NDArray[np.int64], unit: NDArray[np.int64], units: int
) -> dict[str, tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Mean of each metric that is shown over the launches of each unit, NaN where none has it, and their number.

    ``row`` is the launch of each counter, -1 for that of another span; ``unit`` that of each launch.
    """
    (code, metrics), (of, value_units) = (tables.decoded(run.counters[column]) for column in ("metric", "value_unit"))
    value = pc.fill_null(run.counters["value"], math.nan).to_numpy()
    wanted: dict[str, tuple[str, ...]] = {"time_mean_s": _DURATION} | {one.metric: one.names for one in SHOWN}
    found = {}
    for metric, names in wanted.items():
        factor = np.full((len(metrics) + 1, len(value_units) + 1), math.nan)
        for i, text in enumerate(metrics):
            for j, printed in enumerate([*value_units, ""]):
                if text.lower() in names:
                    seconds = 1.0 if printed == "s" else math.nan
                    factor[i, j] = seconds if metric == "time_mean_s" else to_percent(text, printed)
        scaled = value * factor[code, of]
        rows = np.flatnonzero((row >= 0) & np.isfinite(scaled))
        _, once = np.unique(row[rows], return_index=True)  # both of ncu's pages, say, have it
        rows = rows[once]
        n = np.bincount(unit[row[rows]], minlength=units)
        total = np.bincount(unit[row[rows]], scaled[rows], minlength=units)
        found[metric] = np.where(n > 0, total / np.maximum(n, 1), math.nan), n.astype(np.int64)
    return found
