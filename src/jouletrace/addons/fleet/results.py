"""The results of a fleet as arrays, in groups that can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.addons.fleet.folder import ABOUT, Folder, Key
from jouletrace.addons.fleet.names import Owner, gpu_names
from jouletrace.addons.fleet.rows import Row, identity, row_of
from jouletrace.errors import BadInputError
from jouletrace.run import Run

_ALIKE = ("model", "power_limit_w", "workload", "dtype", "size", "placement", "noise", "simulated")
"""Properties that GPUs must share to be compared."""


@dataclass(frozen=True)
class Gpu:
    """Identity of a GPU.

    Attributes:
        node, id: Host and UUID.
        facts: Its constant properties (``rows.Row.facts``).
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
    """All results.

    Attributes:
        source: Their place.
        groups: The largest first.
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
        """Whether any GPU is a simulated one."""
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
    """Runs from anywhere as a fleet: those of one device are its repeats, in order of time.

    Args:
        runs: The Runs by their place.
        source: For ``Fleet.source``.
        damaged: A line for each file that couldn't be read.
        asked: Host, UUID and place of GPUs that may have no result, to be named too.

    Raises:
        BadInputError: If none contains a measurement.
    """
    rows: dict[Key, Row] = {}
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
        gpu = identity(run.devices[0])
        rows[node, gpu, seen[gpu]] = row
        seen[gpu] += 1
    if not rows:
        raise BadInputError(f"no Run here has a time of an iteration: nothing to compare ({'; '.join(lines)})")
    return of_rows(rows, source, lines, asked)


def of_rows(
    rows: Mapping[Key, Row],
    source: str = "",
    damaged: Sequence[str] = (),
    asked: Sequence[tuple[str, str, int | None]] = (),
) -> Fleet:
    """A fleet of rows; arguments as for ``fleet_of``."""
    names = gpu_names([*asked, *((node, gpu, row.facts["index"]) for (node, gpu, _), row in rows.items())])
    kinds: dict[tuple[Any, ...], dict[Key, Row]] = {}
    for key, row in rows.items():
        kinds.setdefault(tuple(row.facts[name] for name in _ALIKE), {})[key] = row
    groups = [_group(dict(zip(_ALIKE, kind, strict=True)), own, names) for kind, own in kinds.items()]
    return Fleet(source, sorted(groups, key=lambda group: -len(group.gpus)), damaged=list(damaged), names=names)


def _group(facts: dict[str, Any], rows: Mapping[Key, Row], names: Mapping[Owner, str]) -> Group:
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
    limit = f"limit {facts['power_limit_w']:g} W" if facts["power_limit_w"] else ""
    where = f"{gpus} × {facts['model']}" + (f" in {nodes} hosts" if nodes > 1 else "")
    return " · ".join(filter(None, [f"{facts['workload']}{size}", facts["dtype"] or "", where, limit, how, noise]))
