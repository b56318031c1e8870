"""Energy of a program by device: GPUs make the whole."""

import numpy as np
import pyarrow as pa
import pytest

from jouletrace.analysis import analyse
from jouletrace.run import ChannelInfo, DeviceInfo, Run, tables

S = 1_000_000_000


def program(devices):
    """Ten seconds of a program at steady power on each device (id, kind, watts)."""
    run = Run(kind="program", workload={"name": "train.py"})
    time = np.arange(-2 * S, 13 * S, S // 50)
    parts = []
    for id, kind, watts in devices:
        run.devices.append(DeviceInfo(id, id, kind))
        run.channels.append(
            ChannelInfo(device=id, name="power_w", unit="W", source="test", period_s=0.02, window_s=0.02, gapless=True)
        )
        columns = {"time_ns": time, "device": [id] * len(time), "channel": ["power_w"] * len(time)}
        parts.append(pa.table({**columns, "value": np.full(len(time), float(watts))}))
    run.samples = tables.conform(pa.concat_tables(parts), "samples")
    span = {"id": 0, "kind": "phase", "name": "program", "lane": "program", "device": devices[0][0]}
    run.spans = tables.from_rows([{**span, "start_ns": 0, "end_ns": 10 * S}], "spans")
    return analyse(run)


def figure(run, metric, name):
    unit = next(row["id"] for row in run.units.to_pylist() if row["name"] == name)
    return run.result(metric, unit)


def test_gpus_make_the_whole():
    run = program([("GPU-a", "gpu", 300), ("GPU-b", "gpu", 400)])
    assert run.result("energy_total_j").value == pytest.approx(7000, rel=0.01)
    assert figure(run, "share", "GPU-b").value == pytest.approx(4 / 7, rel=0.01)
