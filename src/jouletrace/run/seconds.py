"""Means of seconds, with the lowest and the highest reading: what a long recording holds of all but its last hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from jouletrace.arrays import Floats, Ints
from jouletrace.run import tables
from jouletrace.run.model import Held, Run, derived, held, put

NS = 1_000_000_000

_STATES = ("energy_counter", "throttle_bits", "pstate")
"""Beginnings of names of channels of which the last reading of each second stays: they have no mean."""

_DIGITS, _OTHERS = 6, 4
"""Of a mean of power, 1 mW of 700 W, and of another channel: each digit is 0.4 bytes in a file."""

_MEANS = ("_active", "_occupancy", "_per_s")
"""Ends of names of channels of which each reading is a mean over 200 ms: what else they reached isn't known."""


def of_seconds(table: pa.Table, since_ns: int, until_ns: int) -> list[pa.Table]:
    """Rows of ``samples`` and of ``extremes`` for the whole seconds from ``since_ns`` to ``until_ns``.

    Args:
        table: Readings, a ``samples`` table, those directly before and after these seconds included.
        since_ns: A whole second, in ns since the Unix epoch.
        until_ns: Likewise; beyond the last reading it ends there.
    """
    (device, devices), (channel, channels) = tables.decoded(table["device"]), tables.decoded(table["channel"])
    stamps, values = table["time_ns"].to_numpy(), table["value"].to_numpy()
    pair = device * max(len(channels), 1) + channel
    order = np.argsort(pair, kind="stable")
    means: list[pa.Table] = []
    extremes: list[pa.Table] = []
    for rows in np.split(order, np.flatnonzero(np.diff(pair[order])) + 1) if len(order) else []:
        named = devices[device[rows[0]]], channels[channel[rows[0]]]
        mean, extreme = of_channel(named[1], stamps[rows], values[rows], since_ns, until_ns)
        means.append(rows_of("samples", named, mean))
        extremes.append(rows_of("extremes", named, extreme))
    return [tables.concat(means, "samples"), tables.concat(extremes, "extremes")]


Columns = dict[str, Any]


def of_channel(channel: str, time_ns: Ints, value: Floats, since_ns: int, until_ns: int) -> tuple[Columns, Columns]:
    """Columns of ``samples`` and of ``extremes`` for whole seconds of one channel, of readings in any order.

    A mean is stamped with the end of its second. It is that of time: each reading stands for the time since the one
    before, so that sums over seconds are those of the readings.
    """
    order = np.argsort(time_ns, kind="stable")
    order = order[np.isfinite(value[order])]
    ends_ns, mean, low, high = _seconds(time_ns[order], value[order], since_ns, until_ns, channel)
    apart = (low < high) & (not channel.endswith(_MEANS))
    extremes = {"time_ns": ends_ns[apart], "low": low[apart], "high": high[apart]}
    return {"time_ns": ends_ns, "value": mean}, extremes


def rows_of(name: str, named: tuple[str, str], columns: Mapping[str, Ints | Floats]) -> pa.Table:
    """Rows of one channel of a device as the table ``name``."""
    count = len(columns["time_ns"])
    texts = {
        column: pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([text], pa.string()))
        for column, text in zip(("device", "channel"), named, strict=True)
    }
    return tables.conform(pa.table({**columns, **texts}), name)


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

    def computed(there: Held) -> Run:
        hour = derived(run, recent=tables.empty("recent"), extremes=tables.empty("extremes"))
        put(hour, "samples", there)
        return hour

    return run.remember("recent", "run", computed) if len(held(run, "recent")) else None
