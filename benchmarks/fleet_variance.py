"""How often intervals of a fleet's report hold the truth: fleets of 8 hosts x 4 GPUs x 10 runs, coefficients hidden.

    python benchmarks/fleet_variance.py [--fleets 1000]

Each fleet has standard deviations of its own (hosts, GPUs, runs, windows), drawn between 0.1 and 3 % (windows up to
2 %); ``split`` sees the readings alone. Prints Markdown tables.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from jouletrace.addons.fleet.variance import LEVELS, Split, split

WINDOWS = 20
RANGES = ((0.001, 0.03), (0.001, 0.03), (0.001, 0.03), (0.001, 0.02))

Drawn = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fleets", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print("| fleet | host | GPU | run | within | shares: host | GPU | run | within |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name, shape, kept in (
        ("8 hosts × 4 GPUs × 10 runs", (8, 4, 10), 1.0),
        ("the same, 15 % of runs lost", (8, 4, 10), 0.85),
        ("16 × 8 × 5", (16, 8, 5), 1.0),
    ):
        print(f"| {name} | " + " | ".join(coverage(shape, kept, asked.fleets, asked.seed)) + " |", flush=True)
    print("\n| GPUs of one host | max/min | distance from the median | the first one's gain | measured too far apart |")
    print("|---|--:|--:|--:|--:|")
    for gpus, runs, between in ((2, 3, 0.01), (4, 3, 0.01), (4, 3, 0.002), (8, 10, 0.002), (32, 10, 0.01)):
        found = " | ".join(of_means(gpus, runs, between, asked.fleets, asked.seed))
        print(f"| {gpus}, {runs} runs each, {100 * between:g} % apart | {found} |", flush=True)


def drawn(rng: np.random.Generator, shape: tuple[int, int, int], sds: NDArray[np.float64], kept: float) -> Drawn:
    nodes, gpus, runs = shape
    axes = np.meshgrid(*map(np.arange, (*shape, WINDOWS)), indexing="ij")
    node = axes[0].ravel()
    gpu = node * gpus + axes[1].ravel()
    run = gpu * runs + axes[2].ravel()
    host = rng.normal(0, sds[0], nodes)
    own = rng.normal(0, sds[1], nodes * gpus) + 1 + host[np.arange(nodes * gpus) // gpus]
    values = own[gpu] + rng.normal(0, sds[2], nodes * gpus * runs)[run] + rng.normal(0, sds[3], len(node))
    there = (rng.random(nodes * gpus * runs) < kept)[run]
    return values[there], node[there], gpu[there], run[there], own


def coverage(shape: tuple[int, int, int], kept: float, fleets: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    hits = np.zeros(2 * len(LEVELS))
    for number in range(fleets):
        sds = np.exp([rng.uniform(np.log(low), np.log(high)) for low, high in RANGES])
        found = solved(drawn(rng, shape, sds, kept), number)
        truths = [*sds, *(sds**2 / (sds**2).sum())]
        parts = [*(part.sd for part in found.components), *(part.share for part in found.components)]
        hits += [part.low <= truth <= part.high for part, truth in zip(parts, truths, strict=True)]
    return [f"{100 * hit / fleets:.1f} %" for hit in hits]


def of_means(gpus: int, runs: int, between: float, fleets: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    hits = np.zeros(4)
    sds = np.array([0.0, between, 0.004, 0.008])
    for number in range(fleets):
        values = drawn(rng, (1, gpus, runs), sds, 1.0)
        found, truth = solved(values, number), values[-1]
        draws = found.true_means(number)
        hits[0] += within(draws.max(axis=1) / draws.min(axis=1), truth.max() / truth.min())
        off = draws / np.median(draws, axis=1)[:, None]
        hits[1] += np.mean([within(off[:, n], truth[n] / np.median(truth)) for n in range(gpus)])
        first = int(found.means.argmin())
        gain = draws[:, first] / np.delete(draws, first, axis=1).mean(axis=1)
        hits[2] += within(gain, truth[first] / np.delete(truth, first).mean())
        hits[3] += found.means.max() / found.means.min() > truth.max() / truth.min()
    return [f"{100 * hit / fleets:.1f} %" for hit in hits]


def solved(values: Drawn, seed: int) -> Split:
    found = split(*values[:4], seed=seed)
    assert found is not None
    return found


def within(draws: NDArray[np.float64], truth: float) -> bool:
    low, high = np.quantile(draws, [0.025, 0.975])
    return bool(low <= truth <= high)


if __name__ == "__main__":
    main()
