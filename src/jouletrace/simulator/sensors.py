"""The sensor that samples, as NVML's records of H100s show it; its parameters are hidden from readers.

Momentary samples at about 1.2 kHz, a recursive average of them, a readout every 20 ms, and stamps with faults. The
numbers are measurements of H100s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from jouletrace.arrays import Floats, Ints

BIN_NS = 2_000.0
"""Width of a response's bins."""
CHUNK = 4_096
"""Samples whose windows are integrated at once, which bounds memory."""


@dataclass(frozen=True)
class Power:
    """Power of the GPU, constant between edges."""

    begin_ns: int  # begin of the scene, since the Unix epoch; all other times count from here
    edges_ns: Ints  # n + 1 edges, sorted
    watts: Floats  # n powers, from each edge to the next
    poles_ns: tuple[float, ...] = ()  # time constants between the chip and the sensor
    joules: Floats = field(init=False)  # n + 1 energies drawn until each edge

    def __post_init__(self) -> None:
        energy = np.cumsum(self.watts * np.diff(self.edges_ns)) * 1e-9
        object.__setattr__(self, "joules", np.r_[0.0, energy])

    @property
    def length_ns(self) -> int:
        """From the first edge to the last."""
        return int(self.edges_ns[-1])

    def energy_j(self, time_ns: Floats) -> Floats:
        """Energy drawn from the first edge to these times; power beyond the edges is that of the nearest interval."""
        beyond = np.minimum(time_ns, 0) * self.watts[0] + np.maximum(time_ns - self.length_ns, 0) * self.watts[-1]
        return np.asarray(np.interp(time_ns, self.edges_ns, self.joules) + beyond * 1e-9)

    def mean_w(self, start_ns: Floats, end_ns: Floats) -> Floats:
        """Mean power of windows; their lengths must not be zero."""
        return (self.energy_j(end_ns) - self.energy_j(start_ns)) / (end_ns - start_ns) * 1e9


@dataclass(frozen=True)
class SimulatedResponse:
    """Weights of the power around the instant of a sample."""

    first_ns: float  # time from the end of the first bin to the instant, negative for a bin after it
    weights: Floats  # weights of bins of ``BIN_NS``, the latest time first; they sum to 1

    @staticmethod
    def draw(rng: np.random.Generator) -> SimulatedResponse:
        """Two lobes, as an H100's, with widths varied by about 7 % and the centre by 10 µs."""
        lag = np.arange(0, 500_000, BIN_NS) + BIN_NS / 2
        us = lag / 1e3 / rng.uniform(0.93, 1.07)
        second, ratio = rng.uniform(60, 70), rng.uniform(0.8, 1.2)
        tail = np.where(us > 34 + second, np.exp((34 + second - us) / 40), 0.0)
        weights = bump(us, 34, 34) + ratio * bump(us, 34 + second, 42) + 0.35 * tail
        weights /= weights.sum()
        return SimulatedResponse(float(rng.uniform(-10_000, 10_000) - weights @ lag), weights)

    def behind(self, poles_ns: tuple[float, ...]) -> SimulatedResponse:
        """This response combined with preceding first-order lags."""
        weights = self.weights
        for pole in poles_ns:
            keep = np.exp(-BIN_NS / pole)
            weights = recursion(np.r_[weights, np.zeros(int(8 * pole / BIN_NS))], 1 - keep, 0.0)
        weights = np.trim_zeros(np.where(weights > 1e-7, weights, 0.0), "b")
        return SimulatedResponse(self.first_ns, weights / weights.sum())

    def see(self, power: Power, instants_ns: Floats) -> Floats:
        """Power sampled at instants, counted from the power's first edge."""
        edges = self.first_ns + BIN_NS * np.arange(len(self.weights) + 1)[::-1]
        seen = np.empty(len(instants_ns))
        for first in range(0, len(instants_ns), CHUNK):
            times = instants_ns[first : first + CHUNK, None] - edges
            energy = power.energy_j(times.ravel()).reshape(times.shape)
            seen[first : first + CHUNK] = np.diff(energy, axis=1) @ self.weights[::-1] / (BIN_NS * 1e-9)
        return seen


def bump(us: Floats, centre: float, half_width: float) -> Floats:
    """A raised cosine."""
    return np.asarray(np.where(np.abs(us - centre) < half_width, 1 + np.cos(np.pi * (us - centre) / half_width), 0.0))


@dataclass(frozen=True)
class Averaging:
    """How samples become a readable value: a recursion ``y += (x - y) / samples``."""

    samples: int = 16

    def apply(self, seen: Floats) -> Floats:
        """The value that a readout after each sample would return."""
        return recursion(seen, 1 / self.samples, float(seen[0]))


def recursion(values: Floats, share: float, before: float) -> Floats:
    """``y += share * (x - y)`` from ``before`` on; ``scipy.signal``, which has it, takes half a second to import."""
    last = before
    return np.array([last := last + share * (value - last) for value in values.tolist()])


@dataclass(frozen=True)
class SamplingSensor:
    """Momentary samples on the sensor's own clock, averaged and read every 20 ms."""

    KNOT_S = 6.0

    rate_hz: float  # samples per second where the record begins
    response: SimulatedResponse  # of one sample
    drift_hz: float = -0.3  # change of the rate after 40 s
    # Departures of the sampling clock from that, at knots ``KNOT_S`` apart; a cubic spline joins them
    wander_s: tuple[float, ...] = ()
    phase: float = 0.0  # phase of the first sample, in samples
    averaging: Averaging = Averaging()  # how samples are averaged
    jitter_ns: float = 2_000.0  # standard deviation of each sample's instant
    period_ns: float = 20_000_200.0  # period of the readout
    offset_ns: float = 30_000_000.0  # time of the first readout
    delay_ns: float = 3_400_000.0  # time from the moment whose state is read to the readout
    stamp_ns: float = 50_000.0  # scale of the stamps' scatter, which has long tails
    fifth_late: float = 0.95  # share of the fifth stamps that are about 3 ms late; their values aren't
    slipped: float = 0.005  # share of the readouts that come half a period late
    lost: float = 0.001  # share of the readouts that are missing
    noise_w: float = 0.3  # standard deviation of a reading
    quantum_w: float = 0.2  # step of readings
    gain: float = 1.0  # gain of readings

    @staticmethod
    def draw(
        rng: np.random.Generator, seconds: float, response: Callable[..., SimulatedResponse] = SimulatedResponse.draw
    ) -> SamplingSensor:
        """A sensor like that of an H100; ``response`` draws its response."""
        return SamplingSensor(
            rate_hz=rng.uniform(1205, 1255),
            response=response(rng),
            drift_hz=rng.uniform(-0.4, -0.1),
            wander_s=tuple(np.cumsum(rng.normal(0, 60e-6, int(1.5 * seconds / SamplingSensor.KNOT_S) + 3))),
            phase=rng.uniform(),
            jitter_ns=rng.uniform(0, 4_000),
            period_ns=20_000_200 + rng.uniform(-300, 400),
            offset_ns=rng.uniform(20e6, 40e6),
            delay_ns=rng.uniform(3.1e6, 3.7e6),
            stamp_ns=rng.uniform(35_000, 70_000),
            fifth_late=rng.uniform(0.7, 1.0),
            slipped=float(np.exp(rng.uniform(np.log(0.003), np.log(0.03)))),
            quantum_w=rng.uniform(0.13, 0.33),
        )

    def instants_ns(self, length_ns: float) -> Floats:
        """Instants of the samples without jitter, counted from the power's first edge."""
        seconds = np.linspace(0, length_ns * 1e-9, max(int(length_ns / 1e7), 2))
        clock = seconds.copy()
        if len(self.wander_s) > 1:
            from scipy.interpolate import CubicSpline  # slow to import

            clock += CubicSpline(self.KNOT_S * np.arange(len(self.wander_s)), self.wander_s)(seconds)
        count = self.rate_hz * clock + self.drift_hz * seconds**2 / 80 + self.phase
        return np.interp(np.arange(np.ceil(count[0]), count[-1]), count, seconds) * 1e9

    def record(self, rng: np.random.Generator, power: Power) -> Ints:
        """Rows (stamp in µs since the Unix epoch, mW), shape (n, 2)."""
        instants = self.instants_ns(power.length_ns)
        moved = instants + self.jitter_ns * rng.standard_normal(len(instants))
        state = self.averaging.apply(self.response.behind(power.poles_ns).see(power, moved))
        read, stamp = self._readouts(rng, power.length_ns)
        last = np.searchsorted(instants, read - self.delay_ns, "right") - 1
        value = self.gain * state[np.maximum(last, 0)] + self.noise_w * rng.standard_normal(len(read))
        return rows(power, stamp, np.rint(value / self.quantum_w) * self.quantum_w)

    def _readouts(self, rng: np.random.Generator, length_ns: int) -> tuple[Floats, Floats]:
        """Times at which the driver reads the state, and their stamps, in ns since the power's first edge.

        A readout that slips comes half a period late: on the grid of the others one slot is then empty and the
        next has two. Such slips explain nine tenths of the empty and double slots of five records of H100s.
        """
        slot = np.arange(max((length_ns - self.offset_ns) // self.period_ns, 0), dtype=np.int64)
        slot = slot[rng.random(len(slot)) >= self.lost]
        read = self.offset_ns + self.period_ns * slot
        slipped = rng.random(len(slot)) < self.slipped
        read[slipped] += rng.normal(10.4e6, 0.4e6, int(slipped.sum()))
        late = (slot % 5 == 0) & (rng.random(len(slot)) < self.fifth_late) | (rng.random(len(slot)) < 0.005) | slipped
        stamp = read + self.stamp_ns * np.clip(rng.standard_t(3, len(slot)), -8, 8)
        stamp += np.where(late, 2.8e6 + rng.exponential(0.45e6, len(slot)), 0.0)
        return read + rng.normal(0, 15_000, len(slot)), stamp


def rows(power: Power, stamp_ns: Floats, watts: Floats) -> Ints:
    """A record: stamps in µs since the Unix epoch and powers in mW, sorted by stamp."""
    stamp = stamp_us(power, stamp_ns)
    order = np.argsort(stamp, kind="stable")
    return np.column_stack([stamp, np.rint(np.maximum(watts, 0) * 1e3).astype(np.int64)])[order]


def stamp_us(power: Power, time_ns: Floats) -> Ints:
    """Times since the power's first edge as stamps since the Unix epoch."""
    return np.asarray((power.begin_ns + np.rint(time_ns).astype(np.int64)) // 1_000)
