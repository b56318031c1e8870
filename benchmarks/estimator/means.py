"""Power sensors whose readings are means over windows, from the exact integral of power that is linear between knots.

Delays and windows differ between GPUs as ``sensor.kinds`` states; stamps jitter as it states, too. A counter's
readings are differences of its energy over those of its stamps, and each read is up to one update of 1 ms old.
"""

from dataclasses import dataclass

import numpy as np
from loads import Burst, Floats, Record
from sampled import wandering

from jouletrace.run import ChannelInfo


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


def record(kind: Kind, burst: Burst, rng: np.random.Generator, before_s: float = 3.0, after_s: float = 3.0) -> Record:
    """Readings around one burst after idle; the sensor's delay is about half its update late where that is known."""
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
