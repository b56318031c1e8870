"""Power inside one recorded iteration: the power of the kernels at each instant, in bins of about 0.1 ms."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.analysis.kernel_powers import KernelPowers, untouched
from jouletrace.arrays import Floats, Ints, Mask
from jouletrace.run import Run, tables

BIN_NS, BINS = 100_000, (50, 500)
"""Width of a bin, and how many an iteration has at least and at most."""

REST = 0.02
"""Largest share of kernels in a bin in which the GPU rests."""

MOST_W = 1e9
"""Beyond any power: what a damaged or foreign Run holds may be any number."""


@dataclass(frozen=True)
class Waveform:
    """The stored waveform of a Run, with the kernels of its iteration."""

    edges_ns: Ints  # of the bins, shape (n + 1,), rising
    # Mean power of each bin with its 95 % interval; NaN where it isn't known, shape (n,)
    power_w: Floats
    low_w: Floats
    high_w: Floats
    kernels: pa.Table  # rows of ``Run.activity`` that begin in the iteration, by start, with their columns

    @property
    def has_power(self) -> Mask:
        """Which bins have a power; shape (n,)."""
        return np.asarray(np.abs([self.power_w, self.low_w, self.high_w]).max(axis=0) < MOST_W)

    @property
    def energy_j(self) -> float:
        """Energy of the bins whose power is known."""
        return float(np.where(self.has_power, self.power_w, 0.0) @ np.diff(self.edges_ns) / 1e9)


def waveform_of(run: Run) -> Waveform | None:
    """The waveform that a Run holds; None without one."""
    table = run.waveform
    start, end = table["start_ns"].to_numpy(), table["end_ns"].to_numpy()
    if not 0 < len(table) <= BINS[1]:
        return None
    inside = pc.and_(pc.greater_equal(run.activity["start_ns"], start[0]), pc.less(run.activity["start_ns"], end[-1]))
    kernels = run.activity.filter(inside).sort_by("start_ns")
    power, low, high = (table[name].to_numpy() for name in ("power_w", "low_w", "high_w"))
    return Waveform(np.append(start, end[-1]), power, low, high, kernels)


def table_of(run: Run, powers: KernelPowers, iterations: int) -> pa.Table:
    """The waveform of a typical plain iteration, as a table; empty if the recording has none.

    A bin's power is known where the readings determine that of its kernels, or the GPU rests: what it draws then is
    known beforehand.
    """
    edges_ns = typical(run, iterations)
    if edges_ns is None:
        return tables.empty("waveform")
    edges = edges_of(*edges_ns)
    start, end = edges[:-1], edges[1:]
    energies = powers.recorded.rows(np.stack([start, end], axis=1)).energies
    bins = np.eye(energies.mean_j.shape[1])[1 : len(edges)]
    watts = [joules / ((end - start) / 1e9) for joules in energies.interval(bins)]
    seconds = powers.seconds((edges - powers.recorded.readings.origin_ns) / 1e9)
    resolved = [bool(busy[:-1].sum() < REST * busy.sum()) or powers.of_kinds.resolves(busy) for busy in seconds]
    columns = dict(zip(("power_w", "low_w", "high_w"), watts, strict=True))
    stated = {name: pa.array(values, mask=~np.array(resolved)) for name, values in columns.items()}
    return tables.conform(pa.table({"start_ns": start, "end_ns": end, **stated}), "waveform")


def typical(run: Run, iterations: int) -> tuple[int, int] | None:
    """Begin and end, since the Unix epoch, of the plain iteration of median length; None if none is whole.

    An iteration lasts from its first kernel to that of the next one, and is plain if nothing was repeated in it.
    It begins with the kernel of one call that runs equally often in each iteration.
    """
    activity = run.activity.sort_by("start_ns")
    start, unit = activity["start_ns"].to_numpy(), activity["unit"].to_numpy()
    site = pc.fill_null(activity["site"], -1).to_numpy()
    plain = untouched(activity)
    plain_rows = np.flatnonzero(plain)
    _, call = tables.distinct(unit[plain_rows] * (int(site.max(initial=0)) + 2) + site[plain_rows] + 1)
    count = np.bincount(call)
    regular = np.flatnonzero((count > 0) & (count % max(iterations, 1) == 0))
    if not len(regular):
        return None
    leading = call[np.argmax(np.isin(call, regular))]
    begins = plain_rows[call == leading][:: int(count[leading]) // max(iterations, 1)]
    repeated = np.append(0, np.cumsum(~plain))
    whole = [(int(start[a]), int(start[b])) for a, b in pairwise(begins.tolist()) if repeated[a] == repeated[b]]
    whole = sorted((edges for edges in whole if edges[1] > edges[0]), key=lambda edges: edges[1] - edges[0])
    return whole[len(whole) // 2] if whole else None


def edges_of(begin_ns: int, end_ns: int) -> Ints:
    """Edges of equal bins, to the nanosecond; shape (bins + 1,)."""
    length = end_ns - begin_ns
    bins = min(int(np.clip(round(length / BIN_NS), *BINS)), length)
    return begin_ns + np.rint(np.linspace(0, length, bins + 1)).astype(np.int64)
