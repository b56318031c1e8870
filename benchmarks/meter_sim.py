"""Do intervals of gain and offset against a meter hold? Simulated GPUs whose sensors err by a known line.

    python benchmarks/meter_sim.py 7 1 10

Each of so many GPUs of a type reads 0.95 to 1.05 of what it draws and up to 3 W more or less. ``calibrate --meter``
records it; a meter logs the truth at each of the rates in Hz, as means since its last row, with 0.3 W of noise, a gain
within ± 0.2 % (its accuracy) and a clock up to 5 s off.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np

from jouletrace.analysis.meter import Accuracy, against_meter
from jouletrace.errors import BadInputError, BrokenOffError
from jouletrace.formats.importers import import_files
from jouletrace.recording import calibrations
from jouletrace.run import Run, load
from jouletrace.simulator.boards import SimulatedGpu
from jouletrace.stats.interval import Z95, expanded

ACCURACY = Accuracy(0.2)
TYPES = ("h100", "a100", "v100")


def recorded(spec: str, folder: Path) -> tuple[Run, SimulatedGpu]:
    """The recording of a GPU with levels, without a meter's log, and the GPU, which knows the truth."""
    module = importlib.import_module("jouletrace.profiler.calibrate")
    device = SimulatedGpu(spec)

    def no_log() -> Run:
        raise BadInputError("its log comes later")

    module.open_device = lambda _: device
    with suppress(BrokenOffError):
        module.calibrate(spec, folder=folder, meter=module.LoggedMeter("meter.csv", no_log, ACCURACY))
    return load(folder), device


def log(run: Run, device: SimulatedGpu, hz: float, path: Path, rng: np.random.Generator) -> Run:
    """Return the imported log of a meter."""
    end = int(run.spans["end_ns"].to_numpy().max())
    edges = np.arange(int(run.spans["start_ns"].to_numpy().min()), end, round(1e9 / hz))
    drawn = [device.truth.energy_j(a, b) * hz for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
    watts = np.array(drawn) * (1 + ACCURACY.pct / 100 * rng.uniform(-1, 1)) + rng.normal(0, 0.3, len(drawn))
    clock_s = rng.uniform(-5, 5)
    rows = [f"{t / 1e9 + clock_s:.6f},{w:.3f}" for t, w in zip(edges[1:].tolist(), watts, strict=True)]
    path.write_text("\n".join(["timestamp,power [W]", *rows, ""]))
    return import_files(path)


def main(draws: int, rates: list[float]) -> None:
    """Print a row for each type and rate."""
    folder = Path(tempfile.mkdtemp())
    os.environ["JOULETRACE_CACHE"] = str(folder / "cache")
    print("gpu  Hz  gain holds  offset holds  power holds  half-widths: gain %, offset W, power at 100, 300 W %")
    for name in TYPES:
        rows: dict[float, list[list[float]]] = {hz: [] for hz in rates}
        for seed in range(draws):
            rng = np.random.default_rng([seed, TYPES.index(name)])
            reads, offset = rng.uniform(0.95, 1.05), rng.uniform(-3, 3)
            spec = f"sim:{name}?seed={seed}&reads={reads:.4f}&offset={offset:.3f}"
            run, device = recorded(spec, folder / f"{name}-{seed}")
            calibrations.apply(run, device.info.id, run.calibration[device.info.id])
            for hz in rates:
                meter = log(run, device, hz, folder / "meter.csv", rng)
                found = against_meter(run, meter, "meter.csv", ACCURACY)
                true, line = np.array([-offset / reads, 1 / reads]), np.array([found["offset_w"], found["gain"]])
                halves = Z95 * np.sqrt(np.diag(found["covariance"]))
                widened = np.array(
                    [expanded(half, [0.002 * abs(each)]) for half, each in zip(halves, true, strict=True)]
                )
                row = [*(np.abs(line - true) <= widened)[::-1], halves[1] / line[1] * 100, halves[0]]
                for watts in (100.0, 300.0):
                    at = np.array([1.0, reads * watts + offset])
                    normal = Z95 * np.sqrt(at @ np.array(found["covariance"]) @ at + found["scatter_w"] ** 2)
                    half = expanded(float(normal), [ACCURACY.pct / 100 * watts])
                    row += [abs(at @ line - watts) <= half, 100 * half / watts]
                rows[hz].append(row)
        for hz, of_rate in rows.items():
            each = np.array(of_rate, float)
            held, widths = each[:, [0, 1, 4, 6]].sum(axis=0), np.median(each[:, [2, 3, 5, 7]], axis=0)
            print(
                f"{name} {hz:g} {held[0]:.0f}/{draws} {held[1]:.0f}/{draws} {held[2:].sum():.0f}/{2 * draws}", end=" "
            )
            print(" ".join(f"{width:.2g}" for width in widths), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), [float(hz) for hz in sys.argv[2:]])
