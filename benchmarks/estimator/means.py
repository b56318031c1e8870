"""Intervals of logs of an H100's power.draw: means over 1 s, updated each 0.1 s or so, polled.

    python benchmarks/estimator/means.py SPACING SECONDS N SEED LOAD...

Loads are slow, second, fast, jobs and cycle: power that steps at random or in a period. Readings are of a simulator
that is written here, apart from the package, and of that of the tests. Prints how many of N intervals hold, their
median half-width, and 1.96 times the root mean square error, which is what would do.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from jouletrace.attribution.spans import span_energies
from jouletrace.formats.importers.power_sensor import polled_response
from jouletrace.sensor.kinds import USAGE, calibrated, sensor_behind
from jouletrace.sensor.power_record import clean
from jouletrace.simulator import sensors
from simulated_sensors import WindowSensor

BEGIN_S, UPDATE_S, WINDOW_S, NOISE_W, POLL_S, DRIFT = 5.0, 0.1021, 1.0, 0.3, 0.004, 0.01
"""Updates are as far apart as those of the real record (dyn_poll.npy); a loop's spacing is up to 1 % above the one
that was asked for. So ages of readings pass through all that there are, as they do in no log that keeps step."""


class Power:
    """Power that steps at edges, shape (n + 1,), to watts, shape (n,); the first of them before."""

    def __init__(self, edges: np.ndarray, watts: np.ndarray) -> None:
        self.edges, self.watts = edges, watts
        self._sum = np.append(0.0, np.cumsum(watts * np.diff(edges)))

    def energy(self, begin: np.ndarray | float, end: np.ndarray | float) -> np.ndarray:
        """Energies between times, J."""
        first = self.watts[0]
        upto = [np.interp(t, self.edges, self._sum) + first * np.minimum(t, self.edges[0]) for t in (begin, end)]
        return upto[1] - upto[0]


def load(rng: np.random.Generator, kind: str, until: float) -> Power:
    """A load of this kind."""
    period = rng.uniform(0.3, 4)
    lasts = {
        "slow": lambda: rng.gamma(4, 5 / 4, 2000),
        "second": lambda: rng.gamma(4, 1 / 4, 4000),
        "fast": lambda: rng.gamma(3, 0.2 / 3, 20_000),
        "jobs": lambda: np.where(np.arange(600) % 2, rng.uniform(5, 15, 600), rng.uniform(2, 8, 600)),
        "cycle": lambda: np.resize([0.6 * period, 0.4 * period], 4000),
    }[kind]()
    edges = np.append(0.0, np.cumsum(lasts))
    edges = edges[: np.searchsorted(edges, until) + 2]
    low, high, steps = rng.uniform(80, 130), rng.uniform(300, 650), len(edges) - 1
    two = kind == "jobs" or rng.random() < 0.5
    return Power(edges, np.where(np.arange(steps) % 2, low, high) if two else rng.uniform(low, high, steps))


def polled(rng: np.random.Generator, power: Power, until: float, spacing: float, own: bool) -> tuple[np.ndarray, ...]:
    """Times and values of a log."""
    phase = rng.random() * UPDATE_S
    times = np.arange(2 + rng.random(), until, spacing * (1 + DRIFT * rng.random()))
    times = times + rng.uniform(0, POLL_S, len(times))
    if own:
        update = np.floor((times - phase) / UPDATE_S) * UPDATE_S + phase
        value = power.energy(update - WINDOW_S, update) / WINDOW_S
    else:
        steps = sensors.Power(0, np.round(power.edges * 1e9).astype(np.int64), power.watts, ())
        rows = WindowSensor.average(rng).record(rng, steps)
        last = np.searchsorted(rows[:, 0] / 1e6, times, side="right") - 1
        times, value = times[last >= 0], rows[last[last >= 0], 1] / 1e3
    return times, np.round(value + NOISE_W * rng.standard_normal(len(value)), 2)


def judged(spacing: float, seconds: float, number: int, first: int, kind: str, own: bool) -> str:
    """A line on intervals of logs of one kind of load."""
    _, field = sensor_behind(USAGE, "NVIDIA H100 80GB HBM3")
    rows = []
    for seed in range(number):
        rng = np.random.default_rng([first, seed, len(kind), own])
        power = load(rng, kind, seconds + 17)
        times, value = polled(rng, power, seconds + 8, spacing, own)
        response = polled_response(field, spacing, 1e-3, 0.01, float(value.mean()))
        record = clean((1e18 + times * 1e9).astype(np.int64), value, response.period_s)
        span = np.int64(10**18) + (np.array([BEGIN_S, BEGIN_S + seconds]) * 1e9).astype(np.int64)
        found = span_energies(record, calibrated(response), span[:1], span[1:], bursts_ns=[])
        truth = float(power.energy(BEGIN_S, BEGIN_S + seconds))
        rows.append((truth, found.energy_j[0], found.low_j[0], found.high_j[0]))
    truth, stated, low, high = np.array(rows, np.float64).T
    known = np.isfinite(stated)
    holds = np.mean((low <= truth)[known] & (truth <= high)[known])
    half = np.median(((high - low) / 2 / truth)[known])
    would = 1.96 * np.sqrt(np.mean((stated / truth - 1)[known] ** 2))
    simulator = "own" if own else "tests"
    return f"{kind:6} {simulator:5} {known.sum()} of {number}: hold {holds:.1%}, ± {half:.2%}, would do {would:.2%}"


def main() -> None:
    """Judge the loads that are named."""
    spacing, seconds, number, first = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    for kind in sys.argv[5:]:
        for own in (True, False):
            print(judged(spacing, seconds, number, first, kind, own), flush=True)


if __name__ == "__main__":
    main()
