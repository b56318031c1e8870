"""Sensors unlike an H100's: other responses and averages of samples, means over windows, a counter of energy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from jouletrace.simulator.sensors import BIN_NS, Averaging, Floats, Ints, Power, Response, bump, rows, stamp_us

SHAPES = ("box", "raised_cosine", "exponential", "triangle")


class Sensor(Protocol):
    """Turns power into readings."""

    def record(self, rng: np.random.Generator, power: Power) -> Ints:
        """Rows (stamp in µs since the Unix epoch, mW) in the order in which the driver gave them, shape (n, 2)."""
        ...


def other_response(rng: np.random.Generator, shape: str) -> Response:
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
    return Response(float(rng.uniform(-10_000, 10_000) - weights @ lag), weights)


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


@dataclass(frozen=True)
class CounterOnly:
    """An energy counter that is updated in steps and read in a loop; a read takes 3 ms, and 17 ms in 1 % of cases.

    Attributes:
        step_ns: Time from one step of the counter to the next.
        offset_ns: Time of the first step.
        pause_ns: Time from the end of a read to the start of the next.
        first_mj: Value of the counter at the power's first edge.
        gain: Gain of the counter.
    """

    step_ns: float = 100_000_000.0
    offset_ns: float = 30_000_000.0
    pause_ns: float = 20_000_000.0
    first_mj: int = 0
    gain: float = 1.0

    @staticmethod
    def draw(rng: np.random.Generator) -> CounterOnly:
        """A counter like that of an H100."""
        step = 100e6 * rng.uniform(0.999, 1.001)
        return CounterOnly(step, rng.uniform(0, step), first_mj=int(rng.integers(10**12)))

    def record(self, rng: np.random.Generator, power: Power) -> Ints:
        """Rows (end of a read in µs since the Unix epoch, mJ), shape (n, 2)."""
        latency = np.exp(rng.normal(np.log(2.3e6), 0.85, int(power.length_ns / self.pause_ns) + 1))
        end = np.cumsum(latency + self.pause_ns)
        end, latency = end[end < power.length_ns], latency[end < power.length_ns]
        seen = end - latency * rng.random(len(end))
        stepped = self.offset_ns + self.step_ns * np.floor((seen - self.offset_ns) / self.step_ns)
        energy = self.gain * power.energy_j(np.maximum(stepped, 0.0)) * 1e3
        return np.column_stack([stamp_us(power, end), self.first_mj + np.floor(energy).astype(np.int64)])
