"""Hardware counters of kernels: the percentages that are shown, and figures of launches that have counters alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.arrays import Floats, Ints
from jouletrace.run import Estimate, Run, tables
from jouletrace.run.figures import Figures

METHOD = "counters"


_OF_PEAK = ".avg.pct_of_peak_sustained_elapsed"


class KernelCounter(NamedTuple):
    """A figure of a kernel by hardware counters.

    Attributes:
        title: Name of its line in a trace.
        metric: Its mean over launches, in ``results``.
        names: Names in the tools, in lower case: headings of ncu's details page, by age, and the metric of its raw page
            behind them. Only in percent, since a throughput in bytes per second has the same name.
    """

    title: str
    metric: str
    names: tuple[str, ...]


PERCENTAGES = (
    KernelCounter(
        "Memory",
        "memory_throughput_pct",
        ("memory throughput", "memory [%]", "sol memory", f"gpu__compute_memory_throughput{_OF_PEAK}"),
    ),
    KernelCounter(
        "Compute",
        "compute_throughput_pct",
        ("compute (sm) throughput", "compute (sm) [%]", "sm [%]", "sol sm", f"sm__throughput{_OF_PEAK}"),
    ),
    KernelCounter(
        "Theoretical occupancy",
        "theoretical_occupancy_pct",
        ("theoretical occupancy", "sm__maximum_warps_per_active_cycle_pct"),
    ),
    KernelCounter(
        "Achieved occupancy",
        "achieved_occupancy_pct",
        ("achieved occupancy", "achieved_occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active"),
    ),
)

_DURATION = KernelCounter("Duration", "time_mean_s", ("duration", "gpu__time_duration.sum", "gpu__time_duration.avg"))
"""The time of a launch."""


def shown_readings(counters: pa.Table, shown: Sequence[KernelCounter] = PERCENTAGES) -> tuple[Ints, Floats]:
    """Index in ``shown`` of each reading, -1 for all others, and its value in percent (a time: s); shape (n,) each."""
    (metric, metrics), (unit, units) = (tables.decoded(counters[column]) for column in ("metric", "value_unit"))
    index = {name: i for i, metric in enumerate(shown) for name in metric.names}
    kinds = np.array([index.get(name.lower(), -1) for name in [*metrics, ""]], np.int64)
    factor = np.array([[_factor(name, of) for of in [*units, ""]] for name in [*metrics, ""]])
    value = pc.fill_null(counters["value"], math.nan).to_numpy() * factor[metric, unit]
    return np.where(np.isfinite(value), kinds[metric], -1), value


def _factor(metric: str, unit: str) -> float:
    """The factor that turns a reading into a percentage, or a duration into s; NaN if it is another quantity."""
    if metric.lower() in _DURATION.names:
        return 1.0 if unit == "s" else math.nan
    if unit == "%" or (not unit and ("[%]" in metric or "pct" in metric)):
        return 1.0
    return 100.0 if metric.lower() == "achieved_occupancy" else math.nan  # nvprof's is a fraction


def add_kernels(run: Run, figures: Figures) -> None:
    """Add a unit for each name of kernels that have counters but no times, as ncu alone gives them.

    ``time_s`` is the sum of their durations as ncu measured them, one launch at a time at clocks of its own.
    """
    kernels = run.spans.filter(pc.and_(pc.equal(run.spans["kind"], "kernel"), pc.is_null(run.spans["start_ns"])))
    counters = run.counters
    at = pc.index_in(counters["span"].combine_chunks(), value_set=kernels["id"].combine_chunks())
    row = at.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    if not (row >= 0).any():
        return
    (name, names), (device, devices) = (tables.decoded(kernels[column]) for column in ("name", "device"))
    key = (name + 1) * (len(devices) + 1) + device + 1
    _, first, of, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    means = _means(run, row, of.reshape(-1), len(first))
    seconds = np.nan_to_num(means["time_mean_s"][0] * means["time_mean_s"][1])
    for k in np.lexsort((first, -seconds)):
        where = devices[device[first[k]]] if len(devices) > 1 and device[first[k]] >= 0 else None
        shown = names[name[first[k]]] if name[first[k]] >= 0 else ""
        unit = figures.units.add("kernel", shown, module=where, count=int(count[k]))
        whole = means["time_mean_s"][1][k] == count[k]  # a sum that lacks some would be wrong without a word
        total = Estimate(float(seconds[k]), n=int(count[k]), method=METHOD)
        figures.add(unit, "time_s", total if whole else Estimate.null("not_measured", METHOD))
        for metric, (mean, n) in means.items():
            if n[k]:
                figures.add(unit, metric, Estimate(float(mean[k]), n=int(n[k]), method=METHOD))


def _means(run: Run, row: Ints, unit: Ints, units: int) -> dict[str, tuple[Floats, Ints]]:
    """Mean of each metric that is shown over the launches of each unit, NaN where none has it, and their number.

    ``row`` is the launch of each counter, -1 for that of another span; ``unit`` that of each launch.
    """
    wanted = (_DURATION, *PERCENTAGES)
    kind, value = shown_readings(run.counters, wanted)
    means = {}
    for i, metric in enumerate(wanted):
        rows = np.flatnonzero((row >= 0) & (kind == i))
        _, once = np.unique(row[rows], return_index=True)  # both of ncu's pages, say, have it
        rows = rows[once]
        n = np.bincount(unit[row[rows]], minlength=units)
        total = np.bincount(unit[row[rows]], value[rows], minlength=units)
        means[metric.metric] = np.where(n > 0, total / np.maximum(n, 1), math.nan), n.astype(np.int64)
    return means
