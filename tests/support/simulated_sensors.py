"""Sensors unlike an H100's: other responses and averages of samples, means over windows, a counter of energy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from jouletrace.arrays import Floats, Ints
from jouletrace.simulator.sensors import BIN_NS, Averaging, Power, SimulatedResponse, bump, rows

SHAPES = ("box", "raised_cosine", "exponential", "triangle")


class Sensor(Protocol):
    """Turns power into readings."""

    def record(self, rng: np.random.Generator, power: Power) -> Ints:
        """Rows (stamp in µs since the Unix epoch, mW) in the order in which the driver gave them, shape (n, 2)."""
        ...


def other_response(rng: np.random.Generator, shape: str) -> SimulatedResponse:
    """A response of one of ``SHAPES``, with its widths varied by about 7 % and its centre by 10 µs."""
    lag = np.arange(0, 500_000, BIN_NS) + BIN_NS / 2
    us = lag / 1e3 / rng.uniform(0.93, 1.07)
    if shape == "box":
        weights = ((us >= 0) & (us < 140)).astype(float)
    elif shape == "raised_cosine":
        weights = bump(us, 100, 100)
    elif shape == "exponential":
        weights = np.where(us >= 15, np.exp(-(us - 15) / 60), 0.0)
    else:
        weights = np.clip(np.minimum(us / 30, (150 - us) / 120), 0, None)
    weights /= weights.sum()
    return SimulatedResponse(float(rng.uniform(-10_000, 10_000) - weights @ lag), weights)


@dataclass(frozen=True)
class BlockMeans(Averaging):
    """Means of blocks of samples: each is available from its last sample to the last but one of the next block."""

    def apply(self, seen: Floats) -> Floats:
        """The value that a readout after each sample would return."""
        whole = len(seen) // self.samples
        means: Floats = seen[: whole * self.samples].reshape(whole, -1).mean(axis=1)
        held = np.r_[np.full(self.samples - 1, seen[0]), np.repeat(means, self.samples)]
        return np.asarray(held[: len(seen)])


@dataclass(frozen=True)
class WindowSensor:
    """Means over a window, one per period; power between windows has no effect.

    Attributes:
        period_ns: Time from reading to reading.
        window_ns: Window over which a reading is the mean.
        offset_ns: Time of the first reading's stamp.
        delay_ns: Time from the window's end to the stamp.
        stamp_ns: Standard deviation of stamps.
        noise_w: Standard deviation of a reading.
        gain: Gain of readings.
    """

    period_ns: float
    window_ns: float
    offset_ns: float = 50_000_000.0
    delay_ns: float = 2_000_000.0
    stamp_ns: float = 300_000.0
    noise_w: float = 0.3
    gain: float = 1.0

    @staticmethod
    def part_time(rng: np.random.Generator) -> WindowSensor:
        """25 ms of every 100 ms: A100s, by published work."""
        return WindowSensor(*_hidden(rng, 100e6, 25e6))

    @staticmethod
    def boxcar(rng: np.random.Generator) -> WindowSensor:
        """20 ms of every 20 ms."""
        return WindowSensor(*_hidden(rng, 20e6, 20e6))

    @staticmethod
    def average(rng: np.random.Generator) -> WindowSensor:
        """The last second, every 100 ms: H100s' ``POWER_AVERAGE``."""
        return WindowSensor(*_hidden(rng, 100e6, 1000e6))

    def record(self, rng: np.random.Generator, power: Power) -> Ints:
        """Rows (stamp in µs since the Unix epoch, mW), shape (n, 2), of windows that lie within the power."""
        stamp = np.arange(self.offset_ns, power.length_ns, self.period_ns)
        stamp = stamp[stamp >= self.window_ns + self.delay_ns]
        end = stamp - self.delay_ns
        watts = self.gain * power.mean_w(end - self.window_ns, end) + self.noise_w * rng.standard_normal(len(stamp))
        return rows(power, stamp + self.stamp_ns * rng.standard_normal(len(stamp)), watts)


def _hidden(rng: np.random.Generator, period_ns: float, window_ns: float) -> tuple[float, float, float, float]:
    """Period, window, offset and delay of a GPU, near the nominal ones."""
    return (
        period_ns * rng.uniform(0.9999, 1.0001),
        window_ns * rng.uniform(0.98, 1.02),
        rng.uniform(0.2, 1.2) * period_ns,
        rng.uniform(1e6, 5e6),
    )
