"""Fleets made from numbers that are known: no GPU, no process, no time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from jouletrace.run import Run
from jouletrace.wings.fleet.folder import Folder
from jouletrace.wings.fleet.plan import FleetGpu, FleetSettings, Task
from jouletrace.wings.fleet.results import Fleet, FleetRow, of_rows
from make_runs import GPU, profile_run


def gpus(nodes: int = 1, each: int = 4, name: str = "H100 80GB") -> list[FleetGpu]:
    return [
        FleetGpu(f"node-{n}", f"GPU-{n:02d}{g:02d}", g, f"GPU-{n:02d}{g:02d}", name)
        for n in range(nodes)
        for g in range(each)
    ]


def row(gpu: FleetGpu, times_s, energies_j=None, **changes: object) -> FleetRow:
    """Facts of a run that a report needs: its windows' times and energies, and any other facts and figures."""
    time_s = np.asarray(times_s, dtype=float)
    energy_j = time_s * 700 if energies_j is None else np.asarray(energies_j, dtype=float)
    facts = {
        "placement": "together",
        "noise": None,
        "noise_here": False,
        "model": gpu.name,
        "index": gpu.index,
        "serial": f"S{gpu.id}",
        "pci_bus": f"0000:{gpu.index:02x}:00.0",
        "persistence": True,
        "power_limit_w": 700.0,
        "power_limits_w": {"min": 200.0, "max": 700.0},
        "workload": "gemm",
        "dtype": None,
        "size": 8192,
        "simulated": False,
    }
    figures = {
        "time_s": float(time_s.mean()),
        "energy_j": float(energy_j.mean()),
        "power_w": float((energy_j / time_s).mean()),
        "idle_w": None,
        "context_idle_w": None,
        "gain_pct": 5.0,
        "clock_mhz": 1500.0,
        "counted_mhz": None,
        "temperature_c": 50.0,
        "power_cap_share": None,
        "thermal_share": None,
        "hardware_share": 0.0,
    }
    for name, value in changes.items():
        (facts if name in facts else figures)[name] = value
    return FleetRow(facts, figures, time_s, energy_j)


def fleet(offsets, *, repeats: int = 4, windows: int = 8, noise: float = 0.002, seed: int = 0, **facts) -> Fleet:
    """A fleet in which GPU number n takes ``offsets[n]`` of 2 ms: GPUs of hosts of four."""
    rng = np.random.default_rng(seed)
    each = min(4, len(offsets))
    boards = gpus(-(-len(offsets) // each), each)[: len(offsets)]
    rows = {}
    for board, offset in zip(boards, offsets, strict=True):
        for repeat in range(repeats):
            own = 2e-3 * offset * (1 + rng.normal(0, noise))
            times = own * (1 + rng.normal(0, noise, windows))
            varied = {name: value(board, repeat, own) if callable(value) else value for name, value in facts.items()}
            rows[board.node, board.id, repeat] = row(board, times, **varied)
    return of_rows(rows, "made")


def run_of(task: Task, scale: float = 1.0) -> Run:
    """A profile as ``fleet run`` stores it."""
    run = profile_run(scale=scale)
    gpu = task.gpu
    run.devices = [replace(run.devices[0], id=gpu.id, host=gpu.node, index=gpu.index, name=gpu.name)]
    run.channels = [replace(channel, device=gpu.id) for channel in run.channels]
    for name in ("samples", "spans"):
        table = getattr(run, name)
        at = table.schema.get_field_index("device")
        field = table.schema.field(at)
        ids = pa.array([gpu.id if one == GPU else one for one in table["device"].to_pylist()], pa.string())
        setattr(run, name, table.set_column(at, field, ids.cast(field.type)))
    run.settings["fleet"] = {"node": gpu.node, "repeat": task.repeat, "placement": "together", "noise": []}
    return run


def stored(place: Path, offsets, repeats: int = 2) -> Folder:
    """A folder as ``fleet run`` leaves it, of GPUs of one host."""
    folder = Folder(place)
    boards = gpus(1, len(offsets))
    with folder.held(FleetSettings("deit-b", repeats=repeats), "jouletrace fleet run deit-b", boards):
        pass
    for board, offset in zip(boards, offsets, strict=True):
        for repeat in range(repeats):
            folder.add(Task(board, repeat), run_of(Task(board, repeat), offset))
    return folder
