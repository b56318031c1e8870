"""The rows of a fleet's report: one of each Run, as arrays in groups that can be compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.analysis.conditions import conditions
from jouletrace.analysis.iterations import of_variant
from jouletrace.arrays import Floats
from jouletrace.errors import BadInputError
from jouletrace.run import Run
from jouletrace.run.channels import POWER
from jouletrace.sensor.gain import gain_of
from jouletrace.wings.fleet.folder import ABOUT, Folder
from jouletrace.wings.fleet.plan import Key, Owner, gpu_names

_MOST = 5000
"""Largest number of launches of an imported kernel that count as windows; of more, evenly spaced ones are taken."""


@dataclass(frozen=True)
class FleetRow:
    """A Run as a fleet's report needs it.

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


def row_of(run: Run) -> FleetRow:
    """The row of an analysed profile, or of an imported trace."""
    facts, figures = _facts(run), _figures(run)
    launches = _launches(run) if run.kind == "import" else None
    if launches is not None:
        return _of_launches(run, launches, facts, figures)
    windows = of_variant(run, "untouched")
    replays = windows["replays"].to_numpy()
    time_s, energy_j = (
        windows[name].to_numpy(zero_copy_only=False).astype(np.float64) / replays for name in ("time_s", "energy_j")
    )
    return FleetRow(facts, figures, time_s, energy_j)


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
    time_s = run.result("iteration_time_s").value
    found = conditions(run)
    clocks, heat, why = found["clocks_mhz"], found["temperature_c"], found["throttle_reasons"]
    reported, counted = clocks["sm_reported"], clocks["sm_measured"]

    def share(*names: str) -> float | None:
        return None if why is None else max(why.get(name, 0.0) for name in names)

    return {
        "time_s": run.result("latency_s").value if time_s is None else time_s,
        "energy_j": run.result("energy_total_j").value,
        "power_w": run.result("power_w").value,
        "idle_w": run.result("baseline_deep_idle_w").value,
        "context_idle_w": run.result("baseline_context_idle_w").value,
        "gain_pct": 100 * (gain_of(run) or 0.0) or None,
        "clock_mhz": reported and reported["mean"],
        "counted_mhz": counted and counted["mean"],
        "temperature_c": heat and heat["mean"],
        "power_cap_share": share("sw_power_cap"),
        "thermal_share": share("sw_thermal", "hw_thermal"),
        "hardware_share": share("hw_slowdown", "hw_thermal", "hw_power_brake"),
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


def _of_launches(run: Run, launches: pa.Table, facts: dict[str, Any], figures: dict[str, float | None]) -> FleetRow:
    starts, ends = (launches[name].to_numpy().astype(np.int64) for name in ("start_ns", "end_ns"))
    seconds = (ends - starts) / 1e9
    device = run.devices[0].id
    (stamps, watts), channel = run.series(device, POWER), run.channel(device, POWER)
    watts = watts if channel is None else channel.drawn_w(watts)
    inside = watts[(stamps >= starts[0]) & (stamps <= ends[-1]) & np.isfinite(watts)]
    name = run.devices[0].name  # "Tesla V100 (2)" and "V100 2" are a Tesla V100 and a V100
    facts |= {"model": re.sub(r"[ #]+\(?\d+\)?$", "", name) or name, "workload": str(launches["name"][0].as_py())}
    figures |= {"time_s": float(seconds.mean()), "power_w": float(inside.mean()) if len(inside) else None}
    return FleetRow(facts, figures, seconds, np.full(len(seconds), np.nan))


_ALIKE = ("model", "power_limit_w", "workload", "dtype", "size", "placement", "noise", "simulated")
"""Properties that GPUs must share to be compared."""


@dataclass(frozen=True)
class Gpu:
    """A GPU: host, UUID, constant properties (``FleetRow.facts``), and a short name that is unique in the fleet."""

    node: str
    id: str
    facts: dict[str, Any]
    label: str


@dataclass
class Group:
    """GPUs that can be compared.

    Attributes:
        title: Description of the GPUs and their workload.
        facts: Their common properties.
        gpus: In the order of their codes.
        runs: Columns of the rows of runs: "gpu" and "node" are codes; figures are floats, NaN where missing.
        windows: Columns of windows: "gpu", "run" are codes, "time_s" and "energy_j" floats.
    """

    title: str
    facts: dict[str, Any]
    gpus: list[Gpu]
    runs: dict[str, NDArray[Any]]
    windows: dict[str, NDArray[Any]]

    def mean(self, name: str, code: int) -> float | None:
        """Mean of a figure over the runs of a GPU; None without values."""
        values = self.runs[name][self.runs["gpu"] == code]
        known = values[np.isfinite(values)]
        return float(known.mean()) if len(known) else None


@dataclass
class Fleet:
    """All results, the largest group first.

    Attributes:
        source: Their place.
        failures: Missing results, and why.
        damaged: A line for each file that can't be read.
        command: The command of ``fleet run``; "" for Runs from elsewhere.
        names: Names of GPUs by host and UUID, including requested GPUs without a result.
    """

    source: str
    groups: list[Group]
    failures: list[dict[str, Any]] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    command: str = ""
    names: dict[Owner, str] = field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        """True if any GPU is a simulated one."""
        return any(group.facts["simulated"] for group in self.groups)


def read_fleet(root: str | Path) -> Fleet:
    """The results in a folder of ``fleet run``.

    Raises:
        BadInputError: If there are none.
    """
    folder = Folder(root)
    about = folder.about()
    if about is None:
        raise BadInputError(f"no fleet in {root}: it contains no {ABOUT}")
    runs, damaged = folder.runs()
    failures = folder.failures()
    if not runs:
        reasons = list(dict.fromkeys([*(str(one["text"]) for one in failures), *damaged]))
        raise BadInputError(f"the fleet in {root} has no result yet{': ' + '; '.join(reasons[:3]) if reasons else ''}")
    asked = [
        (str(one["node"]), str(one["id"]), one.get("index") if one.get("number") is None else one["number"])
        for one in about["gpus"]
    ]
    found = fleet_of({str(path): run for path, run in runs.items()}, str(root), damaged, asked)
    found.failures, found.command = failures, str(about.get("command", ""))
    return found


def fleet_of(
    runs: Mapping[str, Run],
    source: str = "",
    damaged: Sequence[str] = (),
    asked: Sequence[tuple[str, str, int | None]] = (),
) -> Fleet:
    """Runs from anywhere, by their place, as a fleet: those of one device are its repeats, in order of time.

    ``damaged`` has a line for each file that couldn't be read; ``asked`` are host, UUID and place of GPUs that may have
    no result, to be named too.

    Raises:
        BadInputError: If none contains a measurement.
    """
    rows: dict[Key, FleetRow] = {}
    seen: Counter[str] = Counter()
    lines = list(damaged)
    for origin, run in sorted(runs.items(), key=lambda one: one[1].created_ns):
        row = row_of(run) if run.devices else None
        if row is None or row.figures["time_s"] is None:
            lines.append(f"{origin} has no time of an iteration: left out")
            continue
        if not run.complete:
            lines.append(f"{origin} did not end by itself: its figures rest on the data recorded until then")
        node = run.settings.get("fleet", {}).get("node") or run.devices[0].host or "host"
        device = run.devices[0]  # an imported file contains no UUID: its name is the identity
        gpu = device.name if device.id.startswith("imported:") else device.id
        rows[node, gpu, seen[gpu]] = row
        seen[gpu] += 1
    if not rows:
        why = "no Run here has a time of an iteration, which logs of power lack: nothing to compare"
        raise BadInputError(f"{why} ({'; '.join(lines)})")
    return of_rows(rows, source, lines, asked)


def of_rows(
    rows: Mapping[Key, FleetRow],
    source: str = "",
    damaged: Sequence[str] = (),
    asked: Sequence[tuple[str, str, int | None]] = (),
) -> Fleet:
    """A fleet of rows; arguments as for ``fleet_of``."""
    names = gpu_names([*asked, *((node, gpu, row.facts["index"]) for (node, gpu, _), row in rows.items())])
    kinds: dict[tuple[Any, ...], dict[Key, FleetRow]] = {}
    for key, row in rows.items():
        kinds.setdefault(tuple(row.facts[name] for name in _ALIKE), {})[key] = row
    groups = [_group(dict(zip(_ALIKE, kind, strict=True)), own, names) for kind, own in kinds.items()]
    return Fleet(source, sorted(groups, key=lambda group: -len(group.gpus)), damaged=list(damaged), names=names)


def _group(facts: dict[str, Any], rows: Mapping[Key, FleetRow], names: Mapping[Owner, str]) -> Group:
    last = {(node, gpu): row for (node, gpu, _), row in rows.items()}
    owners = sorted(last)
    hosts = sorted({node for node, _ in owners})
    code = {owner: n for n, owner in enumerate(owners)}
    gpus = [Gpu(*owner, facts=last[owner].facts, label=names[owner]) for owner in owners]
    own = list(rows.values())
    runs: dict[str, NDArray[Any]] = {
        "gpu": np.array([code[node, gpu] for node, gpu, _ in rows], np.int64),
        "node": np.array([hosts.index(node) for node, _, _ in rows], np.int64),
    }
    for name in own[0].figures:
        runs[name] = np.array([row.figures[name] for row in own], np.float64)  # None becomes NaN
    run = np.repeat(np.arange(len(own)), [len(row.time_s) for row in own])
    windows = {
        "run": run,
        "gpu": runs["gpu"][run],
        "time_s": np.concatenate([row.time_s for row in own]),
        "energy_j": np.concatenate([row.energy_j for row in own]),
    }
    return Group(_title(facts, len(gpus), len(hosts)), facts, gpus, runs, windows)


def _title(facts: dict[str, Any], gpus: int, nodes: int) -> str:
    size = f" {facts['size']}" if facts["size"] else ""
    how = {"together": "all at once", "in-turn": "one at a time"}.get(facts["placement"] or "", "")
    noise = f"beside {facts['noise']}" if facts["noise"] else ""
    if noise and facts["simulated"]:
        noise = f"noise {facts['noise']} isn't simulated: figures are without it"
    limit = f"limit {facts['power_limit_w']:g} W" if facts["power_limit_w"] else ""
    where = f"{gpus} × {facts['model']}" + (f" in {nodes} hosts" if nodes > 1 else "")
    return " · ".join(filter(None, [f"{facts['workload']}{size}", facts["dtype"] or "", where, limit, how, noise]))
