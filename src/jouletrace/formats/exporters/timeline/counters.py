"""Counters over time: readings of sensors, cumulative energy, and hardware counters while kernels ran."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.analysis.kernel_counters import PERCENTAGES, shown_readings
from jouletrace.analysis.power import power_record
from jouletrace.analysis.waveform import waveform_of
from jouletrace.arrays import Floats, Ints
from jouletrace.formats.exporters.timeline.tracks import DrawnSpans, TrackGroup
from jouletrace.run import Run, tables
from jouletrace.run.channel_file import ChannelFile
from jouletrace.run.channels import CHANNEL_UNITS, POWER
from jouletrace.run.model import SampleIndex, index_of
from jouletrace.sensor.power_record import cumulative_energy

_NAMES = {
    POWER: "Power",
    "power_average_w": "Power, long average",
    "power_instant_w": "Power, short average",
    "power_memory_w": "Power, memory",
    "energy_counter_j": "Energy counter",
    "clock_sm_mhz": "SM clock",
    "clock_memory_mhz": "Memory clock",
    "temperature_c": "Temperature",
    "temperature_memory_c": "Temperature, memory",
    "throttle_bits": "Throttle bits",
    "memory_used_bytes": "Memory used",
    "utilization_gpu_pct": "GPU utilization",
    "utilization_memory_pct": "Memory utilization",
    "pstate": "Performance state",
}
"""Titles of channels, in the order of the counters."""


class CounterTrack(NamedTuple):
    """A counter of a process: each value holds until the next.

    Attributes:
        process: ``TrackGroup.id``.
        name: Title of the counter, with the unit of its values.
        time_ns: Increasing stamps, shape (n,).
        value: Finite values, shape (n,).
        left_out: Number of readings that are not numbers.
    """

    process: int
    name: str
    time_ns: Ints
    value: Floats
    left_out: int = 0


def counters_of(run: Run, spans: DrawnSpans, processes: dict[str | None, TrackGroup]) -> Iterator[CounterTrack]:
    """All counters of a Run, process by process: power and energy first."""
    readings = index_of(run)
    kernels = list(_while_kernels_ran(run, spans, processes))
    for process in processes.values():
        channels = readings.channels(process.device)
        names = [*(name for name in _NAMES if name in channels), *(name for name in channels if name not in _NAMES)]
        lines = [_readings(run, readings, process, name) for name in names]
        if POWER in names:  # the first
            yield lines.pop(0)
            yield from _energy_so_far(run, process)
        yield from _inside_an_iteration(run, process)
        yield from (line for line in kernels if line.process == process.id)
        yield from lines


def _readings(run: Run, index: SampleIndex | ChannelFile, process: TrackGroup, channel: str) -> CounterTrack:
    """A channel with the sensor's stamps."""
    time, value = index.series(process.device, channel)
    order = np.argsort(time, kind="stable")
    order = order[np.isfinite(value[order])]
    info = run.channel(process.device or "", channel)
    value = value if info is None else info.drawn_w(value)
    unit = (info.unit if info else "") or CHANNEL_UNITS.get(channel, ("", ""))[0]
    unit = {"Cel": "°C", "1": ""}.get(unit, unit)
    name = _NAMES.get(channel, channel) + (f" ({unit})" if unit else "")
    return CounterTrack(process.id, name, time[order], value[order], len(value) - len(order))


def _energy_so_far(run: Run, process: TrackGroup) -> Iterator[CounterTrack]:
    """Integral of the power record, without corrections, since its first reading."""
    found = power_record(run, process.device) if process.device is not None else None
    if found is not None and len(found[0]) > 1:
        record = found[0]
        holes = f" (bridging {len(record.holes)} holes of the record)" if len(record.holes) else ""
        energy = cumulative_energy(record.time_ns, record.value)
        yield CounterTrack(process.id, f"Energy so far{holes} (J)", record.time_ns, energy)


def _inside_an_iteration(run: Run, process: TrackGroup) -> Iterator[CounterTrack]:
    """The waveform of the first device, above the kernels of its iteration; 0 elsewhere and where it is unknown."""
    found = waveform_of(run) if run.devices and process.device == run.devices[0].id else None
    if found is not None:
        edges = found.edges_ns[:-1][found.has_power], found.edges_ns[1:][found.has_power]
        line = _steps(*edges, found.power_w[found.has_power])
        yield CounterTrack(process.id, "Power inside an iteration (W)", *line, int((~found.has_power).sum()))


def _while_kernels_ran(run: Run, spans: DrawnSpans, processes: dict[str | None, TrackGroup]) -> Iterator[CounterTrack]:
    """A counter for each percentage of the ``counters`` table that a kernel of a process has."""
    counters = tables.conform(run.counters, "counters")
    row = counted_rows(counters, spans)
    kind, value = shown_readings(counters)
    rows = np.flatnonzero((kind >= 0) & (row >= 0))
    # Both pages of ncu, and pages of two of its runs, contain the same values of a kernel: one of them is drawn.
    rows = rows[np.sort(np.unique(row[rows] * len(PERCENTAGES) + kind[rows], return_index=True)[1])]
    kind, value, row = kind[rows], value[rows], row[rows]
    device, devices = tables.decoded(spans.table["device"].take(pa.array(row)))
    owner = np.array([processes[name].id for name in [*devices, None]], np.int64)[device]
    for process in sorted(set(owner.tolist())):
        for i, (name, _, _) in enumerate(PERCENTAGES):
            chosen = (owner == process) & (kind == i)
            if chosen.any():
                edges = spans.start_ns[row[chosen]], spans.end_ns[row[chosen]]
                yield CounterTrack(process, f"{name} (%)", *_steps(*edges, value[chosen]))


def counted_rows(counters: pa.Table, spans: DrawnSpans) -> Ints:
    """The row of the span of each hardware counter, -1 for a span that isn't drawn; shape (n,)."""
    if not len(counters):
        return np.empty(0, np.int64)
    row = pc.index_in(counters["span"].combine_chunks(), value_set=spans.table["id"].combine_chunks(), skip_nulls=True)
    return np.asarray(row.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


def _steps(start_ns: Ints, end_ns: Ints, value: Floats) -> tuple[Ints, Floats]:
    """A counter of values that hold while their spans last, and 0 otherwise: increasing stamps, and values.

    Where spans overlap, the value of the last to start holds. A span without length has no effect.
    """
    n, time = len(start_ns), np.concatenate([end_ns, start_ns])
    order = np.lexsort((np.arange(2 * n), time))  # at equal times ends come first
    held = np.zeros(2 * n)
    running: dict[int, float] = {}
    for i, event in enumerate(order.tolist()):
        if event < n:
            running.pop(event, None)
        elif end_ns[event - n] > start_ns[event - n]:
            running[event - n] = float(value[event - n])
        held[i] = next(reversed(running.values()), 0.0)
    time = time[order]
    last = np.append(time[1:] > time[:-1], True)[: 2 * n]
    time, held = time[last], held[last]
    new = np.append(True, held[1:] != held[:-1])[: len(held)]
    return time[new], held[new]
