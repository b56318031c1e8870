"""Energy of the host beside GPUs: its CPU packages, its memory, and all of it by its power meter.

GPUs, packages and memory are added up. The power meter's is that of the whole machine, which they are parts of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from jouletrace.analysis.iterations import of_variant
from jouletrace.analysis.power import energies, readings, too_short
from jouletrace.arrays import Floats, Ints
from jouletrace.run import MODEL_UNIT, ChannelInfo, DeviceInfo, Estimate, Run, tables
from jouletrace.run.channels import ENERGY_COUNTER, HOST, POWER
from jouletrace.run.estimate import widened
from jouletrace.run.figures import Figures
from jouletrace.run.metrics import ENERGY_CPU, ENERGY_MEMORY, GPUS_AND_HOST
from jouletrace.run.spans import spans_of
from jouletrace.stats.interval import total

METHOD = "host"

_LEAST = 0.5
"""Share of the time from which on a host's record states the energy of all of it."""

_GAP_NS = 1_000_000
"""Longest time between windows that are back to back."""

EnergyOf = Callable[[Ints], Estimate]
"""Energy in J of spans, (s, 2) in ns, within the record."""

_OLD = {"cpu": ENERGY_CPU, "dram": ENERGY_MEMORY}
"""Devices beside the GPUs of a program, in Runs of older versions."""


def add_host(run: Run, figures: Figures) -> None:
    """Add what the host took while the GPUs took theirs, as figures of the whole; nothing where it wasn't recorded."""
    channels, (spans_ns, count) = _channels(run), _spans(run)
    if not channels or not len(spans_ns):
        return
    for metric in dict.fromkeys(metric for _, metric in channels):
        each = [_energy(run, channel, spans_ns) for channel, of in channels if of == metric]  # of each host
        of_all = each[0] if len(each) == 1 else total(each)
        figures.add(MODEL_UNIT, metric, replace(of_all.scaled(1 / count), method=METHOD))
    parts = [metric for metric in (ENERGY_CPU, ENERGY_MEMORY) if figures.has(MODEL_UNIT, metric)]
    whole = total([_of_gpus(figures), *(figures.get(MODEL_UNIT, metric) for metric in parts)])
    if ENERGY_CPU in parts and whole.value is not None:
        figures.add(MODEL_UNIT, GPUS_AND_HOST, replace(whole, n=1, method=METHOD, flags=(), budget={}))


def _channels(run: Run) -> list[tuple[ChannelInfo, str]]:
    """The host's channels, each with the metric of its energy."""
    old = {info.id for info in run.devices if run.kind == "program" and info.kind == "cpu" and info.id in _OLD}
    beside = [channel for channel in run.channels if channel.device in old and channel.name == ENERGY_COUNTER]
    beside = beside if len(old) < len(run.devices) else []
    listed = ((channel, HOST.get(channel.name)) for channel in run.channels)
    return [(channel, metric) for channel, metric in listed if metric] + [(each, _OLD[each.device]) for each in beside]


def _spans(run: Run) -> tuple[Ints, float]:
    """Starts and ends of the time that the energy of the GPUs is of, in ns, (s, 2), and its iterations; 1 without."""
    if run.kind == "profile":
        windows = of_variant(run, "untouched")
        edges, count = ("start_ns", "end_ns"), float(np.nansum(windows["replays"].to_numpy()))
        each = np.stack([windows[name].to_numpy() for name in edges], axis=1)
        each = each[np.argsort(each[:, 0])]
        first = np.append(True, each[1:, 0] - each[:-1, 1] > _GAP_NS)[: len(each)]  # windows back to back are one span
        return np.stack([each[first, 0], each[np.append(first[1:], True)[: len(each)], 1]], axis=1), count or 1.0
    phases = spans_of(run, "phase").named("program" if run.kind == "program" else "monitor")
    start, end = phases.edges_ns
    return np.array([[start.min(), end.max()]] if len(start) else np.empty((0, 2)), np.int64), 1.0


def _of_gpus(figures: Figures) -> Estimate:
    """Their energy: of the whole, else that of all devices."""
    whole = figures.get(MODEL_UNIT, "energy_total_j")
    devices = [id for id, row in figures.units.rows.items() if row["level"] == "device"]
    return total([figures.get(id, "energy_total_j") for id in devices]) if whole.value is None and devices else whole


def _energy(run: Run, channel: ChannelInfo, spans_ns: Ints) -> Estimate:
    """Energy in J of the host's part that a channel is of; null where its record states too little of the time.

    A record that begins later, or ends earlier, leaves some of the time out, in which anything from nothing to twice
    the mean may have been drawn.
    """
    time, value = run.series(channel.device, channel.name)
    order = np.argsort(time, kind="stable")
    time, value = time[order], value[order]
    if len(time) < 2:
        return Estimate.null("no_samples", METHOD)
    energy_of, covers = (_averaged if channel.unit == "W" else _counted)(channel, time, value)
    inside = np.clip(spans_ns, *covers)
    lasts_ns = np.diff(inside)[:, 0]
    share = float(lasts_ns.sum() / max(np.diff(spans_ns).sum(), 1))
    if share < _LEAST:
        return Estimate.null("outside_record", METHOD)
    whole = energy_of(inside[lasts_ns > 0]).scaled(1 / share)
    return widened(whole, (1 - share) * (whole.value or 0.0)) if share < 1 else whole


def _counted(_: ChannelInfo, time_ns: Ints, joules: Floats) -> tuple[EnergyOf, Ints]:
    """By a counter: between two reads all that was counted may have been drawn at once."""

    def energy_of(spans_ns: Ints) -> Estimate:
        before, after = np.searchsorted(time_ns, spans_ns, side="right") - 1, np.searchsorted(time_ns, spans_ns)
        restarts = np.flatnonzero(np.diff(joules) < 0)[:, None]
        if np.any((restarts >= before[:, 0]) & (restarts < after[:, 1])):
            return Estimate.null("hole_in_record", METHOD)
        at = np.interp(spans_ns, time_ns, joules)
        low = np.maximum(joules[before[:, 1]] - joules[after[:, 0]], 0.0)
        high = joules[after[:, 1]] - joules[before[:, 0]]
        return Estimate(float(np.diff(at).sum()), float(low.sum()), float(high.sum()), 1, METHOD)

    return energy_of, time_ns[[0, -1]]


def _averaged(channel: ChannelInfo, time_ns: Ints, watts: Floats) -> tuple[EnergyOf, Ints]:
    """By a power meter, which averages; its gain isn't in the interval."""
    meter = Run(devices=[DeviceInfo("host", "", "meter")], channels=[replace(channel, device="host", name=POWER)])
    columns = {"time_ns": time_ns, "device": ["host"] * len(watts), "channel": [POWER] * len(watts), "value": watts}
    meter.samples = tables.conform(pa.table(columns), "samples")
    read = readings(meter, "host")
    if read is None or len(read[0]) < 2:
        return lambda _: Estimate.null("no_samples", METHOD), time_ns[[0, -1]]
    record, response = read

    def energy_of(spans_ns: Ints) -> Estimate:
        if too_short(response.period_s, 0, int(np.diff(spans_ns).sum())):
            return Estimate.null("sensor_too_slow", METHOD)
        return replace(energies(meter, "host", *spans_ns.T).estimate(method=METHOD), flags=(), budget={})

    edges_s = np.array([-0.5, 0.5]) * response.period_s - response.delay_s - response.middle_s
    return energy_of, record.time_ns[[0, -1]] + np.round(1e9 * edges_s).astype(np.int64)
