"""How fast windows are integrated: 10 million windows, sorted by start, over a million samples.

Prints seconds, the ratio to one ``numpy.interp`` pass over the same ends, and the memory used
beyond the input. Run with ``python benchmarks/integrate_speed.py [WINDOWS] [SAMPLES]``.
"""

from __future__ import annotations

import sys
import time
import tracemalloc

import numpy as np

from jouletrace.sensor.integrate import integrate


def main(windows: int = 10_000_000, samples: int = 1_000_000) -> None:
    rng = np.random.default_rng(1)
    stamps = 1_795_000_000_000_000_000 + np.cumsum(rng.integers(15_000_000, 25_000_000, samples))
    power = rng.uniform(100, 700, samples)
    start = np.sort(rng.integers(stamps[0], stamps[-1] - 10**10, windows))
    end = start + rng.integers(10**6, 10**10, windows)
    size = stamps.nbytes + power.nbytes + start.nbytes + end.nbytes

    began = time.perf_counter()
    integrate(stamps, power, start, end)
    ours = time.perf_counter() - began

    queries, knots = (end - stamps[0]).astype(float), (stamps - stamps[0]).astype(float)
    began = time.perf_counter()
    np.interp(queries, knots, power)
    interp = time.perf_counter() - began
    del queries, knots

    tracemalloc.start()
    integrate(stamps, power, start, end)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"{windows:,} windows over {samples:,} samples: {ours:.2f} s")
    print(f"one numpy.interp pass: {interp:.2f} s; ratio {ours / interp:.2f}")
    print(f"memory beyond the input: {peak / size:.2f} x the input ({peak / 1e6:.0f} MB of {size / 1e6:.0f} MB)")


if __name__ == "__main__":
    main(*(int(arg) for arg in sys.argv[1:]))
