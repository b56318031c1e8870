"""Recordings of real GPUs in tests/data: readings, and the times at which the load changed.

tests/data/README.md describes each file.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jouletrace.sensor.stamps import Grid, find_grid, updates

FOLDER = Path(__file__).parent.parent / "tests" / "data"

RECORDS = ("h100_copies", "h100_squares", "h100_segments")
"""Recordings of the 20 ms record; the others are polled readings."""


@dataclass(frozen=True)
class Recording:
    """Readings of one power channel under a load that changed at known times."""

    channel: str  # which readings
    time_ns: NDArray[np.int64]  # their stamps, shape (n,)
    power_w: NDArray[np.float64]  # shape (n,)
    edge_ns: NDArray[np.int64]  # when the load changed, shape (m,)
    level: NDArray[np.int64]  # which load ran before, between and after the edges, shape (m + 1,)
    labels: tuple[str, ...]  # what each level is; 0 is rest

    @cached_property
    def grid(self) -> Grid:
        """The regular grid behind the stamps."""
        return find_grid(self.time_ns)

    @property
    def read_ns(self) -> NDArray[np.int64]:
        """When the readings of the record were taken: late ones at the half slot before their stamp."""
        if self.channel != "power_w":
            return self.time_ns
        return self.time_ns[0] + np.rint(self.grid.taken(2) * 1e9).astype(np.int64)

    @property
    def on_time(self) -> NDArray[np.bool_]:
        """Which stamps come within a quarter of a period of their slot: their time is beyond doubt."""
        return np.asarray(np.abs(self.grid.late_s) < self.grid.period_s / 4)

    def other_half(self) -> NDArray[np.bool_]:
        """Every other segment of a few edges: a fit to the rest is tested there."""
        pieces = np.searchsorted(self.edge_ns, self.time_ns) // (2 * len(self.labels))
        return np.asarray(pieces % 2 == 1)


def recording(name: str, channel: str = "power_w") -> Recording:
    """One channel of a file in ``tests/data``."""
    with np.load(FOLDER / f"{name}.npz") as data:
        if channel == "power_w":
            time, power = data["stamp_us"] * 1000, data["milliwatt"] / 1e3
        else:
            time, power = updates(data[f"{channel}_ns"], data[channel])
        labels = tuple(str(label) for label in data["labels"])
        return Recording(channel, time, power, data["edge_ns"], data["level"].astype(np.int64), labels)
