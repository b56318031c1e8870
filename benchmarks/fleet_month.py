"""How long does ``jouletrace fleet energy`` take for a month of 1,000 GPUs, how much memory, and is its energy right?

    python benchmarks/fleet_month.py -o /tmp/month                  # 30 days, rows of 30 s: 86 million
    python benchmarks/fleet_month.py -o /tmp/month --gpus 64 --days 2

Writes a Parquet file a day (0.4 GB in all), unless they are there, runs the command in a process of its own and
prints its time, its peak of memory, and its energies beside the truth: the integral of each GPU's power.

Power is a sequence of jobs of hours with pauses, within them noise of 5 % and checkpoints of 20 s every 10 min at a
third of the power; each reading is that of an instant.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BEGIN_S, DAY_S, PERIOD_S = 1_793_491_200, 86_400, 30
IDLE_W, EVERY_S, CHECKPOINT_S = 75.0, 600.0, 20.0


def day_of(gpus: int, day: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Readings of a day, shape (gpus, readings), the users of each, and the true joules of each GPU."""
    random = np.random.default_rng([7, day])
    at_s = np.arange(0, DAY_S, PERIOD_S) + random.uniform(0, 1, (gpus, 1))
    edges = np.sort(random.uniform(0, DAY_S, (gpus, 8)), axis=1)
    job = (at_s[:, :, None] > edges[:, None, :]).sum(axis=2)
    level_w = np.where(random.uniform(size=(gpus, 9)) < 0.25, IDLE_W, random.uniform(250, 690, (gpus, 9)))
    phase_s = random.uniform(0, EVERY_S, (gpus, 1))
    base = np.take_along_axis(level_w, job, axis=1)
    saving = ((at_s + phase_s) % EVERY_S < CHECKPOINT_S) & (base > IDLE_W)
    watts = np.where(saving, base / 3, base) * (1 + 0.05 * random.standard_normal(at_s.shape) * (base > IDLE_W))
    spans = np.diff(np.concatenate([np.zeros((gpus, 1)), edges, np.full((gpus, 1), float(DAY_S))], axis=1), axis=1)
    starts = np.concatenate([np.zeros((gpus, 1)), edges], axis=1) + phase_s
    saved = _saved(starts + spans) - _saved(starts)
    joules = (level_w * (spans - np.where(level_w > IDLE_W, saved * 2 / 3, 0.0))).sum(axis=1)
    users = (np.arange(gpus)[:, None] * 9 + job) % 40
    return watts, users, joules


def _saved(until_s: np.ndarray) -> np.ndarray:
    """Seconds of checkpoints from 0 until some times."""
    return np.floor(until_s / EVERY_S) * CHECKPOINT_S + np.minimum(until_s % EVERY_S, CHECKPOINT_S)


def written(folder: Path, gpus: int, days: int) -> float:
    """Write what isn't there; the true joules of all."""
    folder.mkdir(parents=True, exist_ok=True)
    uuids = pa.array([f"GPU-{k:08x}-0000-4000-8000-{k:012x}" for k in range(gpus)])
    hosts = pa.array([f"node{k:03}" for k in range((gpus + 7) // 8)])
    people = pa.array([f"user{k:02}" for k in range(40)])
    total = 0.0
    for day in range(days):
        watts, users, joules = day_of(gpus, day)
        total += joules.sum()
        path = folder / f"day-{day:02}.parquet"
        if path.exists():
            continue
        rows = watts.shape[1]
        seconds = np.repeat(BEGIN_S + day * DAY_S + np.arange(rows) * PERIOD_S, gpus)
        gpu = np.tile(np.arange(gpus, dtype=np.int32), rows)
        table = pa.table(
            {
                "time": pa.array(seconds * 1000, pa.timestamp("ms", "UTC")),
                "host": pa.DictionaryArray.from_arrays(gpu // 8, hosts),
                "gpu_uuid": pa.DictionaryArray.from_arrays(gpu, uuids),
                "user": pa.DictionaryArray.from_arrays(users.T.ravel().astype(np.int32), people),
                "power_w": watts.T.ravel().astype(np.float32),
            }
        )
        pq.write_table(table, path)
    return float(total)


def main() -> None:
    """Write, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--days", type=int, default=30)
    args = parser.parse_args()
    truth_j = written(args.output, args.gpus, args.days)
    begin = time.perf_counter()
    asked = ["--by", "host", "--by", "user", "--by", "day"]
    words = ["-m", "jouletrace", "fleet", "energy", str(args.output), *asked, "--json"]
    done = subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    result = json.loads(done.stdout)
    energy = result["all"]["energy_j"]
    size = sum(path.stat().st_size for path in args.output.iterdir()) / 1e9
    print(f"{result['rows']:,} rows, {size:.2f} GB: {seconds:.1f} s, peak {peak:.2f} GiB")
    half = (energy["high"] - energy["low"]) / 2 / energy["value"]
    print(f"energy {energy['value'] / 3.6e6:,.0f} kWh ± {half:.3%}; truth {truth_j / 3.6e6:,.0f}", end="")
    print(f", {energy['value'] / truth_j - 1:+.3%}")


if __name__ == "__main__":
    main()
