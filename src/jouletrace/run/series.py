"""The ``samples`` table by device and channel: one pass assigns all rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.run import tables


class SampleIndex:
    """Rows of one ``samples`` table by device and channel, in stored order; rows without a stamp are left out.

    Args:
        table: The table; its values are not copied.
    """

    def __init__(self, table: pa.Table) -> None:
        table = tables.conform(table, "samples")
        device, devices = tables.decoded(table["device"])
        channel, channels = tables.decoded(table["channel"])
        group = device * len(channels) + channel
        group[(device < 0) | (channel < 0)] = -1
        if table["time_ns"].null_count:
            group[pc.is_null(table["time_ns"]).to_numpy()] = -1
        # NumPy sorts int16 by radix sort, in time proportional to the number of rows.
        kind = np.int16 if len(devices) * len(channels) < 2**15 else np.int64
        order = np.argsort(group.astype(kind), kind="stable")
        self._order = order.astype(np.int32) if len(order) < 2**31 else order
        number = np.arange(len(devices) * len(channels))
        self._places = np.searchsorted(group[order], np.append(number, len(number)))
        self._devices = {name: i for i, name in reversed(list(enumerate(devices)))}
        self._channels = {name: i for i, name in reversed(list(enumerate(channels)))}
        self._stamps = pc.fill_null(table["time_ns"], 0).to_numpy()
        self._values = table["value"].to_numpy()

    def series(self, device: str, channel: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Stamps and values of one channel; both empty if there is none."""
        first, second = self._devices.get(device), self._channels.get(channel)
        if first is None or second is None:
            return np.empty(0, np.int64), np.empty(0)
        group = first * len(self._channels) + second
        rows = self._order[self._places[group] : self._places[group + 1]]
        return self._stamps[rows], self._values[rows]
