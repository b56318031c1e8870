"""Runs imported from other tools' traces, as runs of a fleet: their workload is the kernel that took longest."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.run import DeviceInfo, Run
from jouletrace.run.channels import POWER

_MOST = 5000
"""Largest number of launches that count as windows; of more, evenly spaced ones are taken."""


def kernel_launches(run: Run) -> pa.Table | None:
    """Launches of the kernel that took the most time, in order; None if the Run has no kernels.

    Columns "start_ns", "end_ns" and "name".
    """
    spans = run.spans.filter(pc.equal(run.spans["kind"], "kernel")).select(["start_ns", "end_ns", "name"])
    if not len(spans):
        return None
    names = spans["name"].cast(pa.string())
    table = pa.table({"name": names, "ns": pc.subtract(spans["end_ns"], spans["start_ns"])})
    whole = table.group_by("name").aggregate([("ns", "sum")]).sort_by([("ns_sum", "descending")])
    longest = whole["name"][0].as_py()
    found = spans.filter(pc.equal(names, longest)).sort_by("start_ns")
    if len(found) > _MOST:
        found = found.take(pa.array(np.linspace(0, len(found) - 1, _MOST).astype(np.int64)))
    return found


def identity(device: DeviceInfo) -> str:
    """The identity of an imported GPU: its UUID, or the given name where no file contains a UUID."""
    return device.name if device.id.startswith("imported:") else device.id


def model_of(device: DeviceInfo) -> str:
    """The name of a GPU without its number: "Tesla V100 (2)" and "V100 2" are a Tesla V100 and a V100."""
    return re.sub(r"[ #]+\(?\d+\)?$", "", device.name) or device.name


def kernel_figures(run: Run, launches: pa.Table) -> dict[str, Any]:
    """Mean and median time of a launch, its name, and mean power from the first launch to the last."""
    starts, ends = (launches[name].to_numpy().astype(np.int64) for name in ("start_ns", "end_ns"))
    seconds = (ends - starts) / 1e9
    stamps, watts = run.series(run.devices[0].id, POWER)
    inside = watts[(stamps >= starts[0]) & (stamps <= ends[-1]) & np.isfinite(watts)]
    return {
        "model": model_of(run.devices[0]),
        "workload": str(launches["name"][0].as_py()),
        "start_ns": int(starts[0]),
        "time_s": float(seconds.mean()),
        "latency_s": float(np.median(seconds)),
        "power_w": float(inside.mean()) if len(inside) else None,
    }
