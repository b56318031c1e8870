"""A power sensor as an H100 has it, sample by sample: docs/results/sensors-h100.md.

Momentary samples at the GPU's own rate, each the power of about 0.12 ms; ``y += (x - y) / 16``; the state is read each
20 ms and stamped about 3.4 ms later, every fifth stamp 3 ms late.
"""

import numpy as np
from loads import Burst, Floats, Record, ar1
from scipy.signal import lfilter

OFFSETS_S = np.array([-80, -55, -35, -10, 10, 30, 45, 75]) * 1e-6
"""Where one sample looks, about its middle: two lobes 65 us apart with a tail; standard deviation 50 us."""


def record(burst: Burst, rng: np.random.Generator, before_s: float = 1.2, after_s: float = 0.9) -> Record:
    """Readings around one burst after idle."""
    rate, delay = rng.uniform(1191, 1254), rng.uniform(3.2e-3, 3.6e-3)
    idle, length = rng.uniform(115, 135), burst.length_s
    end = before_s + length + after_s
    edges = before_s + np.append(0, np.cumsum(burst.seconds))
    knots, wobble, drift = wandering(rng, end + 0.1)

    def power(time: Floats) -> Floats:
        piece = np.searchsorted(edges, time, side="right") - 1
        busy = (piece >= 0) & (piece < len(burst.watts))
        asked = burst.watts[np.clip(piece, 0, len(burst.watts) - 1)] * (1 + np.interp(time, knots, wobble))
        return np.where(busy, asked, idle + np.interp(time, knots, drift))

    at = (np.arange(int(end * rate)) + rng.random()) / rate
    seen = power(at[:, None] + OFFSETS_S).mean(1)
    states = seen[0] + lfilter([1 / 16], [1, -15 / 16], seen - seen[0])
    reads = np.arange(0.01 + 0.02 * rng.random(), at[-1], 0.0200002)
    values = states[np.searchsorted(at, reads, side="right") - 1]
    values = np.round(values + 0.3 * rng.standard_normal(len(values)), 3)
    stamps = reads + delay + 2e-5 * rng.standard_normal(len(reads))
    stamps[int(rng.integers(5)) :: 5] += rng.uniform(2.5e-3, 3.5e-3)
    cut = np.union1d(knots[(knots > before_s) & (knots < before_s + length)], edges)
    middle = (cut[1:] + cut[:-1]) / 2
    return Record(
        stamps, values, (before_s, before_s + length), float(power(middle) @ np.diff(cut)), -1 / rate / np.log(15 / 16)
    )


def wandering(rng: np.random.Generator, end_s: float) -> tuple[Floats, Floats, Floats]:
    """Times 2 ms apart, relative fluctuation of a load's power, and drift of idle power in W."""
    step = 2e-3
    knots = np.arange(0, end_s, step)
    wobble = ar1(rng, len(knots), step / rng.uniform(0.02, 0.2)) * rng.uniform(0.001, 0.006)
    return knots, wobble, np.cumsum(rng.standard_normal(len(knots))) * 0.3 * np.sqrt(step)
