"""Counters over time: readings of sensors, cumulative energy, and hardware counters while kernels ran."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.analysis.kernel_counters import PERCENTAGES, shown_readings
from jouletrace.analysis.power import power_record
from jouletrace.analysis.waveform import waveform_of
from jouletrace.formats.exporters.timeline.tracks import Process, Spans, codes
from jouletrace.run import Run, tables
from jouletrace.run.channels import CHANNEL_UNITS, POWER
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


@dataclass(frozen=True)
class Counter:
    """A counter of a process: each value holds until the next.

    Attributes:
        process: ``Process.id``.
        name: Title of the counter.
        unit: Unit of its values, for readers; "" for a plain number.
        time_ns: Increasing stamps, shape (n,).
        value: Finite values, shape (n,).
        left_out: Number of readings that are not numbers.
    """

    process: int
    name: str
    unit: str
    time_ns: NDArray[np.int64]
    value: NDArray[np.float64]
    left_out: int = 0


def counters_of(run: Run, spans: Spans, processes: list[Process]) -> Iterator[Counter]:
    """All counters of a Run, process by process: power and energy first."""
    readings = _Readings(run)
    kernels = _Counted(run, spans)
    for process in processes:
        names = readings.channels(process.device)
        if POWER in names:
            yield readings.line(process, POWER)
            yield from _energy_so_far(run, process)
        yield from _inside_an_iteration(run, process)
        yield from kernels.lines(process)
        yield from (readings.line(process, name) for name in names if name != POWER)


class _Readings:
    """The ``samples`` table by device and channel."""

    def __init__(self, run: Run) -> None:
        table = tables.conform(run.samples, "samples")
        table = table.filter(pc.and_(pc.is_valid(table["time_ns"]), pc.is_valid(table["channel"])))
        devices, device = codes(table["device"])
        self._channels, channel = codes(table["channel"])
        group = device.astype(np.int64) * len(self._channels) + channel
        self._order = np.argsort(group, kind="stable")
        edges = np.flatnonzero(np.diff(group[self._order], prepend=-(2**62), append=2**62))
        self._place: dict[str | None, dict[str, slice]] = {}
        for first, last in pairwise(edges.tolist()):
            row = self._order[first]
            owner = devices[device[row]] if device[row] >= 0 else None
            self._place.setdefault(owner, {})[self._channels[channel[row]]] = slice(first, last)
        self._time, self._value = table["time_ns"].to_numpy(), table["value"].to_numpy()
        self._units = {(info.device, info.name): info.unit for info in run.channels}

    def channels(self, device: str | None) -> list[str]:
        """Channels of a device, in the order of ``CHANNEL_UNITS``, unknown ones last."""
        known = list(_NAMES)
        return sorted(self._place.get(device, {}), key=lambda name: known.index(name) if name in known else len(known))

    def line(self, process: Process, channel: str) -> Counter:
        """A channel with the sensor's stamps."""
        rows = self._order[self._place[process.device][channel]]
        rows = rows[np.argsort(self._time[rows], kind="stable")]
        unit = self._units.get((process.device or "", channel)) or CHANNEL_UNITS.get(channel, ("", ""))[0]
        time, value = self._time[rows], self._value[rows]
        good = np.isfinite(value)
        name = _NAMES.get(channel, channel)
        return Counter(process.id, name, _written(unit), time[good], value[good], int((~good).sum()))


def _energy_so_far(run: Run, process: Process) -> Iterator[Counter]:
    """Integral of the power record, without corrections, since its first reading."""
    found = power_record(run, process.device) if process.device is not None else None
    if found is None or len(found[0]) < 2:
        return
    record = found[0]
    holes = len(record.holes)
    name = f"Energy so far (bridging {holes} holes of the record)" if holes else "Energy so far"
    yield Counter(process.id, name, "J", record.time_ns, cumulative_energy(record.time_ns, record.value))


def _inside_an_iteration(run: Run, process: Process) -> Iterator[Counter]:
    """The waveform of the first device, above the kernels of its iteration; 0 elsewhere and where it is unknown."""
    found = waveform_of(run) if run.devices and process.device == run.devices[0].id else None
    if found is None:
        return
    edges = found.edges_ns[:-1][found.known], found.edges_ns[1:][found.known]
    line = steps(*edges, found.power_w[found.known])
    yield Counter(process.id, "Power inside an iteration", "W", *line, int((~found.known).sum()))


class _Counted:
    """Percentages of the ``counters`` table, with their spans."""

    def __init__(self, run: Run, spans: Spans) -> None:
        table = tables.conform(run.counters, "counters")
        self._spans = spans
        self._devices, self._device = codes(spans.table["device"])
        kind, value = shown_readings(table)
        row = pc.index_in(table["span"].combine_chunks(), value_set=spans.table["id"].combine_chunks())
        row = row.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        good = (kind >= 0) & (row >= 0)
        good[good] = spans.drawn[row[good]]
        # Both pages of ncu, and pages of two of its runs, contain the same values of a kernel: one of them is drawn.
        rows = np.flatnonzero(good)
        _, first = np.unique(row[rows] * len(PERCENTAGES) + kind[rows], return_index=True)
        rows = rows[np.sort(first)]
        self._row, self._kind, self._value = row[rows], kind[rows], value[rows]

    def lines(self, process: Process) -> Iterator[Counter]:
        """A counter for each percentage that a kernel of the process has."""
        if process.device is not None and process.device not in self._devices:
            return
        device = -1 if process.device is None else self._devices.index(process.device)
        mine = self._device[self._row] == device
        for i, (name, _, _) in enumerate(PERCENTAGES):
            chosen = mine & (self._kind == i)
            if chosen.any():
                rows = self._row[chosen]
                edges = self._spans.start_ns[rows], self._spans.end_ns[rows]
                yield Counter(process.id, name, "%", *steps(*edges, self._value[chosen]))


def steps(
    start_ns: NDArray[np.int64], end_ns: NDArray[np.int64], value: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """A counter of values that hold while their spans last, and 0 otherwise: increasing stamps, and values.

    Where spans overlap, the value of the last to start holds. A span without length has no effect.
    """
    n = len(start_ns)
    time = np.concatenate([end_ns, start_ns])
    order = np.lexsort((np.arange(2 * n), time)).tolist()  # at equal times ends come first
    running: dict[int, float] = {}
    stamps: list[int] = []
    values: list[float] = []
    for event in order:
        if event < n:
            running.pop(event, None)
        elif end_ns[event - n] > start_ns[event - n]:
            running[event - n] = float(value[event - n])
        now = next(reversed(running.values()), 0.0)
        at = int(time[event])
        if stamps and stamps[-1] == at:
            stamps.pop()
            values.pop()
        if (values[-1] if values else math.nan) != now:
            stamps.append(at)
            values.append(now)
    return np.array(stamps, np.int64), np.array(values)


def _written(unit: str) -> str:
    return {"Cel": "°C", "1": ""}.get(unit, unit)
