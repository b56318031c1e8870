"""Energy of the host beside GPUs: its CPU packages, its memory, and all of it by its power meter.

GPUs, packages and memory are added up. The power meter's is that of the whole machine, which they are parts of.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from jouletrace.analysis.iterations import of_variant
from jouletrace.analysis.power import TOO_SHORT, energies, readings, too_short
from jouletrace.arrays import Floats, Ints
from jouletrace.attribution.spans import shown_ns
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
    old = _OLD if run.kind == "program" and any(info.id not in _OLD for info in run.devices) else {}
    metrics = [
        HOST.get(channel.name) or (channel.name == ENERGY_COUNTER and old.get(channel.device))
        for channel in run.channels
    ]
    return [(channel, metric) for channel, metric in zip(run.channels, metrics, strict=True) if metric]


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
    meter = _meter(channel, time, value) if channel.unit == "W" else None
    shown = time[[0, -1]]
    if meter is not None:
        if (log := readings(meter, METHOD)) is None or len(log[0]) < 2:
            return Estimate.null("no_samples", METHOD)
        shown = shown_ns(*log)
    inside = np.clip(spans_ns, *shown)
    lasts_ns = np.diff(inside)[:, 0]
    share = float(lasts_ns.sum() / max(np.diff(spans_ns).sum(), 1))
    if share < _LEAST:
        return Estimate.null("outside_record", METHOD)
    inside = inside[lasts_ns > 0]
    whole = (_counted(time, value, inside) if meter is None else _averaged(meter, inside)).scaled(1 / share)
    return widened(whole, (1 - share) * (whole.value or 0.0)) if share < 1 else whole


def _counted(time_ns: Ints, joules: Floats, spans_ns: Ints) -> Estimate:
    """Energy of spans, (s, 2), by a counter: between two reads all that was counted may have been drawn at once."""
    if not np.ptp(joules):  # some virtual machines show counters that never count
        return Estimate.null("counter_stuck", METHOD)
    before, after = np.searchsorted(time_ns, spans_ns, side="right") - 1, np.searchsorted(time_ns, spans_ns)
    restarts = np.flatnonzero(np.diff(joules) < 0)[:, None]
    if np.any((restarts >= before[:, 0]) & (restarts < after[:, 1])):
        return Estimate.null("hole_in_record", METHOD)
    at = np.interp(spans_ns, time_ns, joules)
    low = np.maximum(joules[before[:, 1]] - joules[after[:, 0]], 0.0)
    high = joules[after[:, 1]] - joules[before[:, 0]]
    return Estimate(float(np.diff(at).sum()), float(low.sum()), float(high.sum()), 1, METHOD)


def _averaged(meter: Run, spans_ns: Ints) -> Estimate:
    """Energy of spans, (s, 2), by a power meter, which averages; its gain isn't in the interval."""
    if too_short(meter.channels[0].period_s or 0.0, 0, int(np.diff(spans_ns).sum())):
        return Estimate.null(TOO_SHORT, METHOD)
    return replace(energies(meter, METHOD, *spans_ns.T).estimate(method=METHOD), flags=(), budget={})


def _meter(channel: ChannelInfo, time_ns: Ints, watts: Floats) -> Run:
    """A power meter as the device of a Run, by which energies are determined."""
    columns = {"time_ns": time_ns, "device": [METHOD] * len(watts), "channel": [POWER] * len(watts), "value": watts}
    return Run(
        devices=[DeviceInfo(METHOD, "", "meter")],
        channels=[replace(channel, device=METHOD, name=POWER)],
        samples=tables.conform(pa.table(columns), "samples"),
    )
