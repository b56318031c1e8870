"""Kernels by name, from the spans of a trace: for Runs whose units contain no kernels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.run import Run

KINDS = ("kernel", "memcpy")


@dataclass(frozen=True)
class Traced:
    """All launches of one name on one device.

    Attributes:
        name: Name of the kernel or copy.
        kind: "kernel" or "memcpy".
        device: Name of the device.
        count: Launches in the trace.
        total_s, least_s, most_s: Seconds of all launches together, of the shortest, of the longest.
    """

    name: str
    kind: str
    device: str
    count: int
    total_s: float
    least_s: float
    most_s: float

    @property
    def mean_s(self) -> float:
        """Seconds of a launch."""
        return self.total_s / self.count


def by_name(run: Run) -> list[Traced]:
    """What ran on devices, by name, the most time first; empty without a trace."""
    timed = pc.and_(pc.is_valid(run.spans["start_ns"]), pc.is_valid(run.spans["end_ns"]))
    spans = run.spans.filter(pc.and_(pc.is_in(run.spans["kind"], pa.array(KINDS)), timed))
    names = device_names(run)
    found = []
    if not len(spans):
        return []
    seconds = (spans["end_ns"].to_numpy() - spans["start_ns"].to_numpy()) / 1e9
    columns = [spans[key].combine_chunks() for key in ("kind", "device", "name")]
    codes = np.zeros(len(spans), dtype=np.int64)
    for column in columns:
        index = column.indices.fill_null(len(column.dictionary)).to_numpy(zero_copy_only=False)
        codes = codes * (len(column.dictionary) + 1) + index
    _, first, inverse, counts = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
    totals = np.bincount(inverse, seconds)
    least, most = np.full(len(first), np.inf), np.zeros(len(first))
    np.minimum.at(least, inverse, seconds)
    np.maximum.at(most, inverse, seconds)
    for group, row in enumerate(first.tolist()):
        kind, device, name = (column[row].as_py() for column in columns)
        where = names.get(device, device or "")
        times = (float(totals[group]), float(least[group]), float(most[group]))
        found.append(Traced(str(name or "?"), kind, where, int(counts[group]), *times))
    return sorted(found, key=lambda traced: -traced.total_s)


def device_names(run: Run) -> dict[str, str]:
    """The title of each device, by id: its name, and its index where several share a name."""
    counts = Counter(device.name for device in run.devices)
    named = {}
    for device in run.devices:
        own = str(device.id) if device.index is None else str(device.index)
        named[device.id] = f"{own}: {device.name}" if counts[device.name] > 1 else device.name
    return named
