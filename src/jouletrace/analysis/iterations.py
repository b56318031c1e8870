"""Iterations of a profile, by its windows: energy, time, clock and temperature of each, and what they share."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.analysis.latency import FIRST_TOKEN, median
from jouletrace.analysis.power import energies, join, power_record
from jouletrace.arrays import Floats, Indices, Ints
from jouletrace.attribution.spans import ALIASED_FROM, SpanEnergies
from jouletrace.run import Run, tables
from jouletrace.run.readings import ALIASED
from jouletrace.run.spans import spans_of

PHASE = "energy"
"""The phase in which windows are measured, after a ramp; its conditions count, or those of the whole Run without it."""

_GAP_NS = 1_000_000
"""Shorter than a sample of any sensor's: windows of a load that are so near are one row."""

Load = tuple[str, int | None]
"""Variant and unit of windows."""


class Solved(NamedTuple):
    """Energies of the windows of a load, and of rows of them: a swing hides less in a row than in each window."""

    table_rows: Indices  # in the table, shape (windows,)
    windows: SpanEnergies
    rows: SpanEnergies
    shifted: bool  # each window pauses in between: readings meet all phases (``profiler.passes.shifted``)

    def sources(self) -> dict[str, float]:
        """Relative standard uncertainties, by source, of all of its energy: windows that differ don't show them."""
        with_energy = self.rows.has_energy
        energy = float(np.sum(self.rows.energy_j[with_energy]))
        return {source: u / energy for source, u in self.rows.sources(with_energy).items()} if energy else {}

    @property
    def flags(self) -> list[str]:
        """Codes that qualify its energy."""
        # Phases of rows are as they fall: of a row alone it shows whether few are met
        hidden = 0.0 if self.shifted else max(map(self.rows.hidden, np.eye(len(self.rows))), default=0.0)
        return [*join(self.windows.flags), *([ALIASED] if hidden > ALIASED_FROM else [])]


def fill(run: Run, idle_w: float = 0.0) -> dict[Load, Solved]:
    """Compute ``energy_j``, ``time_s``, ``clock_mhz``, ``temperature_c`` and ``flags`` of every window.

    Pauses within a window, whose time isn't in a ``time_s`` that was recorded, are taken off at ``idle_w``.

    Returns:
        The energies of each load; none without a power record.
    """
    if len(run.windows) == 0:
        return {}
    device = run.devices[0].id if run.devices else ""
    start, end = run.windows["start_ns"].to_numpy(), run.windows["end_ns"].to_numpy()
    elapsed_s = (end - start) / 1e9
    time_s = np.where(np.isnan(recorded := run.windows["time_s"].to_numpy()), elapsed_s, recorded)
    every, edges = _loads(run), _rows(run)
    bursts, solved = bursts_of(run), dict[Load, Solved]()
    for load in dict.fromkeys(every) if power_record(run, device) is not None else ():
        rows = np.array([i for i, other in enumerate(every) if other == load])
        mine = edges[np.isin(edges[:, 2], rows), :2]
        spans = np.append(start[rows], mine[:, 0]), np.append(end[rows], mine[:, 1])
        period_s = _period_s(run, rows)
        spans_energies = energies(run, device, *spans, bursts, period_s)
        parts = np.split(np.arange(len(spans_energies)), [len(rows)])
        shifted = bool(np.median((elapsed_s - time_s)[rows]) > (period_s or np.inf) / 2)
        solved[load] = Solved(rows, spans_energies.some(parts[0]), spans_energies.some(parts[1]), shifted)
    columns = {name: run.windows[name] for name in run.windows.column_names}
    columns["time_s"] = pa.array(time_s)
    joules, codes = np.full(len(start), np.nan), np.full(len(start), None)
    for of_load in solved.values():
        joules[of_load.table_rows] = of_load.windows.energy_j - idle_w * (elapsed_s - time_s)[of_load.table_rows]
        both = zip(of_load.windows.flags, of_load.windows.reason, strict=True)
        codes[of_load.table_rows] = [",".join([*flags, *filter(None, [reason])]) or None for flags, reason in both]
    if solved:
        columns |= {"energy_j": pa.array(joules, from_pandas=True), "flags": pa.array(codes, pa.string())}
    for column, channel in (("clock_mhz", "clock_sm_mhz"), ("temperature_c", "temperature_c")):
        stamps, values = run.series(device, channel)
        inside = (values[(stamps >= a) & (stamps <= b)] for a, b in zip(start, end, strict=True))
        columns[column] = pa.array([float(np.mean(some)) if len(some) else None for some in inside], pa.float64())
    run.windows = tables.conform(pa.table(columns), "windows")
    return solved


def _loads(run: Run) -> list[Load]:
    """The load of each window."""
    return [(row["variant"], row["unit"]) for row in run.windows.select(["variant", "unit"]).to_pylist()]


def _rows(run: Run) -> Ints:
    """Starts and ends of rows of windows, and the place of each one's first in the table, shape (r, 3)."""
    start, end = run.windows["start_ns"].to_numpy(), run.windows["end_ns"].to_numpy()
    order, loads = np.argsort(start), _loads(run)
    other = np.array([loads[a] != loads[b] for a, b in pairwise(order.tolist())], bool)
    first = np.append(0, np.flatnonzero(other | (start[order[1:]] > end[order[:-1]] + _GAP_NS)) + 1)
    last = np.append(first[1:], len(start)) - 1
    return np.stack([start[order[first]], end[order[last]], order[first]], axis=1)


def bursts_of(run: Run) -> Ints:
    """From when to when the load of each row of windows ran, in ns, shape (b, 2).

    A load runs longer than its windows by ``beyond`` iterations, from where its ramp began, and until iterations that
    are timed directly after it end.
    """
    rows = _rows(run)
    replays, beyond = (pc.fill_null(run.windows[name], 0).to_numpy()[rows[:, 2]] for name in ("replays", "beyond"))
    length_ns = (run.windows["end_ns"].to_numpy() - run.windows["start_ns"].to_numpy())[rows[:, 2]]
    margin_ns = np.round(beyond / 2 * length_ns / np.maximum(replays, 1)).astype(np.int64)
    begun, ended = rows[:, 0] - margin_ns, rows[:, 1] + margin_ns
    for ramp in spans_of(run, "phase").named(PHASE).start_ns.tolist():
        following = np.searchsorted(begun, ramp)
        if following < len(begun) and (following == 0 or ended[following - 1] <= ramp):
            begun[following] = ramp
    for start_ns, end_ns in _timed(run):
        before = np.searchsorted(ended, start_ns, side="right") - 1
        if before >= 0 and start_ns <= ended[before] + _GAP_NS:
            ended[before] = end_ns
    return np.stack([begun, ended], axis=1)


def _timed(run: Run) -> list[tuple[int, int]]:
    """Start and end of each series of iterations that were timed one after the other, in ns."""
    spans = spans_of(run, "iteration")
    order = np.argsort(spans.start_ns)
    start, end = spans.start_ns[order], spans.end_ns[order]
    if not len(start):
        return []
    cuts = np.flatnonzero(start[1:] > end[:-1] + _GAP_NS) + 1
    return list(zip(start[np.append(0, cuts)].tolist(), end[np.append(cuts - 1, -1)].tolist(), strict=True))


def _period_s(run: Run, rows: Indices) -> float | None:
    """Seconds after which a load repeats itself: of an iteration, or of the steps that decode its tokens."""
    table = run.windows.take(rows)
    if not pc.fill_null(table["replays"], 0).to_numpy().all():
        return None
    seconds, decoded = _seconds(table), (run.workload.get("new_tokens") or 1) - 1
    first_s = median(run, FIRST_TOKEN).value
    return seconds if first_s is None or decoded < 2 else (seconds - first_s) / decoded


def _seconds(windows: pa.Table) -> float:
    """Seconds of a replay, the median of windows; NaN without any."""
    if not len(windows):
        return math.nan
    length_s = (windows["end_ns"].to_numpy() - windows["start_ns"].to_numpy()) / 1e9
    return float(np.median(length_s / windows["replays"].to_numpy()))


def of_variant(run: Run, variant: str) -> pa.Table:
    """The windows of one variant, in the order in which they ran."""
    return run.windows.filter(pc.equal(run.windows["variant"], variant)).sort_by("order")


def per_iteration(run: Run, column: str) -> tuple[Floats, Ints]:
    """A column of the untouched windows over their replays, and each window's block.

    Where the step flushes a cache, the flushes alone, measured right after, are taken off.
    Windows without a figure are left out.
    """
    (values,), block = together(run, column)
    return values, block


def together(run: Run, *columns: str) -> tuple[list[Floats], Ints]:
    """Several columns as ``per_iteration`` gives them, of the windows that have a figure in all of them."""
    untouched, flush = of_variant(run, "untouched"), of_variant(run, "flush")
    values = [_over_replays(untouched, column) for column in columns]
    if len(flush) == len(untouched) > 0:
        values = [value - _over_replays(flush, column) for value, column in zip(values, columns, strict=True)]
    whole = np.all([np.isfinite(value) for value in values], axis=0)
    return [value[whole] for value in values], pc.fill_null(untouched["block"], 0).to_numpy()[whole]


def powers(joules: Floats, seconds: Floats) -> Floats:
    """Powers, W, whose mean is that of energy over that of time, and whose scatter is that of this ratio."""
    watts, mean_s = np.nanmean(joules) / np.nanmean(seconds), np.nanmean(seconds)
    return np.asarray(watts + (joules - watts * seconds) / mean_s)


def by_run(values: Floats, block: Ints) -> list[Floats]:
    """Values of windows, those of each run."""
    return [values[block == number] for number in np.unique(block)]


def scatter(values: Floats, block: Ints) -> float | None:
    """Standard deviation of windows within their runs, pooled over these; None for fewer than three windows."""
    runs = by_run(values, block)
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
