"""Judge logs: energies of momentary readings 0.1 and 1 s apart, of loads that change at random or periodically, and of
means over 1 s that are 5 s apart, of days with few jobs; idle and working level of noisy readings 0.1, 1 and 5 s apart.

python benchmarks/estimator/logs.py energies --n 200 -o FILE.json
python benchmarks/estimator/logs.py jobs --n 20 -o FILE.json
python benchmarks/estimator/logs.py levels --n 200 -o FILE.json
"""

import json
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import numpy as np
from scipy.signal import lfilter

from jouletrace.analysis.levels import Levels, idle_and_working_levels
from jouletrace.attribution.log_chain import log_energies
from jouletrace.formats.importers.power_sensor import polled_response
from jouletrace.run import ChannelInfo
from jouletrace.sensor.kinds import USAGE, readings_of, sensor_behind
from jouletrace.sensor.power_record import clean
from judging import options, percents, written

READINGS, EDGE = 300, 3
EDGES_S = {
    "random": (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0, 60.0),
    "periodic": (0.1, 0.5, 0.95, 1.0, 1.05, 1.7, 3.3, 10.0),
}


def log(mode: str, value_s: float, spacing_s: float, rng: np.random.Generator) -> tuple:
    """Times and readings, and the edges of the load with its true energy up to each.

    ``value_s`` is the mean distance of edges, or the period. Distances scatter as much as independent ones do, half as
    much, or a quarter. Half the random loads have two levels, the others a new level after each edge. Polls jitter by
    0.3 % of their spacing, and the log's clock is off by 20 ppm.
    """
    length = READINGS * max(spacing_s, value_s / 30 if value_s > 5 else spacing_s)
    times = 0.5 + np.arange(0, length, spacing_s) * (1 + 2e-5 * rng.standard_normal())
    times += 0.003 * spacing_s * rng.uniform(-1, 1, len(times))
    count = int(2.5 * (length + 2) / value_s) + 50
    low, high = rng.uniform(80, 150), rng.uniform(200, 400)
    if mode == "random":
        shape = float(rng.choice([1.0, 4.0, 14.0]))
        gaps = rng.gamma(shape, value_s / shape, count)
        watts = rng.uniform(low, high, count) if rng.random() < 0.5 else np.where(np.arange(count) % 2, low, high)
    else:
        duty = rng.uniform(0.2, 0.8)
        gaps = np.tile(value_s * np.array([duty, 1 - duty]), count // 2)
        watts = np.tile([low, high], count // 2)
    edges = np.append(0, np.cumsum(gaps)) - rng.uniform(0, 1) * 2 * value_s
    values = watts[np.searchsorted(edges, times, side="right") - 1] + 0.3 * rng.standard_normal(len(times))
    energy = np.append(0, np.cumsum(watts * np.diff(edges)))
    return times, np.round(values, 2), edges, energy


def judged(mode: str, value_s: float, spacing_s: float, n: int, seed: int) -> dict[str, Any]:
    """One row of the table."""
    rng = [np.random.default_rng([seed, i, int(1e3 * value_s), int(1e3 * spacing_s), len(mode)]) for i in range(n)]
    logs = [log(mode, value_s, spacing_s, one) for one in rng]
    began = time.perf_counter()
    found = [log_energies(times, read, [[times[EDGE], times[-EDGE]]]).interval() for times, read, *_ in logs]
    seconds = (time.perf_counter() - began) / n
    truth = [np.diff(np.interp(times[[EDGE, -EDGE]], *load))[0] for times, _, *load in logs]
    row = {"mode": mode, "edges_s": value_s, "read_s": spacing_s, "n": n, "seconds": seconds}
    return row | percents(*np.array(found)[:, :, 0].T, truth)


JOBS = ("1.5 h alike", "1.5 h", "1 to 20 min", "12 h")
DAY_S, IDLE_W, READ_S = 86400, 70.0, 5


def jobs_log(jobs: str, days: int, hole_s: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    """Times and readings of a log of days, each with a job or three that swing, and the true energy.

    A job is at its upper level for a part of each cycle, whose length drifts. A hole is anywhere in a job that is
    longer.
    """
    watts = IDLE_W + 0.4 * rng.standard_normal(days * DAY_S)
    begun = []
    for start in np.arange(days) * DAY_S:
        for at in start + rng.permutation(3)[: 1 if "h" in jobs else 3] * DAY_S // 3 + rng.integers(0, DAY_S // 6):
            most = {"1 to 20 min": int(rng.uniform(60, 1200)), "12 h": 43200}.get(jobs, 5400)
            end = min(at + most, days * DAY_S)
            high, low, cycle_s, duty = 600.0, 360.0, 21.3, 0.8
            if "alike" not in jobs:
                high, cycle_s, duty = rng.uniform(250, 650), rng.uniform(3, 60), rng.uniform(0.3, 0.9)
                low = high * rng.uniform(0.5, 0.95)
            phase = np.arange(end - at) + rng.uniform(0, cycle_s) + np.cumsum(rng.normal(0, 0.3, end - at))
            watts[at:end] = np.where(phase % cycle_s < duty * cycle_s, high, low) + rng.normal(0, 6, end - at)
            begun.append((at, end))
    times = np.arange(int(rng.integers(0, READ_S)), len(watts), READ_S)
    truth = float(watts[times[0] : times[-1]].sum() + (watts[times[-1]] - watts[times[0]]) / 2)
    if hole_s:
        at, end = begun[rng.integers(len(begun))]
        lost = rng.integers(at, max(at + 1, end - hole_s))
        times = times[(times < lost) | (times >= lost + hole_s)]
    return times + 0.5, np.round(watts[times], 2), truth


def judged_jobs(jobs: str, days: int, hole_s: int, n: int, seed: int) -> dict[str, Any]:
    """One row of the table; "parts" are half-widths and root mean squares of errors in kJ."""
    logs = [
        jobs_log(jobs, days, hole_s, np.random.default_rng([seed, i, days, hole_s, JOBS.index(jobs)])) for i in range(n)
    ]
    began = time.perf_counter()
    found = [log_energies(times, read, [[times[0], times[-1]]]).interval() for times, read, _ in logs]
    seconds = (time.perf_counter() - began) / n
    mean, low, high = np.array(found)[:, :, 0].T
    truth = np.array([one[2] for one in logs])
    row = {"jobs": jobs, "days": days, "hole_s": hole_s, "n": n, "seconds": seconds}
    row |= {"half_kj": float(np.median(high - low) / 2e3), "rms_kj": float(np.sqrt(np.mean((mean - truth) ** 2)) / 1e3)}
    return row | percents(mean, low, high, truth)


SENSORS = {"25 of 100 ms": ("NVIDIA A100", 0.025), "mean over 1 s": ("NVIDIA H100", 1.0)}
LOADS = ("once", "periodic", "random", "two rests")
NOISE = ("0.5 W", "white", "fast", "slow")
CELLS, UPDATE_S = 20, 0.1


def segments(load: str, n: int, least: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Edges in readings; the level of each segment: 0 at rest, 1 at work, 2 at rest with a context."""
    if load == "once":
        return n * np.array([rng.uniform(0.1, 0.45), rng.uniform(0.55, 0.9)]), np.array([0, 1, 0])
    if load == "periodic":
        period, duty = rng.uniform(4 * least, n / 2), rng.uniform(0.25, 0.75)
        edges = np.cumsum(np.tile(period * np.array([duty, 1 - duty]), int(n / period) + 2)) - rng.uniform(0, period)
    else:
        mean = rng.uniform(3 * least, max(n / 6, 4 * least))
        edges = np.cumsum(rng.gamma(4.0, mean / 4, int(6 * n / mean) + 5)) - mean
    edges = edges[(edges > 0) & (edges < n)]
    level = (np.arange(len(edges) + 1) + rng.integers(2)) % 2
    if load == "two rests":
        level = np.where(level == 0, rng.choice([0, 2], len(level)), 1)
        lower, upper = (np.diff(edges, prepend=0, append=n)[level == one].sum() for one in (0, 2))
        if min(lower, upper) < 0.15 * (lower + upper):
            return segments(load, n, least, rng)
    return edges, level


def levels_log(sensor: str, noise: str, step_s: float, rng: np.random.Generator) -> tuple:
    """Times, readings, and true idle and working level: of the log's own time, and of the workload.

    A log has 60 to 600 readings, each of the last update, one in 0.1 s, of a GPU at 60 to 130 W at rest and 300 to
    600 W at work. Readings scatter by 30 to 60 W of 400 W above rest at work ("white"), or power does by 0.7 times
    that, with a memory of a fifth of a reading ("fast") or of two to six ("slow"); at rest by 2 or 10 % of that.
    """
    window_s, cell_s = SENSORS[sensor][1], step_s / CELLS
    least = max(4.0, 2 * window_s / step_s + 3)
    n, before = max(int(rng.integers(60, 600)), int(12 * least)), int(1.2 / cell_s)
    edges, of = segments(rng.choice(LOADS), n, least, rng)
    low, high = rng.uniform(60, 130), rng.uniform(300, 600)
    level = np.array([low, high, low + rng.uniform(0.15, 0.3) * (high - low)])
    scatter = rng.uniform(30, 60) * (high - low) / 400 * np.array([rng.choice([0.02, 0.1]), 1.0, 0.1])
    at = (np.arange(n * CELLS + 2 * before) - before + 0.5) / CELLS  # in readings
    which = of[np.searchsorted(edges, at)]
    power = level[which]
    if noise in ("fast", "slow"):
        decay = np.exp(-1 / CELLS / (0.2 if noise == "fast" else rng.uniform(2, 6)))
        swing = lfilter([np.sqrt(1 - decay**2)], [1, -decay], rng.standard_normal(len(at) + 20 * CELLS))[20 * CELLS :]
        power = power + 0.7 * scatter[which] * swing
    logged = (at > 0) & (at < n - 1)
    own = [power[logged & (which == one)].mean() for one in (0, 1)]
    times_s, phase_s = np.arange(n) * step_s, rng.uniform(0, UPDATE_S)
    updated_s = np.floor((times_s - phase_s) / UPDATE_S) * UPDATE_S + phase_s
    end, width = np.round(updated_s / cell_s).astype(int) + before, max(1, round(window_s / cell_s))
    total = np.append(0, np.cumsum(power))
    read = (total[end] - total[end - width]) / width
    sd = scatter[of[np.searchsorted(edges, times_s / step_s)]] if noise == "white" else 0.5
    return times_s, np.round(read + sd * rng.standard_normal(n), 2), own, level[:2]


def estimated_levels(sensor: str, step_s: float, times_s: np.ndarray, read: np.ndarray) -> Levels:
    """Levels as an import has them."""
    field = sensor_behind(USAGE, SENSORS[sensor][0])[1]
    response = polled_response(field, step_s, 1e-3, 0.01, float(read.mean()))
    channel = ChannelInfo("gpu", "power_w", "W", "log", response=response.to_dict())
    record = clean(np.round(1e9 * times_s).astype(np.int64) + 10**18, read, response.period_s)
    return idle_and_working_levels(record, readings_of(channel))


def judged_levels(sensor: str, noise: str, step_s: float, n: int, seed: int) -> dict:
    """One row of the table of levels; "holds" and "of_workload" are of idle, working level and their difference."""
    own, workload, half, error = [], [], [], []
    began = time.perf_counter()
    for i in range(n):
        rng = np.random.default_rng([seed, i, int(1e3 * step_s), NOISE.index(noise), len(sensor)])
        times_s, read, *truths = levels_log(sensor, noise, step_s, rng)
        found = estimated_levels(sensor, step_s, times_s, read)
        each = (found.idle, found.working, found.difference)
        if any(one.value is None for one in each):
            continue
        truth, known = (np.array([low, high, high - low]) for low, high in truths)
        low, high = np.array([(one.low, one.high) for one in each]).T + np.array([[-0.01], [0.01]])  # as printed
        own.append((low <= truth) & (truth <= high))
        workload.append((low <= known) & (known <= high))
        half.append((high - low) / 2)
        error.append(np.abs([one.value for one in each] - truth))
    row = {"sensor": sensor, "noise": noise, "read_s": step_s, "n": n, "null": 1 - len(own) / n}
    row |= {"holds": np.mean(own, axis=0).tolist(), "of_workload": np.mean(workload, axis=0).tolist()}
    row |= {"half_w": np.median(half, axis=0).tolist(), "error95_w": np.quantile(error, 0.95, axis=0).tolist()}
    return row | {"seconds": (time.perf_counter() - began) / n}


def main() -> None:
    parser = options(__doc__, n=200, seed=1)
    parser.add_argument("what", choices=("energies", "jobs", "levels"))
    parser.add_argument("-o", "--output", help="write the rows here, as JSON, after each")
    asked = parser.parse_args()
    judge, groups = judged_levels, [*product(SENSORS, NOISE, (0.1, 1.0, 5.0))]
    if asked.what == "jobs":
        judge, groups = judged_jobs, [*product(JOBS, (1, 7, 14), (0, 720))]
    if asked.what == "energies":
        judge = judged
        groups = [(mode, value_s, step_s) for mode in EDGES_S for value_s in EDGES_S[mode] for step_s in (0.1, 1.0)]
    written((judge(*group, asked.n, asked.seed) for group in groups), asked.output, json.dumps)


if __name__ == "__main__":
    main()
