"""Datasets of fleets made from numbers that are known: no GPU, no process, no time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from jouletrace.addons.fleet.dataset import Dataset
from jouletrace.addons.fleet.plan import FleetGpu, FleetSettings, Task
from jouletrace.addons.fleet.rows import ITERATIONS, RUNS, SAMPLES, WINDOWS
from jouletrace.addons.fleet.store import open_store


def gpus(nodes: int = 1, each: int = 4, name: str = "H100 80GB") -> list[FleetGpu]:
    return [
        FleetGpu(f"node-{n}", f"GPU-{n:02d}{g:02d}", g, f"GPU-{n:02d}{g:02d}", name)
        for n in range(nodes)
        for g in range(each)
    ]


def tables_of(task: Task, times_s, energies_j=None, **facts: object) -> dict[str, pa.Table]:
    """What a run leaves: its windows' times and energies, and anything else of its row of figures."""
    times_s = np.asarray(times_s, dtype=float)
    energies_j = times_s * 700 if energies_j is None else np.asarray(energies_j, dtype=float)
    n = len(times_s)
    start_ns = 1_767_225_600_000_000_000 + task.repeat * 60_000_000_000
    row = {
        "repeat": task.repeat,
        "placement": "together",
        "noise_here": False,
        "host": task.gpu.node,
        "model": task.gpu.name,
        "index": task.gpu.index,
        "serial": f"S{task.gpu.id}",
        "pci_bus": f"0000:{task.gpu.index:02x}:00.0",
        "power_limit_w": 700.0,
        "power_limit_min_w": 200.0,
        "power_limit_max_w": 700.0,
        "workload": "gemm",
        "size": 8192,
        "start_ns": start_ns,
        "virtual_time": False,
        "time_s": float(times_s.mean()),
        "latency_s": float(times_s.mean()),
        "energy_j": float(energies_j.mean()),
        "power_w": float((energies_j / times_s).mean()),
        "clock_mhz": 1500.0,
        "temperature_c": 50.0,
        "hardware_share": 0.0,
        "gain_pct": 5.0,
        "simulated": False,
        **facts,
    }
    windows = {
        "repeat": [task.repeat] * n,
        "order": range(n),
        "start_ns": [start_ns + i * 500_000_000 for i in range(n)],
        "iterations": [200] * n,
        "time_s": times_s,
        "energy_j": energies_j,
        "clock_mhz": [1500.0] * n,
        "counted_mhz": [None] * n,
        "temperature_c": [50.0] * n,
    }
    samples = {
        "repeat": [task.repeat] * 10,
        "time_ns": [start_ns + i * 20_000_000 for i in range(10)],
        "channel": pa.array(["power_w"] * 10, SAMPLES.field("channel").type),
        "value": [700.0] * 10,
    }
    iterations = {"repeat": [task.repeat] * n, "iteration": range(n), "time_s": times_s}
    return {
        "runs": pa.Table.from_pylist([row], schema=RUNS),
        "windows": pa.table({f.name: pa.array(windows[f.name], f.type) for f in WINDOWS}, schema=WINDOWS),
        "iterations": pa.table({f.name: pa.array(iterations[f.name], f.type) for f in ITERATIONS}, schema=ITERATIONS),
        "samples": pa.table({f.name: pa.array(samples[f.name], f.type) for f in SAMPLES}, schema=SAMPLES),
    }


def fleet(
    folder: Path,
    offsets,
    *,
    repeats: int = 4,
    windows: int = 8,
    noise: float = 0.002,
    seed: int = 0,
    whole=False,
    **facts,
):
    """A dataset in which GPU number n takes ``offsets[n]`` of 2 ms: GPUs of hosts of four.

    Only of the last repeat, which a page draws, it holds readings and iterations, unless it is to be ``whole``.
    """
    rng = np.random.default_rng(seed)
    each = min(4, len(offsets))
    boards = gpus(-(-len(offsets) // each), each)[: len(offsets)]
    dataset = Dataset(open_store(folder))
    dataset.begin(FleetSettings("gemm", repeats=repeats), "jouletrace fleet run gemm", [vars_of(b) for b in boards])
    for board, offset in zip(boards, offsets, strict=True):
        for repeat in range(repeats):
            own = 2e-3 * offset * (1 + rng.normal(0, noise))
            times = own * (1 + rng.normal(0, noise, windows))
            varied = {name: value(board, repeat, own) if callable(value) else value for name, value in facts.items()}
            tables = tables_of(Task(board, repeat), times, **varied)
            if repeat < repeats - 1 and not whole:
                del tables["samples"], tables["iterations"]
            dataset.put(Task(board, repeat), tables)
    return dataset, boards


def vars_of(gpu: FleetGpu) -> dict[str, object]:
    return {"node": gpu.node, "id": gpu.id, "index": gpu.index, "device": gpu.device, "name": gpu.name}
