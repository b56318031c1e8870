"""Hardware metrics over time of an nsys export (``--gpu-metrics-devices``) as samples."""

from __future__ import annotations

import numpy as np

from jouletrace.formats.importers.columns import Coded, block
from jouletrace.formats.importers.nsys.devices import Devices
from jouletrace.formats.importers.nsys.tables import Database
from jouletrace.run import ChannelInfo, Run


def add_metrics(run: Run, database: Database, devices: Devices, base_ns: int) -> int:
    """Add samples and channels with the tool's names of metrics; returns the number of samples."""
    columns = database.numbers("GPU_METRICS", ["timestamp", "typeId", "metricId", "value"], "ORDER BY rowid")
    n = len(columns["timestamp"])
    if n == 0:
        return 0
    names = {
        (kind, metric): str(name)
        for kind, metric, name in database.rows("TARGET_INFO_GPU_METRICS", ["typeId", "metricId", "metricName"])
    }
    key = columns["typeId"].astype(np.int64) * 4096 + columns["metricId"]
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    channels: dict[str, int] = {}
    ids: dict[str, int] = {}
    pairs = []
    for row in first:
        kind, metric = int(columns["typeId"][row]), int(columns["metricId"][row])
        name = names.get((kind, metric), f"metric {metric}")
        device = devices.gpu(kind & 0xFF)  # the rest of typeId encodes the kind of GPU
        if run.channel(device, name) is None:
            unit = "%" if "%" in name else ""
            run.channels.append(ChannelInfo(device, name, unit, f"nsys GPU metric {name!r}"))
        pairs.append((ids.setdefault(device, len(ids)), channels.setdefault(name, len(channels))))
    codes = np.array(pairs, np.int32)[inverse.reshape(-1)]
    run.samples = block(
        "samples",
        n,
        time_ns=columns["timestamp"] + base_ns,
        device=Coded(codes[:, 0], list(ids)),
        channel=Coded(codes[:, 1], list(channels)),
        value=columns["value"].astype(np.float64),
    )
    return n
