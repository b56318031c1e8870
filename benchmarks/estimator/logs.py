"""Judge energies of logs: momentary readings 0.1 and 1 s apart of loads that change at random or periodically.

python benchmarks/estimator/logs.py --n 200 -o FILE.json
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from jouletrace.attribution.log_chain import log_energies

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


def estimate(times: np.ndarray, values: np.ndarray) -> tuple[float, float, float]:
    """Mean, low and high by the estimator."""
    mean, low, high = log_energies(times, values, [[times[EDGE], times[-EDGE]]]).interval()
    return mean[0], low[0], high[0]


def judged(mode: str, value_s: float, spacing_s: float, n: int, seed: int) -> dict:
    """One row of the table."""
    row: dict = {"mode": mode, "edges_s": value_s, "read_s": spacing_s, "n": n}
    rng = [np.random.default_rng([seed, i, int(1e3 * value_s), int(1e3 * spacing_s), len(mode)]) for i in range(n)]
    logs = [log(mode, value_s, spacing_s, one) for one in rng]
    began = time.perf_counter()
    mean, low, high = np.array([estimate(times, values) for times, values, *_ in logs]).T
    truth = np.array([np.diff(np.interp(times[[EDGE, -EDGE]], *load))[0] for times, _, *load in logs])
    given = np.isfinite(mean)
    known: dict = {"null": float(1 - given.mean()), "seconds": (time.perf_counter() - began) / n}
    if given.any():
        error = np.abs(mean / truth - 1)[given]
        known["holds"] = float(((low <= truth) & (truth <= high))[given].mean())
        known["half_pct"] = float(100 * np.median(((high - low) / 2 / truth)[given]))
        known["error95_pct"] = float(100 * np.quantile(error, 0.95))
    return row | {"library": known}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", help="write the rows here, as JSON, after each")
    arguments = parser.parse_args()
    rows = []
    for mode, values in EDGES_S.items():
        for value_s in values:
            for spacing_s in (0.1, 1.0):
                rows.append(judged(mode, value_s, spacing_s, arguments.n, arguments.seed))
                print(json.dumps(rows[-1]), flush=True)
                if arguments.output:
                    Path(arguments.output).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
