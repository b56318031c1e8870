"""What a recording will tell before it is made: the linear bound for each way to excite a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.attribution.activity import Activity, Kind, activity_of
from jouletrace.attribution.fit import IDLE_SPREAD_W
from jouletrace.sensor.observer import Sampled
from jouletrace.sensor.sampler import Sensor, Track
from jouletrace.stats.regression import Prior, posterior

Array = NDArray[np.float64]

EXCITATIONS = ("none", "pauses", "spins", "repeats")
"""From the least to the most that is done to a program: nothing; the host sleeps up to 1 ms after an iteration; a
kernel waits up to 20 us after each operator; one operator, drawn anew each time, runs several times in place."""

PAUSE_S, SPIN_S = 1e-3, 20e-6
COPIES_S = (80e-6, 200e-6)
"""How long the copies of a repeated operator should take together, in turns: more than a sample sees."""

MOST_COPIES = 32
TRIAL_S = 6.0
"""Recordings are simulated for this long; their bound shrinks with the root of the time."""

SPREAD_W = 400.0
"""Of the powers of kernels, before anything is known."""


@dataclass(frozen=True)
class Iteration:
    """One iteration as a short trace shows it.

    Attributes:
        gap_s: Idle time before each kernel, shape (n,).
        length_s: Of each kernel, shape (n,).
        operator: To which each kernel belongs, numbers from 0 in order of their calls, shape (n,).
        label: What each operator call is called; calls with one label share their power.
    """

    gap_s: Array
    length_s: Array
    operator: NDArray[np.int64]
    label: Sequence[str]


@dataclass(frozen=True)
class Bound:
    """What readings can tell at best.

    Attributes:
        excitation: One of ``EXCITATIONS``.
        seconds: Of recording.
        half_width_w: Of a 95 % interval of the power of each label, by label, W.
        slower: Mean length of an excited iteration over that of an untouched one.
    """

    excitation: str
    seconds: float
    half_width_w: dict[str, float]
    slower: float

    def resolved(self, limit_w: float) -> float:
        """Share of the labels whose half-width is at most ``limit_w``."""
        return float(np.mean([width <= limit_w for width in self.half_width_w.values()]))


def bound(
    iteration: Iteration, excitation: str, seconds: float, sensor: Sensor, noise_w: float, seed: int = 0
) -> Bound:
    """The linear bound: response and phase known, powers constant, independent noise.

    Real programs come to 1 to 2 times this: there the response and the phase are fitted too.

    Args:
        iteration: What the program does.
        excitation: One of ``EXCITATIONS``.
        seconds: Of recording.
        sensor: That records.
        noise_w: What readings of such a program leave, some 1 to 4 W.
        seed: Of what is drawn.
    """
    activity, slower = excited(iteration, excitation, min(seconds, TRIAL_S), np.random.default_rng(seed))
    track = Track.straight(activity.begin_s, activity.finish_s, float(np.mean(sensor.rates_hz)), activity.begin_s)
    time = np.arange(activity.begin_s + 0.1, activity.finish_s, 0.02)
    none = np.zeros(len(activity.kind))
    design = Sampled(sensor, track).observe(activity, time, none, none).kinds
    spread = np.append(np.full(design.shape[1] - 1, SPREAD_W), IDLE_SPREAD_W)
    noise = noise_w * np.sqrt(min(seconds, TRIAL_S) / seconds)
    covariance = posterior(design, Prior.of(np.zeros(len(spread)), spread), noise)
    widths: dict[str, float] = {}
    for name in dict.fromkeys(iteration.label):
        weight = np.zeros(len(spread))
        for k, members in enumerate(activity.members):
            weight[k] = activity.seconds[k] * (activity.kinds[members[0]].operator == name)
        weight /= max(weight.sum(), 1e-12)
        widths[name] = 1.96 * float(np.sqrt(weight @ covariance @ weight))
    return Bound(excitation, seconds, widths, slower)


def choose(iteration: Iteration, seconds: float, sensor: Sensor, noise_w: float, limit_w: float) -> list[Bound]:
    """Bounds from the gentlest excitation on, up to the first that resolves 9 in 10 labels; the last is the choice."""
    tried: list[Bound] = []
    for excitation in EXCITATIONS:
        tried.append(bound(iteration, excitation, seconds, sensor, noise_w))
        if tried[-1].resolved(limit_w) >= 0.9:
            break
    return tried


def copies(length_s: float, long: bool) -> int:
    """How often to run an operator of this length in place: one of two values, so that copies can be distinguished."""
    wanted = round(COPIES_S[int(long)] / max(length_s, 1e-9))
    return int(np.clip(wanted, 3 if long else 2, MOST_COPIES))


def excited(
    iteration: Iteration, excitation: str, seconds: float, rng: np.random.Generator, hold_s: float = 0.0
) -> tuple[Activity, float]:
    """A timeline of an excited program, and by how much longer its iterations are.

    Args:
        iteration: What the program does.
        excitation: One of ``EXCITATIONS``.
        seconds: Length of the timeline.
        rng: Draws pauses, spins and operators.
        hold_s: For how long an operator that was drawn is repeated, iteration for iteration. A sensor that averages
            needs some windows; one that samples none.
    """
    plain = float((iteration.gap_s + iteration.length_s).sum())
    labels = list(dict.fromkeys(iteration.label))
    kind_of = np.array([labels.index(label) for label in iteration.label])
    calls = [np.flatnonzero(iteration.operator == call) for call in range(len(iteration.label))]
    lengths = np.array([iteration.length_s[call].sum() for call in calls])
    starts: list[Array] = []
    ends: list[Array] = []
    kinds: list[NDArray[np.int64]] = []
    at, count, drawn = 0.0, 0, -np.inf
    while at < seconds:
        order = np.arange(len(iteration.gap_s))
        gap, length, kind = iteration.gap_s, iteration.length_s, kind_of[iteration.operator]
        if excitation == "repeats":
            if at >= drawn + hold_s:
                call, drawn = int(rng.integers(len(calls))), at
                times = copies(float(lengths[call]), bool(rng.integers(2)))
            last = int(calls[call][-1]) + 1 if len(calls[call]) else 0
            order = np.concatenate([order[:last], np.tile(calls[call], times - 1), order[last:]])
        gap, length, kind = gap[order], length[order], kind[order]
        if excitation == "spins":
            gap = gap + rng.uniform(0, SPIN_S, len(gap)) * np.append(True, np.diff(iteration.operator[order]) != 0)
        end = at + np.cumsum(gap + length)
        starts.append(end - length)
        ends.append(end)
        kinds.append(kind)
        at, count = float(end[-1]) + (rng.uniform(0, PAUSE_S) if excitation == "pauses" else 0.0), count + 1
    start_ns, end_ns = (np.rint(np.concatenate(times) * 1e9).astype(np.int64) for times in (starts, ends))
    named = [Kind(label, label) for label in labels]
    return activity_of(start_ns, end_ns, np.concatenate(kinds), named, 0), at / count / plain
