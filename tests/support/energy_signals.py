"""A load and a sensor for the tests of ``energy``: truth by direct sums on a fine grid, nothing shared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter

from jouletrace.sensor.calibration.fit import fit_response
from jouletrace.sensor.calibration.response import StepResponse
from shared import once

T0 = 1_790_000_000_000_000_000
STEP = 2e-4


def ns(seconds):
    return (T0 + np.round(np.asarray(seconds) * 1e9)).astype(np.int64)


def wander(rng, n, tau, step=STEP):
    decay = np.exp(-step / tau)
    return lfilter([np.sqrt(1 - decay**2)], [1, -decay], rng.normal(size=n))


class Load:
    """Power that steps between levels, with a correlated fluctuation and, if asked, an overshoot."""

    def __init__(self, rng, duration, edges, levels, relative=0.04, tau=0.06, overshoot=0.0, drift=0.0):
        edges, levels = np.asarray(edges, float), np.asarray(levels, float)
        n = int(duration / STEP)
        t = (np.arange(n) + 0.5) * STEP
        at = np.searchsorted(edges, t, side="right")
        power = levels[at]
        split = (edges / STEP).astype(int)
        late = split + 1 - edges / STEP
        power[split] = levels[1:] * late + levels[:-1] * (1 - late)
        since = t - np.append(-1e3, edges)[at]
        rise = np.append(0, np.maximum(np.diff(levels), 0))[at]
        power = power + overshoot * rise * np.exp(-since / 0.05)
        power *= 1 + np.where(power > 180, relative, 0.003) * wander(rng, n, tau) + drift * (t / duration - 0.5)
        self.duration, self.power = duration, power

    def _running(self, power, x):
        return np.interp(x, np.arange(len(power) + 1) * STEP, np.append(0, np.cumsum(power) * STEP))

    def energy(self, start, end):
        return self._running(self.power, end) - self._running(self.power, start)


def behind(constant, power):
    """Power after a first-order low pass."""
    decay = np.exp(-STEP / constant) if constant else 0.0
    return lfilter([1 - decay], [1, -decay], power, zi=[decay * power[0]])[0]


@dataclass
class Sensor:
    period: float
    window: float
    rise: float = 0.0
    lag: float = 0.0
    jitter: float = 0.0  # of the moment of reading, truthfully stamped
    stamp_noise: float = 0.0  # of the stamp only
    noise: float = 0.3
    relative: float = 0.002
    tail_share: float = 0.0
    tail: float = 0.0

    def read(self, rng, load):
        power = (1 - self.tail_share) * behind(self.rise, load.power) + self.tail_share * behind(self.tail, load.power)
        at = np.arange(self.window + 0.3, load.duration - 0.3, self.period) + rng.uniform(0, self.period)
        at = np.sort(at + np.clip(rng.normal(0, self.jitter or 1e-12, len(at)), -0.4 * self.period, 0.4 * self.period))
        width = max(self.window, STEP)
        value = (load._running(power, at) - load._running(power, at - width)) / width
        value += np.hypot(self.noise, self.relative * value) * rng.normal(size=len(value))
        shift = rng.normal(0, self.stamp_noise or 1e-12, len(at))
        stamp = at + self.lag + np.clip(shift, -0.4 * self.period, 0.4 * self.period)
        return ns(stamp), np.round(value, 3)


SENSORS = {
    "h100": Sensor(0.020, 0.025, jitter=0.004),
    "h100 slow": Sensor(0.020, 0.025, rise=0.008, lag=0.003, stamp_noise=0.003),
    "v100": Sensor(0.020, 0.010, lag=0.005, jitter=0.001),
    "a100": Sensor(0.100, 0.025, lag=0.010, jitter=0.002),
    "average": Sensor(0.100, 1.0, lag=0.02, jitter=0.002),
    "tailed": Sensor(0.020, 0.015, rise=0.003, lag=0.002, tail_share=0.12, tail=0.018),
    "instant": Sensor(0.020, 0.0, lag=0.003, jitter=0.001),
}


def pulse_train(rng, duration, unit):
    """Edge times of pulses of many lengths around ``unit``."""
    edges, t = [], 1.5
    while t < duration - 1.5:
        t += rng.choice([1.3, 2.1, 3.7, 6.4, 12.3]) * unit * rng.uniform(0.8, 1.25)
        edges.append(t)
    edges = [edge for edge in edges if edge < duration - 1.0]
    return np.array(edges[: len(edges) // 2 * 2])


def calibration(name, seed, duration=30.0, **load):
    """Stamps, readings and edges (ns) of a commanded load read by a sensor."""
    rng = np.random.default_rng(seed)
    sensor = SENSORS[name]
    edges = pulse_train(rng, duration, min(sensor.period * 3, 0.3) if sensor.window > 0.5 else sensor.period)
    levels = np.where(np.arange(len(edges) + 1) % 2, 420.0, 120.0)
    stamps, power = sensor.read(rng, Load(rng, duration, edges, levels, **load))
    return stamps, power, ns(edges)


@once
def calibrated(name: str, seed: int = 0) -> StepResponse:
    """Response of a sensor, calibrated with a load that overshoots and drifts; a fit takes 1 s."""
    return fit_response(*calibration(name, 50 + seed, overshoot=0.1, drift=0.01))


def bursts(name, seed, length, count, gap=(0.4, 0.8), **load):
    """Stamps, readings, starts and ends (s) of bursts of about one length, and their true joules."""
    rng = np.random.default_rng(seed)
    rest = rng.uniform(*gap, count + 1) + SENSORS[name].window
    duration = length * rng.uniform(0.95, 1.05, count)
    start = 2 + np.cumsum(rest[:-1]) + np.append(0, np.cumsum(duration)[:-1])
    end = start + duration
    levels = np.empty(2 * count + 1)
    levels[0::2], levels[1::2] = rng.uniform(100, 140, count + 1), rng.uniform(200, 700, count)
    load_ = Load(rng, end[-1] + 3, np.stack([start, end], 1).ravel(), levels, **load)
    stamps, power = SENSORS[name].read(rng, load_)
    return stamps, power, start, end, load_.energy(start, end)
