"""Means of seconds, with the lowest and the highest reading: what a long recording holds of all but its last hour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from jouletrace.arrays import Floats, Ints
from jouletrace.run import tables
from jouletrace.run.lazily import compute as pc
from jouletrace.run.model import Run

NS = 1_000_000_000

_STATES = ("energy_counter", "throttle_bits", "pstate")
"""Beginnings of names of channels of which the last reading of each second stays: they have no mean."""

_DIGITS, _OTHERS = 6, 4
"""Of a mean of power, 1 mW of 700 W, and of another channel: each digit is 0.4 bytes in a file."""

_MEANS = ("_active", "_occupancy", "_per_s")
"""Ends of names of channels of which each reading is a mean over 200 ms: what else they reached isn't known."""


def of_seconds(table: pa.Table, since_ns: int | Mapping[tuple[str, str], int], until_ns: int) -> list[pa.Table]:
    """Rows of ``samples`` and of ``extremes`` for the whole seconds from ``since_ns`` to ``until_ns``.

    A mean is stamped with the end of its second. It is that of time: each reading stands for the time since the one
    before, so that sums over seconds are those of the readings.

    Args:
        table: Readings, a ``samples`` table, those directly before and after these seconds included.
        since_ns: A whole second, or that of each device and channel, in ns since the Unix epoch.
        until_ns: Likewise; beyond the last reading it ends there.
    """
    table = table.filter(pc.is_finite(table["value"]))
    (device, devices), (channel, channels) = tables.decoded(table["device"]), tables.decoded(table["channel"])
    stamps, values = table["time_ns"].to_numpy(), table["value"].to_numpy()
    pair = device * max(len(channels), 1) + channel
    order = np.lexsort((stamps, pair))
    means: list[pa.Table] = []
    extremes: list[pa.Table] = []
    for rows in np.split(order, np.flatnonzero(np.diff(pair[order])) + 1) if len(order) else []:
        named = devices[device[rows[0]]], channels[channel[rows[0]]]
        since = since_ns if isinstance(since_ns, int) else since_ns.get(named, 0)
        time_ns, mean, low, high = _seconds(stamps[rows], values[rows], since, until_ns, named[1])
        means.append(_rows("samples", named, {"time_ns": time_ns, "value": mean}))
        apart = (low < high) & (not named[1].endswith(_MEANS))
        columns: dict[str, Ints | Floats] = {"time_ns": time_ns[apart], "low": low[apart], "high": high[apart]}
        extremes.append(_rows("extremes", named, columns))
    return [tables.concat(means, "samples"), tables.concat(extremes, "extremes")]


def _rows(name: str, named: tuple[str, str], columns: dict[str, Ints | Floats]) -> pa.Table:
    count = len(columns["time_ns"])
    texts = {
        column: pa.array([text], pa.string()).dictionary_encode().take(pa.array(np.zeros(count, np.int32)))
        for column, text in zip(("device", "channel"), named, strict=True)
    }
    return tables.conform(pa.table(columns | texts), name)


def _seconds(time_ns: Ints, value: Floats, since: int, until: int, channel: str) -> tuple[Ints, Floats, Floats, Floats]:
    """Stamps, means, lowest and highest readings of the seconds of one channel that have a reading; sorted by time."""
    ends = -(-time_ns // NS) * NS
    first, last = np.searchsorted(ends, since, side="right"), np.searchsorted(ends, until, side="right")
    starts = first + np.flatnonzero(np.diff(ends[first:last], prepend=since - NS))
    if not len(starts):
        return time_ns[:0], value[:0], value[:0], value[:0]
    final = np.append(starts[1:], last) - 1
    if channel.startswith(_STATES):
        return time_ns[final], value[final], value[final], value[final]
    low, high = (extreme.reduceat(value[:last], starts) for extreme in (np.minimum, np.maximum))
    second = ends[starts]
    begin, end = np.maximum(second - NS, time_ns[0]), np.minimum(second, time_ns[-1])
    sums = np.append(0.0, np.cumsum(value[1:] * (np.diff(time_ns) / 1e9)))
    at, begun, ended = ((edge - time_ns[0]) / 1e9 for edge in (time_ns, begin, end))
    width = ended - begun
    energy = np.interp(ended, at, sums) - np.interp(begun, at, sums)
    mean = np.where(width > 0, energy / np.where(width > 0, width, 1.0), value[final])
    digits = _DIGITS if channel.endswith("_w") else _OTHERS
    size = 10.0 ** (digits - 1 - np.floor(np.log10(np.maximum(np.abs(mean), 1e-12))))
    return end, np.round(mean * size) / size, low, high


def last_hour(run: Run) -> Run | None:
    """The Run with the readings of its last hour for ``samples``; None if these are there already."""

    def computed(table: pa.Table) -> Run:
        return replace(run, samples=table, recent=tables.empty("recent"), extremes=tables.empty("extremes"))

    return run.remember("recent", "run", computed) if len(run.recent) else None


def settle(run: Run) -> None:
    """Complete ``samples`` and ``extremes`` of a recording by those of ``recent``, readings that aren't thinned yet.

    Of a recording of an hour at most ``samples`` holds all readings, and ``recent`` none.
    """
    if not len(run.recent):
        return
    newest = run.samples.group_by(["device", "channel"], use_threads=False).aggregate([("time_ns", "max")])
    recorded = set(run.recent["channel"].unique().to_pylist())
    reached = {
        (row["device"], row["channel"]): -(-row["time_ns_max"] // NS) * NS
        for row in newest.to_pylist()
        if row["channel"] in recorded
    }
    if not reached:
        run.samples, run.recent = tables.concat([run.recent, run.samples], "samples"), tables.empty("recent")
        return
    last_ns = pc.max(run.recent["time_ns"]).as_py()
    samples, extremes = of_seconds(run.recent, reached, last_ns + NS)
    if not len(samples):  # as it was saved
        return
    run.samples = tables.concat([run.samples, samples], "samples")
    run.extremes = tables.concat([run.extremes, extremes], "extremes")
    run.recent = run.recent.filter(pc.greater(run.recent["time_ns"], max(reached.values())))
