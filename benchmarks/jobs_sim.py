"""Do intervals of jobs hold? Simulated logs with jobs whose energy is known.

    python benchmarks/jobs_sim.py 20 gpus=2 hours=48 every=10 processes=2
    python benchmarks/jobs_sim.py week FOLDER

Each of so many draws is a log as of nvidia-smi (the mean of the last second, printed with two decimals) of some GPUs
with jobs on one or several of them: lead-ins at 110 W, loads of 250 to 680 W with pauses at 130 W of a period of 20 to
400 s, rests at 70 W, and a hole of half an hour. Truth is the sum of what is drawn in each second. The
second command writes the logs and the table of the example in the docs.
"""

from __future__ import annotations

import datetime as dt
import sys
import tempfile
from collections.abc import Iterable
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jouletrace.formats.importers import import_files
from jouletrace.wings.jobs.bill import bill
from jouletrace.wings.jobs.tables import read_jobs

T0, HOLE_S = 1_795_996_800, 1800


def stamp(second: int, form: str) -> str:
    return dt.datetime.fromtimestamp(T0 + second, dt.UTC).strftime(form)


def drawn(seed: int, gpus: int, n: int) -> tuple[np.ndarray, list[tuple[list[int], int, int]]]:
    """Watts of each GPU in each second, and jobs as GPUs, start and end."""
    rng = np.random.default_rng(seed)
    watts, free, jobs = 70 + rng.normal(0, 0.5, (gpus, n)), np.zeros(gpus), []
    while True:
        own = np.argsort(free)[: min(int(rng.choice([1, 1, 1, 2, 4, 8])), gpus)]
        start = int(free[own].max() + rng.exponential(1200))
        if start >= n - 600:
            return watts, jobs
        end, level = min(start + int(rng.uniform(300, 5 * 3600)), n - 60), rng.uniform(250, 680)
        for gpu in own:
            load = level + rng.normal(0, 10, end - start)
            load[(np.arange(end - start) / rng.uniform(20, 400)) % 1 > rng.uniform(0.6, 1)] = 130
            load[: int(rng.uniform(5, 90))] = 110
            watts[gpu, start:end], free[gpu] = load, end
        jobs.append((own.tolist(), start, end))


def write_log(path: Path, watts: np.ndarray, there: np.ndarray, every: int, uuid: str) -> None:
    """A log as of nvidia-smi, without the seconds that aren't ``there``."""
    with path.open("w") as file:
        file.write("timestamp, index, name, uuid, power.draw [W]\n")
        for second in range(0, watts.shape[1], every):
            at = stamp(second, "%Y/%m/%d %H:%M:%S.000")
            for gpu, of_gpu in enumerate(watts) if there[second] else ():
                file.write(f"{at}, {gpu}, NVIDIA H100 80GB HBM3, {uuid}-{gpu}, {of_gpu[max(second - 1, 0)]:.2f} W\n")


def write_table(path: Path, jobs: Iterable[tuple[str, str, str, list[int], int, int]]) -> None:
    """A row a job: host, id, user, GPUs, start and end."""
    rows = ["host,id,user,gpu_ids,start,end"]
    for host, name, user, own, *edges in jobs:
        times = ",".join(stamp(edge, "%Y-%m-%dT%H:%M:%S") for edge in edges)
        rows.append(f'{host},{name},{user},"{",".join(map(str, own))}",{times}')
    path.write_text("\n".join(rows) + "\n")


def write_week(folder: Path) -> None:
    """A week of two hosts with four GPUs each, a row each 30 s, and its jobs; the second's clock is 90 s ahead."""
    rows, n = [], 7 * 86_400
    for seed, host in ((1, "node1"), (2, "node2")):
        watts, jobs = drawn(seed, 4, n)
        there = np.ones(n, bool)
        there[100_000 * seed : 100_000 * seed + HOLE_S] = False
        moved = np.roll(watts, 90, axis=1) if seed == 2 else watts
        write_log(folder / f"{host}.csv", moved, there, 30, f"GPU-{host}")
        rows += [(host, f"{seed}{k:03d}", ("ada", "bob", "cyd")[k % 3], *job) for k, job in enumerate(jobs)]
    write_table(folder / "jobs.csv", sorted(rows, key=lambda row: row[4]))


class Drawn(NamedTuple):
    """Jobs with an energy, those whose interval holds, half-widths and errors as shares; whether the whole holds."""

    known: int
    held: int
    halves: list[float]
    errors: list[float]
    whole: bool


def drawn_bill(seed: int, gpus: int, hours: float, every: int, folder: Path) -> Drawn:
    """The bill of a draw against what was drawn."""
    n = round(hours * 3600)
    watts, jobs = drawn(seed, gpus, n)
    there = np.ones(n, bool)
    there[int(0.3 * n) : int(0.3 * n) + HOLE_S] = False
    log, table = folder / "node1.csv", folder / "jobs.csv"
    write_log(log, watts, there, every, "GPU")
    write_table(table, [("", str(k), "", *job) for k, job in enumerate(jobs)])
    found = bill({"": import_files(log)}, read_jobs(table)[0])
    assert abs(sum(line.energy.value or 0 for line in found.sums["user"]) / (found.whole.energy.value or 1) - 1) < 1e-9
    held, halves, errors = 0, [], []
    for line in found.jobs:
        own, start, end = jobs[int(line.what)]
        truth = float(watts[own, start:end][:, there[start:end]].sum())
        energy = line.energy
        if energy.value is None or energy.low is None or energy.high is None:
            continue
        held += energy.low <= truth <= energy.high
        halves.append((energy.half_width or 0.0) / energy.value)
        errors.append(energy.value / truth - 1)
    all_j, whole = float(watts[:, there].sum()), found.whole.energy
    return Drawn(len(halves), held, halves, errors, (whole.low or 0.0) <= all_j <= (whole.high or 0.0))


def of_seed(seed: int, gpus: int, hours: float, every: int) -> Drawn:
    with tempfile.TemporaryDirectory() as folder:
        return drawn_bill(seed, gpus, hours, every, Path(folder))


def main() -> None:
    if sys.argv[1] == "week":
        return write_week(Path(sys.argv[2]))
    given = {name: float(value) for name, value in (word.split("=") for word in sys.argv[2:])}
    processes, first = int(given.pop("processes", 1)), int(given.pop("first", 0))
    gpus, hours, every = (given[name] for name in ("gpus", "hours", "every"))
    draws: list[Drawn] = []
    with Pool(processes) as pool:
        each = partial(of_seed, gpus=int(gpus), hours=hours, every=int(every))
        for draw in pool.imap_unordered(each, range(first, first + int(sys.argv[1]))):
            draws.append(draw)
            print("\n".join(stated(draws)), flush=True)


def stated(draws: list[Drawn]) -> list[str]:
    """What so many draws show."""
    known, held, whole = (sum(getattr(each, name) for each in draws) for name in ("known", "held", "whole"))
    halves, errors = (np.concatenate([getattr(each, name) for each in draws]) for name in ("halves", "errors"))
    return [
        f"{held} of {known} jobs hold ({100 * held / known:.1f} %), and {whole} of {len(draws)} wholes",
        f"half-width, median: {100 * np.median(halves):.2f} %; error, rms: {100 * np.std(errors):.2f} %; 95 %"
        f" of errors are below {100 * np.quantile(np.abs(errors), 0.95):.2f} %",
    ]


if __name__ == "__main__":
    main()
