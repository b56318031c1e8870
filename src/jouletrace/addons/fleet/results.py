"""The results of a fleet as arrays, from any source, in groups that can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from jouletrace.addons.fleet.dataset import ABOUT, Dataset, Key
from jouletrace.addons.fleet.imported import identity
from jouletrace.addons.fleet.names import Owner, gpu_names
from jouletrace.addons.fleet.plan import COLLECTIVE
from jouletrace.addons.fleet.rows import RUNS, WINDOWS, Measured, check_possible
from jouletrace.addons.fleet.store import open_store
from jouletrace.errors import BadInputError
from jouletrace.run import Run

_ALIKE = ("model", "power_limit_w", "workload", "dtype", "size", "placement", "noise", "simulated")
"""Properties that GPUs must share to be compared."""


@dataclass(frozen=True)
class Gpu:
    """Identity of a GPU.

    Attributes:
        node, id: Host and UUID.
        facts: Its constant properties from its rows: model, index, serial, pci_bus, limits, ...
        label: A short name, unique in the fleet (see ``names``).
    """

    node: str
    id: str
    facts: dict[str, Any]
    label: str


@dataclass
class Group:
    """GPUs that can be compared.

    Attributes:
        title: Description of the GPUs and their workload.
        facts: Their common properties, by the names of ``rows.RUNS``.
        gpus: In the order of their codes.
        runs: Columns of the rows of runs: "gpu" and "node" are codes; figures are floats, NaN where missing;
            "hot" is whether the GPU was not as cool as requested.
        windows: Columns of windows: "gpu", "run" are codes, "time_s" and "energy_j" floats.
    """

    title: str
    facts: dict[str, Any]
    gpus: list[Gpu]
    runs: dict[str, NDArray[Any]]
    windows: dict[str, NDArray[Any]]

    @property
    def shares_time(self) -> bool:
        """Whether all of them wait for one another in every call, so that their times are equal by construction."""
        return self.facts["workload"] == COLLECTIVE and len({gpu.node for gpu in self.gpus}) == 1


@dataclass
class Fleet:
    """All results.

    Attributes:
        source: Their place.
        groups: The largest first.
        failures: Missing results, and why.
        damaged: A line for each file that can't be read.
        about: Settings written by ``fleet run``; {} for Runs from elsewhere.
        names: Names of GPUs by host and UUID, including requested GPUs without a result.
    """

    source: str
    groups: list[Group]
    failures: list[dict[str, Any]] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    names: dict[Owner, str] = field(default_factory=dict)

    def name(self, node: str, gpu: str) -> str:
        """The name of a GPU: host and UUID if it has no other name."""
        return self.names.get((node, gpu)) or (f"{node}:{gpu}" if len({n for n, _ in self.names} | {node}) > 1 else gpu)

    @property
    def simulated(self) -> bool:
        """Whether any GPU is a simulated one."""
        return any(group.facts["simulated"] for group in self.groups)


def read_fleet(root: str | Path) -> Fleet:
    """The results at a place.

    Raises:
        BadInputError: If there are none.
    """
    dataset = Dataset(open_store(root))
    about = dataset.about()
    if about is None:
        raise BadInputError(f"no fleet in {root}: it contains no {ABOUT}")
    runs, damaged = dataset.read("runs")
    windows, more = dataset.read("windows", columns=("repeat", "time_s", "energy_j"))
    failures = dataset.failures()
    if not runs:
        reasons = list(dict.fromkeys(str(one.get("text")) for one in failures))
        raise BadInputError(f"the fleet in {root} has no result yet{': ' + '; '.join(reasons[:3]) if reasons else ''}")
    rows = {key: table.to_pylist()[0] for key, table in runs.items()}
    names = _names(rows, about["gpus"])
    damaged += [*more, *_bare(len(rows.keys() - windows.keys())), *dataset.cut_off()]
    return Fleet(str(root), _groups(rows, windows, names), failures, damaged, about, names)


def _names(rows: Mapping[Key, Mapping[str, Any]], asked: Sequence[Mapping[str, Any]] = ()) -> dict[Owner, str]:
    """Names of GPUs with results, and of requested GPUs."""
    known = [
        (str(one["node"]), str(one["id"]), one.get("index") if one.get("number") is None else one["number"])
        for one in asked
    ]
    return gpu_names([*known, *((node, gpu, row["index"]) for (node, gpu, _), row in rows.items())])


def _bare(n: int) -> list[str]:
    """A line on results whose windows are missing."""
    said = "1 result has" if n == 1 else f"{n} results have"
    return [f"{said} no readable windows: only their means are used"] if n else []


def fleet_of(
    runs: Sequence[Run], source: str = "", *, places: Sequence[str] = (), damaged: Sequence[str] = ()
) -> Fleet:
    """Runs from anywhere as a fleet: those of one device are its repeats, in order of time.

    Args:
        runs: The Runs.
        source: For ``Fleet.source``.
        places: Origin of each Run, to name those with missing content.
        damaged: A line for each file that couldn't be read.

    Raises:
        BadInputError: If one has no device, or none contains a measurement.
    """
    rows: dict[Key, dict[str, Any]] = {}
    windows: dict[Key, pa.Table] = {}
    seen: Counter[str] = Counter()
    lines = list(damaged)
    named = zip(runs, places or [run.workload.get("name") or run.kind for run in runs], strict=True)
    for run, origin in sorted(named, key=lambda one: one[0].created_ns):
        if not run.devices:
            raise BadInputError("a Run without a device can't belong to a fleet")
        gpu = identity(run.devices[0])
        found = Measured(run, repeat=seen[gpu])
        if found.row["time_s"] is None:
            lines.append(f"{origin} has no time of an iteration: left out")
            continue
        table = found.tables()["windows"].select(WINDOWS.names)
        try:
            check_possible(pa.Table.from_pylist([found.row], schema=RUNS))
            check_possible(table)
        except ValueError as error:
            lines.append(f"{origin} is implausible: {error}: left out")
            continue
        if not run.complete:
            lines.append(f"{origin} did not end by itself: its figures rest on the data recorded until then")
        key = run.devices[0].host or "host", gpu, seen[gpu]
        seen[gpu] += 1
        rows[key] = dict.fromkeys(RUNS.names) | found.row
        windows[key] = table
    if not rows:
        unread = f" ({'; '.join(damaged)})" if damaged else ""
        raise BadInputError(f"no Run here has a time of an iteration: nothing to compare{unread}")
    names = _names(rows)
    return Fleet(source, _groups(rows, windows, names), damaged=lines, names=names)


def _groups(
    rows: Mapping[Key, dict[str, Any]], windows: Mapping[Key, pa.Table], names: Mapping[Owner, str]
) -> list[Group]:
    kinds: dict[tuple[Any, ...], list[Key]] = {}
    for key, row in rows.items():
        kinds.setdefault(tuple(row[name] for name in _ALIKE), []).append(key)
    found = [
        _group(dict(zip(_ALIKE, kind, strict=True)), {key: rows[key] for key in keys}, windows, names)
        for kind, keys in kinds.items()
    ]
    return sorted(found, key=lambda group: -len(group.gpus))


def _group(
    facts: dict[str, Any],
    rows: Mapping[Key, dict[str, Any]],
    windows: Mapping[Key, pa.Table],
    names: Mapping[Owner, str],
) -> Group:
    last = {(node, gpu): row for (node, gpu, _), row in rows.items()}
    owners = sorted(last)
    hosts = sorted({node for node, _ in owners})
    code = {owner: n for n, owner in enumerate(owners)}
    gpus = [Gpu(*owner, facts=last[owner], label=names[owner]) for owner in owners]
    runs: dict[str, NDArray[Any]] = {
        "gpu": np.array([code[node, gpu] for node, gpu, _ in rows], np.int64),
        "node": np.array([hosts.index(node) for node, _, _ in rows], np.int64),
        "repeat": np.array([row["repeat"] for row in rows.values()], np.int64),
        "start_ns": np.array([row["start_ns"] or 0 for row in rows.values()], np.int64),
        "virtual_time": np.array([bool(row["virtual_time"]) for row in rows.values()]),
        "hot": np.array([row["cooled"] is False for row in rows.values()]),
    }
    for f in RUNS:
        if f.type == pa.float64():
            values = [np.nan if row[f.name] is None else row[f.name] for row in rows.values()]
            runs[f.name] = np.array(values, np.float64)
    own = [windows.get(key, WINDOWS.empty_table()) for key in rows]
    run = np.repeat(np.arange(len(own)), [len(table) for table in own])
    of_windows: dict[str, NDArray[Any]] = {"run": run, "gpu": runs["gpu"][run]}
    for name in ("time_s", "energy_j"):
        of_windows[name] = np.concatenate([table[name].to_numpy().astype(np.float64) for table in own])
    return Group(_title(facts, len(gpus), len(hosts)), facts, gpus, runs, of_windows)


def _title(facts: dict[str, Any], gpus: int, nodes: int) -> str:
    size = f" {facts['size']}" if facts["size"] else ""
    how = {"together": "all at once", "in-turn": "one at a time"}.get(facts["placement"] or "", "")
    noise = f"beside {facts['noise']}" if facts["noise"] else ""
    limit = f"limit {facts['power_limit_w']:g} W" if facts["power_limit_w"] else ""
    where = f"{gpus} × {facts['model']}" + (f" in {nodes} hosts" if nodes > 1 else "")
    return " · ".join(filter(None, [f"{facts['workload']}{size}", facts["dtype"] or "", where, limit, how, noise]))
