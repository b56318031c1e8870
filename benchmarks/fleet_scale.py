"""How long the report of a large fleet takes, and how much memory: 1 000 GPUs, 10 repeats of 60 s at 50 Hz.

    python benchmarks/fleet_scale.py [--gpus 1000] [--repeats 10] [--folder DIR]

Results are made from random numbers with known spreads, as ``fleet run`` writes them; then ``fleet report`` reads
them in a process of its own, with page, JSON and actions.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from jouletrace.addons.fleet.dataset import Dataset
from jouletrace.addons.fleet.plan import FleetGpu, FleetSettings, Task
from jouletrace.addons.fleet.rows import ITERATIONS, RUNS, SAMPLES, WINDOWS, to_parquet
from jouletrace.addons.fleet.store import open_store

SECONDS, WINDOW_S = 60, 0.5
TRUTH = {"node": 0.006, "gpu": 0.012, "run": 0.003, "within": 0.008}
EACH = 8
BASE_NS = 1_767_225_600_000_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="fleet-scale-"))
    start = time.perf_counter()
    rows = make(folder / "fleet", asked.gpus, asked.repeats)
    print(f"made {asked.gpus} GPUs x {asked.repeats} repeats, {rows:,} samples, in {time.perf_counter() - start:.0f} s")
    size = sum(file.stat().st_size for file in (folder / "fleet").rglob("*.parquet"))
    print(f"on disk: {size / 2**20:.0f} MiB")
    report(folder)
    if asked.folder is None:
        shutil.rmtree(folder)


def report(folder: Path) -> None:
    command = [sys.executable, "-m", "jouletrace", "fleet", "report", str(folder / "fleet"), "--json"]
    command += ["-o", str(folder / "fleet.html"), "--actions", str(folder / "actions.csv")]
    start = time.perf_counter()
    said = subprocess.run(command, capture_output=True, check=True, text=True)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print(f"report, page, JSON and actions: {seconds:.1f} s, {peak:.2f} GiB at most")
    page = (folder / "fleet.html").stat().st_size
    print(f"page {page / 2**20:.1f} MiB, JSON {len(said.stdout) / 2**20:.1f} MiB")
    spread = json.loads(said.stdout)["groups"][0]["spread"]["time_s"]
    for level, truth in TRUTH.items():
        sd = spread["variance"][level]["sd"]
        ends = [100 * sd[key] / 2e-3 for key in ("value", "low", "high")]
        print(f"{level:7} sd {ends[0]:.3f} % [{ends[1]:.3f}, {ends[2]:.3f}], truth {100 * truth:.3f} %")


def make(folder: Path, gpus: int, repeats: int) -> int:
    rng = np.random.default_rng(0)
    dataset = Dataset(open_store(folder))
    settings = FleetSettings("gemm", repeats=repeats, seconds=SECONDS)
    boards = [FleetGpu(f"node-{n // EACH:03d}", f"GPU-{n:04d}", n % EACH, f"GPU-{n:04d}", "H100") for n in range(gpus)]
    dataset.begin(settings, "jouletrace fleet run gemm", [vars(gpu) for gpu in boards])
    hosts = rng.normal(0, TRUTH["node"], gpus // EACH + 1)
    total = 0
    for number, gpu in enumerate(boards):
        own = hosts[number // EACH] + rng.normal(0, TRUTH["gpu"])
        for repeat in range(repeats):
            task = Task(gpu, repeat)
            level = own + rng.normal(0, TRUTH["run"])
            tables, samples = one(rng, gpu, repeat, 2e-3 * (1 + level))
            dataset.put(task, tables)
            place = folder / "samples" / f"node={gpu.node}" / f"gpu={gpu.id}"
            place.mkdir(parents=True, exist_ok=True)
            (place / f"repeat-{repeat:04d}.parquet").write_bytes(samples)
            total += SECONDS * 50 + SECONDS * 10 * 6
    return total


_SAMPLES: list[bytes] = []


def one(rng: np.random.Generator, gpu: FleetGpu, repeat: int, time_s: float) -> tuple[dict[str, pa.Table], bytes]:
    n = round(SECONDS / WINDOW_S)
    times = time_s + rng.normal(0, TRUTH["within"] * 2e-3, n)
    start_ns = BASE_NS + repeat * 90_000_000_000 + int(rng.integers(0, 2_000_000))
    heat = 55 + 8 * rng.random()
    row = {
        **{"repeat": repeat, "placement": "together", "noise_here": False, "host": gpu.node, "model": "H100 80GB"},
        **{"index": gpu.index, "serial": gpu.id, "pci_bus": f"0000:{gpu.index:02x}:00.0", "power_limit_w": 700.0},
        **{"workload": "gemm", "size": 8192, "dtype": "bf16", "start_ns": start_ns, "at_ns": start_ns},
        **{"virtual_time": False, "time_s": times.mean(), "latency_s": times.mean(), "energy_j": times.mean() * 700},
        **{"power_w": 700.0, "idle_w": 74.0, "context_idle_w": 125.0, "clock_mhz": 1500 * 2e-3 / time_s},
        **{"temperature_c": heat, "temperature_max_c": heat + 3, "power_cap_share": 1.0, "thermal_share": 0.0},
        **{"hardware_share": 0.0, "gain_pct": 5.0, "simulated": True},
    }
    repeats = [repeat] * n
    windows = {
        **{"repeat": repeats, "order": np.arange(n), "iterations": [250] * n, "time_s": times},
        **{"start_ns": start_ns + np.arange(n) * round(WINDOW_S * 1e9), "energy_j": times * 700},
        **{"clock_mhz": np.full(n, 1500.0), "temperature_c": np.full(n, heat), "counted_mhz": [None] * n},
    }
    iterations = {"repeat": [repeat] * 2000, "iteration": np.arange(2000), "time_s": np.full(2000, time_s)}
    if not _SAMPLES:  # all alike: only their number matters
        _SAMPLES.append(samples_of(rng, start_ns))
    found = {
        "runs": pa.Table.from_pylist([row], schema=RUNS),
        "windows": pa.table({f.name: pa.array(windows[f.name], f.type) for f in WINDOWS}, schema=WINDOWS),
        "iterations": pa.table({f.name: pa.array(iterations[f.name], f.type) for f in ITERATIONS}, schema=ITERATIONS),
    }
    return found, _SAMPLES[0]


def samples_of(rng: np.random.Generator, start_ns: int) -> bytes:
    fast, slow = SECONDS * 50, SECONDS * 10
    names = ["power_w"] * fast
    stamps = [start_ns + np.arange(fast) * 20_000_000]
    values = [700 + rng.normal(0, 45, fast)]
    for channel in ("clock_sm_mhz", "clock_memory_mhz", "temperature_c", "throttle_bits", "power_average_w", "pstate"):
        names += [channel] * slow
        stamps.append(start_ns + np.arange(slow) * 100_000_000)
        values.append(np.round(100 + rng.normal(0, 10, slow)))
    columns = {
        "repeat": pa.array([0] * len(names), pa.int64()),
        "time_ns": pa.array(np.concatenate(stamps)),
        "channel": pa.array(names, SAMPLES.field("channel").type),
        "value": pa.array(np.concatenate(values)),
    }
    return to_parquet(pa.table(columns, schema=SAMPLES))


if __name__ == "__main__":
    main()
