"""Segments of a Run: its phases by name, and spans that a program marked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.run import Run

Edges = tuple[NDArray[np.int64], NDArray[np.int64]]


def phase_edges(run: Run, name: str) -> Edges:
    """Starts and ends (ns) of every phase of that name, in stored order; empty if there is none."""
    return _edges(_named(run, name))


def device_phase_edges(run: Run, name: str, device: str) -> Edges:
    """As ``phase_edges``, of one device's own phases where it has some: ranks begin and end at their own times."""
    rows = _named(run, name)
    own = rows.filter(pc.equal(rows["device"], device))
    return _edges(own if len(own) else rows)


def of_kind(run: Run, kind: str) -> pa.Table:
    """Name, device, lane and edges of the spans of a kind that have times, looked for once."""

    def found(spans: pa.Table) -> pa.Table:
        columns = spans.select(["name", "device", "lane", "start_ns", "end_ns"])
        return columns.filter(pc.and_(pc.equal(spans["kind"], kind), pc.is_valid(spans["start_ns"]))).combine_chunks()

    return run.remember("spans", ("of_kind", kind), found)


def _named(run: Run, name: str) -> pa.Table:
    rows = of_kind(run, "phase")
    return rows.filter(pc.equal(rows["name"], name))


def _edges(rows: pa.Table) -> Edges:
    return rows["start_ns"].to_numpy().astype(np.int64), rows["end_ns"].to_numpy().astype(np.int64)


Path = tuple[str, ...]
"""Names of ranges, from the outermost inwards."""


@dataclass(frozen=True)
class PathSpans:
    """All marked spans of one ``path``, in order of their start."""

    path: Path
    steps: bool  # whether they are steps
    # Times in ns, shape (n,)
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    lane: NDArray[np.int64]  # number of the thread of each, shape (n,)
    crossed: bool  # whether some overlap the range around them, or one within them, without being nested

    def __len__(self) -> int:
        return len(self.start)

    @property
    def seconds(self) -> NDArray[np.float64]:
        """How long each took, shape (n,)."""
        return np.asarray((self.end - self.start) / 1e9, np.float64)
