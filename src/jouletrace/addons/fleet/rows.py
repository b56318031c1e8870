"""What a fleet's report needs of a Run: facts, figures, and windows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.analysis.conditions import conditions
from jouletrace.analysis.windows import of_variant
from jouletrace.run import DeviceInfo, Run
from jouletrace.run.channels import POWER

Floats = NDArray[np.float64]

_MOST = 5000
"""Largest number of launches of an imported kernel that count as windows; of more, evenly spaced ones are taken."""

_THERMAL = ("sw_thermal", "hw_thermal")
_HARDWARE = ("hw_slowdown", "hw_thermal", "hw_power_brake")


@dataclass(frozen=True)
class Row:
    """A Run of a fleet.

    Attributes:
        facts: Its GPU and load: model, index, serial, limits, workload, noise.
        figures: Means while it ran, by name with unit; None where unknown. Shares lie within 0 and 1.
        time_s, energy_j: Of an iteration in each window, in order of time; energies may be NaN. Of an imported trace,
            times of the kernel that took longest.
    """

    facts: dict[str, Any]
    figures: dict[str, float | None]
    time_s: Floats
    energy_j: Floats


def row_of(run: Run) -> Row:
    """The row of an analysed profile, or of an imported trace."""
    facts, figures = _facts(run), _figures(run) | _conditions(run)
    launches = _launches(run) if run.kind == "import" else None
    if launches is not None:
        return _of_launches(run, launches, facts, figures)
    windows = of_variant(run, "untouched")
    replays = windows["replays"].to_numpy()
    time_s, energy_j = (
        windows[name].to_numpy(zero_copy_only=False).astype(np.float64) / replays for name in ("time_s", "energy_j")
    )
    return Row(facts, figures, time_s, energy_j)


def identity(device: DeviceInfo) -> str:
    """The identity of a GPU: its UUID, or the given name where an imported file contains no UUID."""
    return device.name if device.id.startswith("imported:") else device.id


def _facts(run: Run) -> dict[str, Any]:
    device, workload, own = run.devices[0], run.workload, run.settings.get("fleet", {})
    return {
        "placement": own.get("placement"),
        "noise": " ".join(own.get("noise", ())) or None,
        "noise_here": own.get("noise_here", False),
        "model": device.name,
        "index": device.index,
        "serial": device.serial,
        "pci_bus": device.pci_bus,
        "persistence": device.persistence,
        "power_limit_w": device.power_limit_w,
        "power_limits_w": device.power_limits_w,
        "workload": workload.get("name", ""),
        "dtype": workload.get("dtype"),
        "size": workload.get("size") or workload.get("size_mib"),
        "simulated": run.simulated,
    }


def _figures(run: Run) -> dict[str, float | None]:
    power = run.channel(run.devices[0].id, POWER)
    time_s = run.result("iteration_time_s").value
    return {
        "time_s": run.result("latency_s").value if time_s is None else time_s,
        "energy_j": run.result("energy_total_j").value,
        "power_w": run.result("power_w").value,
        "idle_w": run.result("baseline_deep_idle_w").value,
        "context_idle_w": run.result("baseline_context_idle_w").value,
        "gain_pct": power.gain_pct if power is not None else None,
    }


def _conditions(run: Run) -> dict[str, float | None]:
    found = conditions(run)
    clocks, heat, why = found["clocks_mhz"], found["temperature_c"], found["throttle_reasons"]
    reported, counted = clocks["sm_reported"], clocks["sm_measured"]

    def share(*names: str) -> float | None:
        return None if why is None else max(why.get(name, 0.0) for name in names)

    return {
        "clock_mhz": reported and reported["mean"],
        "counted_mhz": counted and counted["mean"],
        "temperature_c": heat and heat["mean"],
        "power_cap_share": share("sw_power_cap"),
        "thermal_share": share(*_THERMAL),
        "hardware_share": share(*_HARDWARE),
    }


def _launches(run: Run) -> pa.Table | None:
    """Launches of the kernel that took the most time, in order; None if the Run has no kernels."""
    spans = run.spans.filter(pc.equal(run.spans["kind"], "kernel")).select(["start_ns", "end_ns", "name"])
    if not len(spans):
        return None
    names = spans["name"].cast(pa.string())
    table = pa.table({"name": names, "ns": pc.subtract(spans["end_ns"], spans["start_ns"])})
    whole = table.group_by("name").aggregate([("ns", "sum")]).sort_by([("ns_sum", "descending")])
    found = spans.filter(pc.equal(names, whole["name"][0].as_py())).sort_by("start_ns")
    if len(found) > _MOST:
        found = found.take(pa.array(np.linspace(0, len(found) - 1, _MOST).astype(np.int64)))
    return found


def _of_launches(run: Run, launches: pa.Table, facts: dict[str, Any], figures: dict[str, float | None]) -> Row:
    starts, ends = (launches[name].to_numpy().astype(np.int64) for name in ("start_ns", "end_ns"))
    seconds = (ends - starts) / 1e9
    stamps, watts = run.series(run.devices[0].id, POWER)
    inside = watts[(stamps >= starts[0]) & (stamps <= ends[-1]) & np.isfinite(watts)]
    name = run.devices[0].name  # "Tesla V100 (2)" and "V100 2" are a Tesla V100 and a V100
    facts |= {"model": re.sub(r"[ #]+\(?\d+\)?$", "", name) or name, "workload": str(launches["name"][0].as_py())}
    figures |= {"time_s": float(seconds.mean()), "power_w": float(inside.mean()) if len(inside) else None}
    return Row(facts, figures, seconds, np.full(len(seconds), np.nan))
