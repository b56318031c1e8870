"""Finding stretches of time in a Run: phases by name."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.run import Run


def phase_edges(run: Run, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and ends (ns) of every phase of that name, in stored order; empty if there is none."""
    rows = run.spans.filter(pc.and_(pc.equal(run.spans["kind"], "phase"), pc.equal(run.spans["name"], name)))
    return rows["start_ns"].to_numpy().astype(np.int64), rows["end_ns"].to_numpy().astype(np.int64)


def device_phase_edges(run: Run, name: str, device: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """As ``phase_edges``, of one device's own phases where it has some: ranks begin and end at their own times."""
    rows = run.spans.filter(pc.and_(pc.equal(run.spans["kind"], "phase"), pc.equal(run.spans["name"], name)))
    own = rows.filter(pc.equal(rows["device"], device))
    rows = own if len(own) else rows
    return rows["start_ns"].to_numpy().astype(np.int64), rows["end_ns"].to_numpy().astype(np.int64)
