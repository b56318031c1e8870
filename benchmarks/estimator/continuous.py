"""A power sensor in continuous time: readings are the state of ``tau y' = p - y``, and no sampler stands between.

Power is linear between knots, edges take about 0.1 ms, a load fluctuates by sinusoids: the state and the energy are
exact between knots.
"""

import numpy as np
from loads import Burst, Record


def record(burst: Burst, rng: np.random.Generator, before_s: float = 1.2, after_s: float = 0.9) -> Record:
    """Readings around one burst after idle."""
    tau, delay = rng.uniform(0.0122, 0.0131), rng.uniform(3.3e-3, 3.5e-3)
    idle, slope, length = rng.uniform(115, 135), rng.normal(0, 0.5), burst.length_s
    end = before_s + length + after_s
    edge_s = np.minimum(rng.uniform(40e-6, 120e-6), 0.3 * burst.seconds.min())
    edges = before_s + np.append(0, np.cumsum(burst.seconds))
    frequency = np.exp(rng.uniform(np.log(0.3), np.log(50), 12))
    phase, size = rng.uniform(0, 2 * np.pi, 12), rng.uniform(0.0005, 0.0025)
    reads = np.arange(0.01 + 0.02 * rng.random(), end, 0.0200002) + 2e-5 * rng.standard_normal()
    fine = np.arange(before_s, before_s + length, 1e-3)
    ends = edges[[0, -1]]
    time = np.unique(np.concatenate([[0.0, end + 0.1], ends, edges - edge_s / 2, edges + edge_s / 2, fine, reads]))
    base = np.interp(time, [0.0, end], [idle, idle + slope * end])
    middle = np.sort(np.concatenate([edges - edge_s / 2, edges + edge_s / 2]))
    wave = size * np.sin(2 * np.pi * frequency * time[:, None] + phase).sum(1)
    levels = np.concatenate([[0.0], np.repeat(burst.watts, 2), [0.0]])
    share = np.interp(time, middle, np.concatenate([[0.0], np.ones(len(middle) - 2), [0.0]]))
    power = base * (1 - share) + np.interp(time, middle, levels) * (1 + wave * share)
    span = np.diff(time)
    slopes = np.diff(power) / span
    keep = np.exp(-span / tau)
    # The response to a ramp lags it by tau.
    start, finish = power[:-1] - tau * slopes, power[1:] - tau * slopes
    state, states = power[0], np.empty(len(time))
    states[0] = state
    for i, (f, a, b) in enumerate(zip(keep.tolist(), start.tolist(), finish.tolist(), strict=True)):
        state = b + (state - a) * f
        states[i + 1] = state
    values = states[np.searchsorted(time, reads)]
    values = np.round(values + rng.uniform(0.2, 0.5) * rng.standard_normal(len(values)), 3)
    inside = (time[:-1] >= ends[0]) & (time[1:] <= ends[1])
    energy = float(((power[1:] + power[:-1]) / 2 * span)[inside].sum())
    stamps = reads + delay + 3e-5 * rng.standard_normal(len(reads))
    return Record(stamps, values, (float(ends[0]), float(ends[1])), energy, tau)
