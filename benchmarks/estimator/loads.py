"""Loads of a GPU for the judge: what a burst asks for, as pieces of constant power.

Levels, periods and shapes are drawn here and nowhere else; nothing of an estimator is imported.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

Floats = NDArray[np.float64]

SHAPES = ("constant", "alternating", "pulses", "one pulse", "ramp", "cap", "exact 10 ms", "exact 20 ms", "exact 40 ms")
CAP_W, CAP_SD, CAP_MEMORY_S = 700.0, 0.06, 0.06
"""The limit of an H100, and how readings scatter there (docs/results/accuracy-spans.md); the recording of
an H200 there has sudden falls by a fifth as well."""


@dataclass(frozen=True)
class Record:
    """Readings around one burst."""

    stamps_s: Floats  # as the driver gives them, shape (n,)
    watts: Floats  # shape (n,)
    span_s: tuple[float, float]  # start and end of the burst
    energy_j: float  # its true energy
    rise_s: float  # the sensor's true memory


@dataclass(frozen=True)
class Burst:
    """Pieces of constant power, one after the other."""

    seconds: Floats  # length of each piece, shape (n,)
    watts: Floats  # its power, shape (n,)
    period_s: float | None = None  # of what repeats inside it

    @property
    def length_s(self) -> float:
        return float(self.seconds.sum())


def drawn(shape: str, length_s: float, rng: np.random.Generator) -> Burst:
    """One burst of a shape, about so long."""
    if shape == "constant":
        return Burst(np.array([length_s]), np.array([rng.uniform(200, 700)]))
    if shape == "one pulse":
        return one_pulse(length_s, rng)
    if shape == "ramp":
        rise = np.linspace(0, 1, max(20, round(length_s / 1e-3))) ** rng.uniform(0.6, 1.7)
        low = rng.uniform(220, 400)
        watts = low + rng.uniform(150, 400) * (rise if rng.random() < 0.5 else rise[::-1])
        return Burst(np.full(len(rise), length_s / len(rise)), watts)
    if shape == "cap":
        return capped(length_s, rng)
    if shape == "pulses":
        period, duty = log_uniform(rng, 2.5e-3, 80e-3), rng.uniform(0.05, 0.5)
        watts = np.array([rng.uniform(550, 900), rng.uniform(150, 350)])
        return repeated(period * np.array([duty, 1 - duty]), watts, length_s, rng, jitter=0.005, whole=False)
    exact = shape.startswith("exact")
    period = float(shape.split()[1]) / 1e3 if exact else log_uniform(rng, 2.5e-3, 80e-3)
    phases = rng.dirichlet(np.full(int(rng.choice([2, 4, 6])), 3.0))
    swing, middle = rng.uniform(60, 550), rng.uniform(400, 600)
    watts = middle + swing * (0.5 - np.arange(len(phases)) % 2) * rng.uniform(0.85, 1.15, len(phases))
    whole = exact or rng.random() < 0.5
    return repeated(period * phases, watts, length_s, rng, jitter=0.0 if exact else 0.005, whole=whole)


def ar1(rng: np.random.Generator, count: int, rate: float) -> Floats:
    """Unit variance, exponential memory of 1 / rate steps."""
    noise, keep = rng.standard_normal(count), np.exp(-rate)
    noise[1:] *= np.sqrt(1 - keep**2)
    return np.asarray(lfilter([1.0], [1.0, -keep], noise))


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def repeated(
    phases: Floats, watts: Floats, length_s: float, rng: np.random.Generator, *, jitter: float, whole: bool
) -> Burst:
    """Iterations of some phases; cut at the length, from anywhere in one, or as many whole ones as come closest."""
    period = float(phases.sum())
    count = max(1, round(length_s / period)) if whole else int(length_s / period) + 3
    seconds = (phases * (1 + jitter * rng.standard_normal((count, 1)))).ravel()
    watts = np.tile(watts, count)
    if whole:
        return Burst(seconds, watts, period)
    edges = np.append(0, np.cumsum(seconds)) - rng.uniform(0, period)
    cut = np.clip(edges, 0, length_s)
    there = np.diff(cut) > 0
    return Burst(np.diff(cut)[there], watts[there], period)


def one_pulse(length_s: float, rng: np.random.Generator) -> Burst:
    """A level with one pulse in its first or its last third."""
    width, low = rng.uniform(0.1, 0.3), rng.uniform(200, 350)
    before = rng.uniform(0.02, 0.33)
    parts = np.array([before, width, 1 - before - width])
    seconds = length_s * (parts if rng.random() < 0.5 else parts[::-1])
    return Burst(seconds, np.array([low, low + rng.uniform(250, 500), low]))


def capped(length_s: float, rng: np.random.Generator) -> Burst:
    """An overshoot that the limit takes back, then power that fluctuates about it."""
    count = max(5, round(length_s / 1e-3))
    step = length_s / count
    time = (np.arange(count) + 0.5) * step
    wander = ar1(rng, count, step / CAP_MEMORY_S)
    over = rng.uniform(100, 240) * np.exp(-time / rng.uniform(0.03, 0.06))
    settled = -np.expm1(-time / CAP_MEMORY_S)
    shape = 1 + CAP_SD * settled * wander
    if rng.random() < 0.5:  # the clock is taken back at once, and comes up again
        shape = 1 + CAP_SD / 4 * wander
        at = rng.exponential(0.3)
        while at < length_s:
            since = np.clip((time - at) / rng.uniform(0.2, 0.4), 0, 1)
            shape -= np.where(time >= at, rng.uniform(0.1, 0.25) * (1 - since), 0.0)
            at += rng.exponential(0.8)
    return Burst(np.full(count, step), (CAP_W - rng.uniform(0, 10)) * shape + over)
