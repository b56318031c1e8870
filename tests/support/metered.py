"""Recordings of a GPU whose load held several levels, and what a meter of its supply logged: the truth is at hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from jouletrace.run import Run, tables
from make_runs import GPU, START, gpu, power_channel

STEP_NS, LEVEL_S, REST_S = 10_000_000, 10, 8
SHARES = (0, 1 / 4, 1 / 2, 3 / 4, 1, 7 / 8, 5 / 8, 3 / 8, 1 / 8)
REST_W, FULL_W = 80.0, 620.0


def drawn_w(seed: int) -> np.ndarray:
    """True power each ``STEP_NS`` from ``START`` on: rest, levels, rest; it wanders by a watt."""
    rng = np.random.default_rng([seed, 1])
    shares = np.repeat([0, *SHARES, 0], np.array([REST_S, *[LEVEL_S] * len(SHARES), REST_S]) * 100)
    wander = np.cumsum(rng.normal(0, 0.03, len(shares)))
    return REST_W + (FULL_W - REST_W) * shares + wander - wander.mean()


def _means(watts: np.ndarray, every: int) -> np.ndarray:
    return watts[: len(watts) // every * every].reshape(-1, every).mean(axis=1)


def recorded(
    seed: int = 0, gain: float = 1 / 0.97, offset_w: float = -2 / 0.97, bend_w: float = 0.0, noise_w: float = 0.5
) -> Run:
    """Return readings of a sensor each 0.1 s: drawn = offset + gain x read, and ``bend_w`` more at half of the load."""
    rng, watts = np.random.default_rng([seed, 2]), _means(drawn_w(seed), 10)
    load = (watts - REST_W) / (FULL_W - REST_W)
    read = (watts - 4 * bend_w * load * (1 - load) - offset_w) / gain + rng.normal(0, noise_w, len(watts))
    at = START + 100_000_000 * (np.arange(len(read)) + 1)
    run = Run(kind="calibrate", devices=[replace(gpu(), driver="1")], created_ns=START)
    run.channels = [power_channel(period_s=0.1, window_s=0.1, delay_s=0.05, source="a sensor")]
    rows = [{"time_ns": int(t), "device": GPU, "channel": "power_w", "value": v} for t, v in zip(at, read, strict=True)]
    run.samples = tables.from_rows(rows, "samples")
    edges = START + 1_000_000_000 * (REST_S + LEVEL_S * np.arange(len(SHARES) + 1))
    phases = [
        {"id": i, "kind": "phase", "name": f"level {i + 1}", "device": GPU, "start_ns": int(a), "end_ns": int(b)}
        for i, (a, b) in enumerate(pairwise(edges))
    ]
    run.spans = tables.from_rows(phases, "spans")
    run.calibration = {GPU: {"time_ns": START, "channels": {}, "load": "levels"}}
    return run


def logged(
    seed: int = 0,
    *,
    every_s: float = 0.5,
    noise_w: float = 0.3,
    gain: float = 1.0,
    offset_w: float = 0.0,
    clock_s: float = 0.0,
    seconds: float = 1e9,
    relative: bool = False,
) -> str:
    """Return the log of a meter, as CSV: means over the time between its rows, with its own noise and clock."""
    watts = _means(drawn_w(seed), round(every_s * 100))
    watts = offset_w + gain * watts + np.random.default_rng([seed, 3]).normal(0, noise_w, len(watts))
    start_s = 0.0 if relative else START / 1e9
    at = start_s + clock_s + every_s * (np.arange(len(watts)) + 1)
    rows = [f"{t:.6f},{w:.3f}" for t, w in zip(at, watts, strict=True) if t - at[0] < seconds]
    return "\n".join(["time [s],power [W]" if relative else "timestamp,power [W]", *rows, ""])
