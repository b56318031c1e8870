"""The results of a fleet as arrays, whatever they were read from, in groups that can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from jouletrace.addons.fleet.dataset import ABOUT, Dataset
from jouletrace.addons.fleet.imported import identity
from jouletrace.addons.fleet.names import Owner, gpu_names
from jouletrace.addons.fleet.plan import COLLECTIVE
from jouletrace.addons.fleet.rows import RUNS, WINDOWS, Measured, check_possible
from jouletrace.addons.fleet.store import open_store
from jouletrace.errors import BadInputError
from jouletrace.run import Run

Floats = NDArray[np.float64]

_ALIKE = ("model", "power_limit_w", "workload", "dtype", "size", "placement", "noise", "simulated")
"""What GPUs must have in common to be compared."""


@dataclass(frozen=True)
class Gpu:
    """Who a GPU is.

    Attributes:
        node, id: Host and UUID.
        facts: What its rows say of it and doesn't change: model, index, serial, pci_bus, limits, ...
        label: A short name that no other has in the fleet (see ``names``).
    """

    node: str
    id: str
    facts: dict[str, Any]
    label: str


@dataclass
class Group:
    """GPUs that can be held against one another.

    Attributes:
        title: What they are and did.
        facts: What they have in common, by the names of ``rows.RUNS``.
        gpus: In the order of their codes.
        runs: Columns of the rows of runs: "gpu" and "node" are codes; figures are floats, NaN where there is none;
            "hot" is whether the board was not as cool as asked for.
        windows: Columns of windows: "gpu", "run" are codes, "time_s" and "energy_j" floats.
    """

    title: str
    facts: dict[str, Any]
    gpus: list[Gpu]
    runs: dict[str, NDArray[Any]]
    windows: dict[str, NDArray[Any]]

    @property
    def shares_time(self) -> bool:
        """Whether all of them wait for one another in every call, so that their times are the same by construction."""
        return self.facts["workload"] == COLLECTIVE and len({gpu.node for gpu in self.gpus}) == 1


@dataclass
class Fleet:
    """All that was found.

    Attributes:
        source: Where.
        groups: The largest first.
        failures: What has no result, and why.
        damaged: Files that can't be read, a line each.
        about: What ``fleet run`` wrote down; {} for Runs from elsewhere.
        names: What GPUs are called, by host and UUID: those without a result too, where they were asked for.
    """

    source: str
    groups: list[Group]
    failures: list[dict[str, Any]] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    names: dict[Owner, str] = field(default_factory=dict)

    def name(self, node: str, gpu: str) -> str:
        """What a GPU is called: by its host and UUID if nothing else is known of it."""
        return self.names.get((node, gpu)) or (f"{node}:{gpu}" if len({n for n, _ in self.names} | {node}) > 1 else gpu)

    @property
    def simulated(self) -> bool:
        """Whether any board is a simulated one."""
        return any(group.facts["simulated"] for group in self.groups)


def read_fleet(root: str | Path) -> Fleet:
    """The results at a place.

    Raises:
        BadInputError: If there are none.
    """
    dataset = Dataset(open_store(root))
    about = dataset.about()
    if about is None:
        raise BadInputError(f"no fleet in {root}: it holds no {ABOUT}")
    runs, damaged = dataset.read("runs")
    windows, more = dataset.read("windows", columns=("repeat", "time_s", "energy_j"))
    failures = dataset.failures()
    if not len(runs):
        reasons = list(dict.fromkeys(str(one.get("text")) for one in failures))
        raise BadInputError(f"the fleet in {root} has no result yet{': ' + '; '.join(reasons[:3]) if reasons else ''}")
    names = _names(runs, [one for one in about.get("gpus") or [] if isinstance(one, dict)])
    groups = _groups(runs, windows, names)
    damaged += [*more, *_bare(runs, windows), *dataset.cut_off()]
    return Fleet(str(root), groups, failures, damaged, about, names)


def _names(runs: pa.Table, asked: Sequence[dict[str, Any]] = ()) -> dict[Owner, str]:
    """Of GPUs with results, and of those that were asked for."""
    there = [one for one in asked if {"node", "id"} <= one.keys()]
    places = [one.get("index") if one.get("number") is None else one["number"] for one in there]
    known = [(str(one["node"]), str(one["id"]), place) for one, place in zip(there, places, strict=True)]
    measured = zip(*(runs[name].to_pylist() for name in ("node", "gpu", "index")), strict=True)
    return gpu_names([*known, *measured])


def _bare(runs: pa.Table, windows: pa.Table) -> list[str]:
    """A line on results whose windows are gone: they count in the means, and tell nothing of noise."""
    with_windows = set(_owners(windows)[0])
    keys = zip(*(runs[name].to_pylist() for name in ("node", "gpu", "repeat")), strict=True)
    bare = sum(key not in with_windows for key in keys)
    said = "1 result has" if bare == 1 else f"{bare} results have"
    return [f"{said} no windows that can be read: only their means count"] if bare else []


def fleet_of(
    runs: Sequence[Run], source: str = "", *, places: Sequence[str] = (), damaged: Sequence[str] = ()
) -> Fleet:
    """Runs from anywhere as a fleet: those of one device are its repeats, in the order of their times.

    Args:
        runs: The Runs.
        source: For ``Fleet.source``.
        places: Where each Run is from, to name those that tell less than they might.
        damaged: A line for each file that couldn't be read.

    Raises:
        BadInputError: If one has no device, or nothing was measured in any.
    """
    rows: list[dict[str, Any]] = []
    windows: list[pa.Table] = []
    seen: dict[str, int] = {}
    lines = list(damaged)
    named = zip(runs, places or [str(run.workload.get("name") or run.kind) for run in runs], strict=True)
    for run, origin in sorted(named, key=lambda one: one[0].created_ns):
        if not run.devices:
            raise BadInputError("a Run without a device belongs to no fleet")
        device = run.devices[0]
        gpu = identity(device)
        found = Measured(run, repeat=seen.get(gpu, 0))
        if found.row["time_s"] is None:
            lines.append(f"{origin} has no time of an iteration: left out")
            continue
        table = found.tables()["windows"].select(WINDOWS.names)
        try:
            check_possible(pa.Table.from_pylist([found.row], schema=RUNS))
            check_possible(table)
        except ValueError as error:
            lines.append(f"{origin} can't be right: {error}: left out")
            continue
        if not run.complete:
            lines.append(f"{origin} did not end by itself: its figures rest on what was recorded until then")
        seen[gpu] = seen.get(gpu, 0) + 1
        place = {"node": device.host or "host", "gpu": gpu}
        rows.append({**place, **found.row})
        for name, value in reversed(place.items()):
            table = table.add_column(0, name, pa.array([value] * len(table), pa.string()))
        windows.append(table)
    if not rows:
        unread = f" ({'; '.join(damaged)})" if damaged else ""
        raise BadInputError(f"no Run here has a time of an iteration: nothing to compare{unread}")
    schema = pa.schema([pa.field("node", pa.string()), pa.field("gpu", pa.string()), *RUNS])
    table = pa.Table.from_pylist(rows, schema=schema)
    names = _names(table)
    return Fleet(source, _groups(table, pa.concat_tables(windows), names), damaged=lines, names=names)


def _groups(runs: pa.Table, windows: pa.Table, names: Mapping[Owner, str]) -> list[Group]:
    rows = runs.to_pylist()
    kinds = [tuple(row.get(name) for name in _ALIKE) for row in rows]
    run_keys = [(row["node"], row["gpu"], row["repeat"]) for row in rows]
    place = {key: i for i, key in enumerate(run_keys)}
    distinct, which = _owners(windows)
    of_run = np.array([place.get(key, -1) for key in distinct], np.int64)[which]
    values = {name: windows[name].to_numpy().astype(np.float64) for name in ("time_s", "energy_j")}
    found = []
    for kind in dict.fromkeys(kinds):
        index = np.array([i for i, own in enumerate(kinds) if own == kind], np.int64)
        facts = dict(zip(_ALIKE, kind, strict=True))
        found.append(_group(facts, [rows[i] for i in index], index, of_run, values, names))
    return sorted(found, key=lambda group: -len(group.gpus))


def _owners(windows: pa.Table) -> tuple[list[tuple[str, str, int]], NDArray[np.int64]]:
    """Node, GPU and repeat that occur, and which of these each row has: there are many rows of few."""
    if not len(windows):
        return [], np.zeros(0, np.int64)
    columns = []
    for name in ("node", "gpu"):
        column = windows[name].combine_chunks()
        columns.append(column if pa.types.is_dictionary(column.type) else column.dictionary_encode())
    repeat = windows["repeat"].to_numpy()
    node, gpu = (column.indices.to_numpy().astype(np.int64) for column in columns)
    many, most = len(columns[1].dictionary), int(repeat.max()) + 1
    codes, which = np.unique((node * many + gpu) * most + repeat, return_inverse=True)
    names = [column.dictionary.to_pylist() for column in columns]
    found = [(names[0][c // most // many], names[1][c // most % many], c % most) for c in codes.tolist()]
    return found, np.asarray(which, np.int64)


def _group(
    facts: dict[str, Any],
    rows: list[dict[str, Any]],
    index: NDArray[np.int64],
    of_run: NDArray[np.int64],
    values: dict[str, Floats],
    names: Mapping[Owner, str],
) -> Group:
    owners = sorted({(row["node"], row["gpu"]) for row in rows})
    code = {owner: n for n, owner in enumerate(owners)}
    nodes = {node: n for n, node in enumerate(sorted({node for node, _ in owners}))}
    last = {(row["node"], row["gpu"]): row for row in rows}
    gpus = [Gpu(*owner, facts=last[owner], label=names[owner]) for owner in owners]
    runs: dict[str, NDArray[Any]] = {
        "gpu": np.array([code[row["node"], row["gpu"]] for row in rows], np.int64),
        "node": np.array([nodes[row["node"]] for row in rows], np.int64),
        "repeat": np.array([row["repeat"] for row in rows], np.int64),
        "start_ns": np.array([row["start_ns"] or 0 for row in rows], np.int64),
        "virtual_time": np.array([bool(row["virtual_time"]) for row in rows]),
        "hot": np.array([row["cooled"] is False for row in rows]),
    }
    for f in RUNS:
        if f.type == pa.float64():
            runs[f.name] = np.array([np.nan if row[f.name] is None else row[f.name] for row in rows], np.float64)
    own = np.full(int(max(index.max(), of_run.max(initial=0))) + 1, -1, np.int64)
    own[index] = np.arange(len(index))
    run = np.where(of_run >= 0, own[np.maximum(of_run, 0)], -1)
    mine = run >= 0
    windows = {"run": run[mine], "gpu": runs["gpu"][run[mine]], **{name: v[mine] for name, v in values.items()}}
    return Group(_title(facts, len(gpus), len(nodes)), facts, gpus, runs, windows)


def _title(facts: dict[str, Any], gpus: int, nodes: int) -> str:
    size = f" {facts['size']}" if facts["size"] else ""
    how = {"together": "all at once", "in-turn": "one at a time"}.get(facts["placement"] or "", "")
    noise = f"beside {facts['noise']}" if facts["noise"] else ""
    limit = f"limit {facts['power_limit_w']:g} W" if facts["power_limit_w"] else ""
    where = f"{gpus} × {facts['model']}" + (f" in {nodes} hosts" if nodes > 1 else "")
    return " · ".join(filter(None, [f"{facts['workload']}{size}", facts["dtype"] or "", where, limit, how, noise]))
