"""Disk, memory and time that an hour of training with 10,000 kernels per second takes under ``run``.

Kernels are drawn (40 names in fixed order, lengths that vary by a tenth); they are traced as ``Duty`` says, and become
rows, a Run and a folder as those of a program do. Power is a level with noise, 50 readings per second.

    python benchmarks/program_hour.py [MINUTES]
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from jouletrace.profiler.program.gpus import gpus_of
from jouletrace.profiler.program.recorded import recording_facts
from jouletrace.profiler.program.timeline import rows_of
from jouletrace.run import DeviceInfo, Run, save, tables
from jouletrace.run.recording_names import RECORDINGS
from jouletrace.run.units import Units
from jouletrace.tracer.launching import Duty
from jouletrace.tracer.process_trace import Launched, Owners, ProcessTrace

PER_S, NAMES = 10_000, 40


def segments(length_s: float, duty: Duty) -> list[tuple[float, float]]:
    """The traced parts of a program, s."""
    found, kernels, every = [(0.0, min(length_s, duty.first_kernels / PER_S))], 0.0, duty.every_s
    kept = duty.first_kernels
    while found[-1][1] + every - duty.traced_s < length_s:
        begin = found[-1][1] + every - duty.traced_s
        found.append((begin, min(begin + duty.traced_s, length_s)))
        kept += PER_S * duty.traced_s
        if kept - kernels > duty.most_kernels:
            kernels, every = kernels + duty.most_kernels, 2 * every
    return found


def traced(length_s: float) -> ProcessTrace:
    """The kernels of these parts."""
    parts = segments(length_s, Duty())
    rng = np.random.default_rng(1)
    start = np.concatenate([np.arange(begin * PER_S, end * PER_S) / PER_S for begin, end in parts])
    name = np.arange(len(start)) % NAMES
    length = (20e-6 + 2e-6 * name) * rng.normal(1, 0.1, len(start)).clip(0.5, 1.5)
    begin_ns = (start * 1e9).astype(np.int64)
    names = tuple(f"kernel_{k}" for k in range(NAMES))
    work = Launched.of(names, name, begin_ns, begin_ns + (length * 1e9).astype(np.int64))
    edges = [(int(begin * 1e9), int(end * 1e9)) for begin, end in parts]
    return ProcessTrace(1, "hour", None, ["GPU-0"], work, Owners.none(len(start)), edges)


def samples(length_s: float) -> pa.Table:
    """A power record."""
    rng, n = np.random.default_rng(2), int(50 * length_s)
    columns = {"time_ns": (np.arange(n) * 20_000_200), "value": np.round(rng.normal(500, 5, n), 3)}
    return tables.conform(pa.table({**columns, "device": ["GPU-0"] * n, "channel": ["power_w"] * n}), "samples")


def main() -> None:
    """Print what it takes."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    one = traced(60 * minutes)
    kept = sum(getattr(one.work, name).nbytes for name in ("name", "start_ns", "end_ns", "correlation", "device"))
    begin = time.process_time()
    gpus, _ = gpus_of([one], ["GPU-0"])
    rows = rows_of(gpus[0].parts, units := Units())
    took = time.process_time() - begin
    run = Run(kind="program", devices=[DeviceInfo("GPU-0", "gpu", "GPU")], samples=samples(60 * minutes))
    run.units = units.table()
    run.activity = tables.conform(pa.table(rows.activity), "activity")
    run.workload[RECORDINGS] = [recording_facts(gpus[0], rows)]
    true = 60 * minutes * PER_S
    with tempfile.TemporaryDirectory() as folder:
        save(run, Path(folder) / "run")
        size = sum(path.stat().st_size for path in (Path(folder) / "run").iterdir())
    weight = float(gpus[0].parts[0].weight.sum())
    print(f"{minutes:g} min, {true / 1e6:.1f} M kernels, {len(one.work) / 1e6:.2f} M of them traced")
    print(f"kernels that these stand for / all: {weight / true:.4f}")
    print(f"records in memory {kept / 1e6:.0f} MB; Run on disk {size / 1e6:.1f} MB; rows made in {took:.1f} s of CPU")
    print(f"largest memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


main()
