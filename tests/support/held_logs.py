"""Logs of a collector that reads power every so often, and of tools that ask it more often than that."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from covering import fewest
from jouletrace.analysis import analyse
from jouletrace.analysis.power import power_record, readings
from jouletrace.arrays import Floats
from jouletrace.formats.importers import read_files
from jouletrace.run import Estimate, Run

BEGIN_S = 1_772_532_000
LOW_W, HIGH_W = 100.0, 300.0


@dataclass(frozen=True)
class Load:
    """Power that switches between two levels; ``edges_s`` are the ends of its spells, from 0 on."""

    edges_s: Floats

    @classmethod
    def drawn(cls, rng: np.random.Generator, seconds: float, shortest_s: float = 20, longest_s: float = 90) -> Load:
        """One with spells of random lengths, for some more than so many seconds."""
        spells = rng.uniform(shortest_s, longest_s, int(seconds / shortest_s) + 20)
        return cls(np.append(0.0, np.cumsum(spells)))

    def at(self, time_s: Floats) -> Floats:
        """Power at these times, W."""
        return np.where(np.searchsorted(self.edges_s, time_s, side="right") % 2, HIGH_W, LOW_W)

    def mean_w(self, start_s: float, end_s: float) -> float:
        """Mean power from one time to another."""
        energy = np.append(0.0, np.cumsum(np.diff(self.edges_s) * self.at(self.edges_s[:-1])))
        return float(np.diff(np.interp([start_s, end_s], self.edges_s, energy))[0] / (end_s - start_s))


@dataclass(frozen=True)
class Collector:
    """A reader of a meter every ``period_s``, with noise, which rounds to ``step_w`` where that is above 0."""

    period_s: float = 30.0
    noise_w: float = 0.5
    step_w: float = 0.0
    late_s: float = 0.0  # standard deviation of the times of its readings
    restarts: bool = False  # once, with another phase

    def readings(self, rng: np.random.Generator, load: Load, seconds: float) -> tuple[Floats, Floats]:
        """Times and powers of its readings, the first before 0."""
        time = np.arange(rng.uniform(-self.period_s, 0), seconds + self.period_s, self.period_s)
        time = np.sort(time + self.late_s * rng.standard_normal(len(time)))
        if self.restarts:
            time[len(time) // 2 :] += rng.uniform(0, self.period_s)
        power = load.at(time) + self.noise_w * rng.standard_normal(len(time))
        return time, np.round(power / self.step_w) * self.step_w if self.step_w else power


def asked(reading_s: Floats, power_w: Floats, row_s: Floats) -> Floats:
    """The last reading at each row."""
    return power_w[np.maximum(np.searchsorted(reading_s, row_s, side="right") - 1, 0)]


def answer(path: Path, *series: tuple[Floats, Floats], board: str = "NVIDIA A100-SXM4-80GB") -> Path:
    """A file as Prometheus answers a query of DCGM, with times in s and power in W of each GPU."""
    metric = {"__name__": "DCGM_FI_DEV_POWER_USAGE", "modelName": board, "Hostname": "node-a"}
    result = [
        {
            "metric": {**metric, "gpu": str(gpu), "UUID": f"GPU-{gpu}1111111-2222-3333-4444-555555555555"},
            "values": [[round(BEGIN_S + t, 3), f"{w:.3f}"] for t, w in zip(*one, strict=True)],
        }
        for gpu, one in enumerate(series)
    ]
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}))
    return path


def table(path: Path, series: tuple[Floats, Floats]) -> Path:
    """The same as a table of a meter."""
    rows = "".join(f"{BEGIN_S + t:.3f},{w:.3f}\n" for t, w in zip(*series, strict=True))
    path.write_text("time_s,power_w\n" + rows)
    return path


def imported(path: Path) -> Run:
    """The Run of a file, with its figures."""
    return analyse(read_files([path]))


def judged(run: Run, load: Load, unit: int = 1) -> tuple[Estimate, float]:
    """The mean power of a device and its truth over the same time."""
    found = readings(run, run.devices[unit - 1].id)
    assert found is not None
    record, response = found
    edges = record.time_ns[[0, -1]] / 1e9 - BEGIN_S - response.delay_s - response.middle_s
    return run.result("power_w", unit), load.mean_w(*edges.tolist())


def period_s(run: Run, device: int = 0) -> float:
    """Period of a device's readings."""
    found = power_record(run, run.devices[device].id)
    assert found is not None
    return found[0].period_s


def logs(
    folder: Path,
    seed: int,
    period_s: float,
    row_s: float,
    write: Callable[[Path, tuple[Floats, Floats]], Path],
    seconds: float = 3600,
    **collector: Any,
) -> tuple[Run, Run, Load]:
    """Runs of a log whose rows repeat each reading, and of the same readings written once; and the load."""
    rng = np.random.default_rng(seed)
    load = Load.drawn(rng, seconds + 2 * period_s)
    reading_s, power_w = Collector(period_s, **collector).readings(rng, load, seconds)
    rows_s, within = np.arange(0.0, seconds, row_s), (reading_s >= 0) & (reading_s < seconds)
    repeated = write(folder / "repeated", (rows_s, asked(reading_s, power_w, rows_s)))
    once = write(folder / "once", (reading_s[within], power_w[within]))
    return imported(repeated), imported(once), load


def check_intervals(
    folder: Path, collector_s: float, row_s: float, write: Callable[[Path, tuple[Floats, Floats]], Path]
) -> None:
    """Intervals of repeated readings hold the truth, and are as wide as those of each reading once."""
    ratios, held = [], 0
    for seed in range(3):
        repeated, once, load = logs(folder, seed, collector_s, row_s, write)
        found, truth = judged(repeated, load)
        held += found.low <= truth <= found.high
        ratios.append(found.half_width / once.result("power_w", 1).half_width)
    assert held >= fewest(3)
    assert 0.9 < np.median(ratios) < 1.1
