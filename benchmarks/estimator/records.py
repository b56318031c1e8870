"""Records of simulated power sensors around one burst: of one in continuous time, one that samples, and of means."""

from dataclasses import dataclass

import numpy as np
from loads import Burst, Floats, Record, ar1
from scipy.signal import lfilter

from jouletrace.run import ChannelInfo


def continuous(burst: Burst, rng: np.random.Generator, before_s: float = 1.2, after_s: float = 0.9) -> Record:
    """Readings around one burst after idle: the state of ``tau y' = p - y``, and no sampler stands between.

    Power is linear between knots, edges take about 0.1 ms, a load fluctuates by sinusoids: the state and the energy are
    exact between knots.
    """
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


OFFSETS_S = np.array([-80, -55, -35, -10, 10, 30, 45, 75]) * 1e-6
"""Where one sample looks, about its middle: two lobes 65 us apart with a tail; standard deviation 50 us."""


def sampled(burst: Burst, rng: np.random.Generator, before_s: float = 1.2, after_s: float = 0.9) -> Record:
    """Readings around one burst after idle by a sensor as an H100 has it (docs/results/sensors-h100.md).

    Momentary samples at the GPU's own rate, each the power of about 0.12 ms; ``y += (x - y) / 16``; the state is read
    each 20 ms and stamped about 3.4 ms later, every fifth stamp 3 ms late.
    """
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


@dataclass(frozen=True)
class Kind:
    """One kind of sensor: seconds."""

    period_s: float
    window_s: float  # 0: since the reading before
    window_sd_s: float
    delay_sd_s: float
    jitter_s: float
    noise_w: float


KINDS = {
    "volta": Kind(0.02, 0.01, 0.003, 0.005, 0.002, 0.5),
    "ampere_datacenter": Kind(0.1, 0.025, 0.005, 0.025, 0.003, 0.5),
    "average_1s": Kind(0.1, 1.0, 0.02, 0.05, 0.005, 0.5),
    "boxcar": Kind(0.05, 0.05, 0.001, 0.005, 0.001, 0.5),
    "counter 1 ms": Kind(0.001, 0.0, 0.0, 0.0005, 0.0, 0.5),
    "counter 10 ms": Kind(0.01, 0.0, 0.0, 0.0005, 0.0, 0.5),
    "counter 100 ms": Kind(0.1, 0.0, 0.0, 0.0005, 0.0, 0.5),
}

NAMES = {name: name.split()[0] for name in KINDS} | {"boxcar": "ampere_datacenter"}
"""The kind of ``sensor.kinds`` of each; the boxcar states its own window."""

UPDATE_S = 1e-3
"""Of a counter that is polled less often."""


def means(kind: Kind, burst: Burst, rng: np.random.Generator, before_s: float = 3.0, after_s: float = 3.0) -> Record:
    """Readings around one burst after idle, from the exact integral of power that is linear between knots.

    Delays and windows differ between GPUs as ``sensor.kinds`` states; stamps jitter as it states, too. A counter's
    readings are differences of its energy over those of its stamps, and each read is up to one update of 1 ms old.
    """
    window = abs(kind.window_s + kind.window_sd_s * float(np.clip(rng.standard_normal(), -2.5, 2.5)))
    delay = kind.delay_sd_s * rng.standard_normal()
    idle, end = rng.uniform(80, 135), before_s + burst.length_s + after_s
    ends = before_s + np.array([0.0, burst.length_s])
    knots, wobble, drift = wandering(rng, end)
    edges = before_s + np.append(0, np.cumsum(burst.seconds))
    time = np.unique(np.concatenate([knots, edges, [-2.0, end + 2.0]]))
    middle = (time[1:] + time[:-1]) / 2
    piece = np.searchsorted(edges, middle, side="right") - 1
    asked = burst.watts[np.clip(piece, 0, len(burst.watts) - 1)] * (1 + np.interp(middle, knots, wobble))
    busy = (middle > ends[0]) & (middle < ends[1])
    power = np.where(busy, asked, idle + np.interp(middle, knots, drift))
    energy = np.append(0.0, np.cumsum(power * np.diff(time)))

    def upto(at: Floats) -> Floats:
        return np.interp(at, time, energy)

    stamps = np.arange(rng.random() * kind.period_s, end, kind.period_s)
    taken = stamps - delay + kind.jitter_s * rng.standard_normal(len(stamps))
    if kind.window_s:
        values = (upto(taken) - upto(taken - window)) / window
    else:
        stamps = stamps + 0.02 * kind.period_s * rng.uniform(-1, 1, len(stamps))
        phase, update = rng.random() * UPDATE_S, min(UPDATE_S, kind.period_s / 10)
        taken = np.floor((stamps - delay - phase) / update) * update + phase
        values = np.diff(upto(taken)) / np.diff(stamps)
        stamps = stamps[1:]
    values = np.round(values + kind.noise_w * rng.standard_normal(len(values)), 2)
    truth = float(np.diff(upto(ends))[0])
    return Record(stamps, values, (float(ends[0]), float(ends[1])), truth, window)


def channel(name: str) -> ChannelInfo:
    """A channel of readings that states this sensor."""
    kind = KINDS[name]
    window_s = kind.window_s or kind.period_s
    return ChannelInfo(
        "gpu", "power_w", "W", "simulated", period_s=kind.period_s, window_s=window_s, sensor=NAMES[name]
    )
