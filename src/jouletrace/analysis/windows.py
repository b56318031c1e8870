"""Filling the ``windows`` table from the samples: energy, time, clock and temperature of each."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.analysis.power import energies, mean_over
from jouletrace.attribution.spans import SpanEnergies
from jouletrace.run import Run, tables
from jouletrace.run.spans import spans_of

Floats = NDArray[np.float64]

PHASE = "energy"
"""The phase in which windows are measured, after a ramp; its conditions count, or those of the whole Run without it."""

_GAP_NS = 1_000_000
"""Shorter than a sample of any sensor's: windows so near are of one load."""


class Solved(NamedTuple):
    """Energies of windows, in the order of the table, and of those that follow each other, as one."""

    windows: SpanEnergies
    rows: SpanEnergies  # of r rows of windows: a swing hides less in a long row than in each of its windows
    row: NDArray[np.intp]  # shape (windows,): the row of each


def fill(run: Run) -> Solved | None:
    """Compute ``energy_j``, ``time_s``, ``clock_mhz``, ``temperature_c`` and ``flags`` of every window.

    Returns:
        The energies; None without a power record.
    """
    if len(run.windows) == 0:
        return None
    device = run.devices[0].id if run.devices else ""
    start, end = run.windows["start_ns"].to_numpy(), run.windows["end_ns"].to_numpy()
    row, first_ns, last_ns = _rows(run)
    edges, (bursts, ramps) = (np.append(start, first_ns), np.append(end, last_ns)), load_of(run)
    every = energies(run, device, *edges, bursts, _period_s(run), ramps)
    found = None if every is None else every.some(np.arange(len(start)))
    columns = {name: run.windows[name] for name in run.windows.column_names}
    columns["time_s"] = pa.array((end - start) / 1e9)
    if found is not None:
        columns["energy_j"] = pa.array(found.energy_j, from_pandas=True)
        codes = [
            ",".join([*flags, *([reason] if reason else [])]) or None
            for flags, reason in zip(found.flags, found.reason, strict=True)
        ]
        columns["flags"] = pa.array(codes, pa.string())
    for column, channel in (("clock_mhz", "clock_sm_mhz"), ("temperature_c", "temperature_c")):
        stamps, values = run.series(device, channel)
        means = [mean_over(stamps, values, int(a), int(b)) for a, b in zip(start, end, strict=True)]
        columns[column] = pa.array(means, pa.float64())
    run.windows = tables.conform(pa.table(columns), "windows")
    return None if every is None or found is None else Solved(found, every.some(np.arange(len(start), len(every))), row)


def _rows(run: Run) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
    """The row of each window, shape (windows,), and starts and ends of rows, shape (r,): windows of one load."""
    start, end = run.windows["start_ns"].to_numpy(), run.windows["end_ns"].to_numpy()
    order = np.argsort(start)
    loads = [(row["variant"], row["unit"]) for row in run.windows.select(["variant", "unit"]).to_pylist()]
    other = np.array([loads[a] != loads[b] for a, b in pairwise(order.tolist())], bool)
    first = np.append(0, np.flatnonzero(other | (start[order[1:]] > end[order[:-1]] + _GAP_NS)) + 1)
    row = np.empty(len(start), np.intp)
    row[order] = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(start))))
    return row, start[order[first]], end[order[np.append(first[1:], len(start)) - 1]]


def load_of(run: Run) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """From when to when the load of windows ran, shape (b, 2), and where its ramps began, shape (r,), in ns.

    Bursts are windows in a row, with what ran beside them: a load runs longer than its windows by ``beyond``
    iterations, and from where its ramp began.
    """
    ramps = spans_of(run, "phase").named(PHASE).start_ns
    start, end = run.windows["start_ns"].to_numpy(), run.windows["end_ns"].to_numpy()
    replays, beyond = (pc.fill_null(run.windows[name], 0).to_numpy() for name in ("replays", "beyond"))
    margin_ns = np.round(beyond / 2 * (end - start) / np.maximum(replays, 1)).astype(np.int64)
    begun, ended = np.sort(start - margin_ns), np.sort(end + margin_ns)
    apart = np.flatnonzero(begun[1:] > ended[:-1] + _GAP_NS) + 1
    begun, ended = begun[np.append(0, apart)], ended[np.append(apart - 1, -1)]
    for ramp in ramps.tolist():
        following = np.searchsorted(begun, ramp)
        if following < len(begun) and (following == 0 or ended[following - 1] <= ramp):
            begun[following] = ramp
    return np.stack([begun, ended], axis=1), ramps


def _period_s(run: Run) -> float | None:
    """Seconds of an iteration, if all windows are of one load and it repeats alike; else None."""
    loads = {(row["variant"], row["unit"]) for row in run.windows.select(["variant", "unit"]).to_pylist()}
    replays = pc.fill_null(run.windows["replays"], 0).to_numpy()
    seconds = (run.windows["end_ns"].to_numpy() - run.windows["start_ns"].to_numpy()) / 1e9
    return float(np.median(seconds / replays)) if len(loads) == 1 and replays.all() else None


def of_variant(run: Run, variant: str) -> pa.Table:
    """The windows of one variant, in the order in which they ran."""
    return run.windows.filter(pc.equal(run.windows["variant"], variant)).sort_by("order")


def per_iteration(run: Run, column: str) -> tuple[Floats, NDArray[np.int64]]:
    """A column of the untouched windows over their replays, and each window's block.

    Where the step flushes a cache, the flushes alone, measured right after, are taken off.
    Windows without a figure are left out.
    """
    (values,), block = together(run, column)
    return values, block


def together(run: Run, *columns: str) -> tuple[list[Floats], NDArray[np.int64]]:
    """Several columns as ``per_iteration`` gives them, of the windows that have a figure in all of them."""
    untouched, flush = of_variant(run, "untouched"), of_variant(run, "flush")
    values = [_over_replays(untouched, column) for column in columns]
    if len(flush) == len(untouched) > 0:
        values = [value - _over_replays(flush, column) for value, column in zip(values, columns, strict=True)]
    known = np.all([np.isfinite(value) for value in values], axis=0)
    return [value[known] for value in values], pc.fill_null(untouched["block"], 0).to_numpy()[known]


def scatter(values: Floats, block: NDArray[np.int64]) -> float | None:
    """Standard deviation of windows within their runs, pooled over these; None for fewer than three windows."""
    runs = [values[block == b] for b in np.unique(block)]
    freedom = len(values) - len(runs)
    squares = sum(float(np.sum((of_run - of_run.mean()) ** 2)) for of_run in runs)
    return math.sqrt(squares / freedom) if freedom > 0 and len(values) > 2 else None


def _over_replays(windows: pa.Table, column: str) -> Floats:
    """NaN where there is no figure."""
    values = windows[column].to_numpy().astype(np.float64)
    replays = pc.fill_null(windows["replays"], 0).to_numpy()
    return np.asarray(np.where(replays > 0, values / np.maximum(replays, 1), np.nan))


def energies_per_iteration(run: Run) -> Floats:
    """Joules per iteration of each untouched window so far; what the stopping rule looks at."""
    fill(run)
    return per_iteration(run, "energy_j")[0]
