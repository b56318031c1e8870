"""Filling the ``windows`` table from the samples: energy, time, clock and temperature of each."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.analysis.power import energies, mean_over
from jouletrace.run import Run, tables
from jouletrace.run.spans import spans_of
from jouletrace.sensor.windows.energy import WindowEnergies

Floats = NDArray[np.float64]

PHASE = "energy"
"""The phase in which windows are measured, after a ramp; its conditions count, or those of the whole Run without it."""


def fill(run: Run) -> WindowEnergies | None:
    """Compute ``energy_j``, ``time_s``, ``clock_mhz``, ``temperature_c`` and ``flags`` of every window.

    Returns:
        The energies with their uncertainties, in the order of the table; None without a power record.
    """
    if len(run.windows) == 0:
        return None
    device = run.devices[0].id if run.devices else ""
    start, end = run.windows["start_ns"].to_numpy(), run.windows["end_ns"].to_numpy()
    found = energies(run, device, start, end, _edges(run))
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
    return found


def _edges(run: Run) -> NDArray[np.int64]:
    """When the load changed: at the ends of windows, or of the runs that contain them, and where their ramps began.

    Without the latter a ramp would count as part of the idle time before, which fluctuates far less.
    """
    start, end = run.windows["start_ns"].to_numpy(), run.windows["end_ns"].to_numpy()
    replays, beyond = (pc.fill_null(run.windows[name], 0).to_numpy() for name in ("replays", "beyond"))
    margin_ns = np.round(beyond / 2 * (end - start) / np.maximum(replays, 1)).astype(np.int64)
    ramps = spans_of(run, "phase").named(PHASE).start_ns
    return np.concatenate([start - margin_ns, end + margin_ns, ramps])


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
