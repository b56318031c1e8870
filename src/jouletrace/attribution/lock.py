"""From a timeline and a record to a fit: find the sample rate, track its phase, fit the powers, and iterate."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from jouletrace.arrays import Floats, Ints
from jouletrace.attribution.acquire import Search, Window, search
from jouletrace.attribution.activity import Activity
from jouletrace.attribution.fit import ROUNDS, Fit, enough, explained, fit
from jouletrace.attribution.observer import Averaged, Sampled
from jouletrace.run.readings import Readings
from jouletrace.sensor.models import Means, Sensor
from jouletrace.sensor.phases import GRID_S, SETTLE_S, ReadingSeries, designs, responded
from jouletrace.sensor.sampler import SampleTimes, read_out

EVIDENCE = 20.0
"""Logarithm of the likelihood ratio against another sample rate. The true rate has 51 and more in recordings of known
rate; between false rates the ratio stays below 12 (docs/results/accuracy-programs.md)."""

AVERAGES = (8, 12, 16, 20, 24, 32)
"""Lengths of the recursive average to try beside the nominal one."""

BLOCK_S, BINS = 1.0, 80
"""Blocks of a recording in which a track is followed, and phases of a sample period in each."""


@dataclass(frozen=True)
class Lock:
    """A sensor's place in time, estimated from a recording."""

    search: Search | None  # result of the rate search; None for an averaging sensor, which has no rate
    fit: Fit  # at the place with the smallest residual


@dataclass
class Attempts:
    """Results of attempts with other ranges of rates on the same recording."""

    windows: dict[bool, list[Window]] = field(default_factory=dict)
    locks: list[Lock] = field(default_factory=list)


def rephased(locked: Lock, readings: Readings) -> Lock:
    """The best fit from the same track with samples a part of a period later."""
    fits = [locked.fit]
    for part in (0.25, 0.5, 0.75):
        observer = locked.fit.observer
        assert isinstance(observer, Sampled)
        late = replace(observer, track=observer.track.later(part))
        fits.append(fit(locked.fit.activity, late, readings, fit_response=True))
        fits.append(fit(locked.fit.activity, _tuned(fits[-1]), readings, fit_response=True))
    return replace(locked, fit=min(fits, key=lambda one: one.residual_rms_w))


def lock(
    activity: Activity, sensor: Sensor | Means, readings: Readings, inner: bool = False, known: Attempts | None = None
) -> Lock:
    """Estimate a sensor's place in time together with the powers; ``checks`` decides whether to trust them.

    A sampler's track follows from powers, and powers from a track. Both grow from the window of the search to the whole
    recording, and are iterated while the residual shrinks; with less than ``EVIDENCE`` the place stays that of the
    search. An averaging sensor has a delay in place of a track.

    Raises:
        BadInputError: With too few readings within the timeline, or fewer than columns.
    """
    enough(activity, int(explained(activity, readings).sum()))
    if isinstance(sensor, Means):
        return Lock(None, _delayed(activity.whole(), sensor, readings))  # a shift from heads to tails would be a delay
    known = known or Attempts()
    found = search(sensor, activity, readings, inner, known.windows)
    if found.evidence < EVIDENCE:
        whole = SampleTimes.straight(activity.begin_s, activity.finish_s, found.rate_hz, found.one_s)
        return Lock(found, fit(activity, Sampled(sensor, whole), readings, fit_place=False, rounds=1))
    for before in known.locks:
        if before.search is not None and before.search.place == found.place:
            return replace(before, search=found)
    near = SampleTimes.straight(found.start_s, found.end_s, found.rate_hz, found.one_s)
    part = activity.between(found.start_s, found.end_s)
    expected, *others = _averagings(part, Sampled(sensor, near), readings)
    chosen = _followed(activity, expected, readings, found.rate_hz)
    for other in others:
        tried = _followed(activity, other, readings, found.rate_hz)
        chosen = tried if tried.residual_rms_w < 0.95 * chosen.residual_rms_w else chosen
    known.locks.append(Lock(found, fit(activity, _tuned(chosen), readings, fit_response=True)))
    return known.locks[-1]


def _delayed(activity: Activity, sensor: Means, readings: Readings) -> Fit:
    """The fit at the delay of the smallest residual, which has minima as close as kernels follow each other."""
    step = min(0.5 * sensor.delay_spread_s, sensor.window_s / 10)
    count = round(2 * sensor.delay_spread_s / step)
    delays = sensor.delay_s + step * np.arange(-count, count + 1)
    places = [fit(activity, Averaged(sensor, float(delay)), readings, fit_place=False) for delay in delays]
    best = min(places, key=lambda one: one.residual_rms_w)
    return fit(activity, best.observer, readings)


def _averagings(part: Activity, observer: Sampled, readings: Readings) -> list[Fit]:
    """Fits to a part of a recording: with the nominal length of the average, and with a better one if there is one."""

    def of(count: int, rounds: int = ROUNDS) -> Fit:
        sensor = replace(observer.sensor, averages=count)
        return fit(part, replace(observer, sensor=sensor), readings, rounds=rounds)

    nominal = observer.sensor.averages
    others = [count for count in AVERAGES if count != nominal]
    likely = sorted(others, key=lambda count: of(count, 1).residual_rms_w)[:1]
    fits = [fit(part, _tuned(of(count)), readings) for count in (nominal, *likely)]
    return fits if fits[-1].residual_rms_w < fits[0].residual_rms_w else fits[:1]


def _followed(activity: Activity, best: Fit, readings: Readings, rate_hz: float) -> Fit:
    """From the fit of a part to that of the whole recording, by turns of track and powers."""
    chosen = best
    for turn in range(3):
        sensor, above_w = _tuned(best).sensor, replace(best, activity=activity).above_w()
        track = follow(sensor, activity, readings, rate_hz, float(best.power_w[-1]), above_w)
        best = fit(activity, Sampled(sensor, track), readings)
        if turn and best.residual_rms_w > 0.99 * chosen.residual_rms_w:
            break
        chosen = best
    return chosen


def _tuned(fitted: Fit) -> Sampled:
    """The sensor with the readout delay of the smallest residual."""
    observer = fitted.observer
    assert isinstance(observer, Sampled)
    sensor = observer.sensor
    at, above = observer.track.instants(), fitted.above_w()
    _, total, _ = fitted.activity.seen(at, observer.response, above, above)
    seen = (fitted.power_w[-1] + total)[:, None]

    def residual(delay: float) -> float:
        read = read_out(replace(sensor, delay_s=delay), seen, at, fitted.time_s)[:, 0]
        return float(np.std(fitted.watts - fitted.drift_w - read))

    near = min((sensor.delay_s + np.arange(-0.6e-3, 0.61e-3, 0.1e-3)).tolist(), key=residual)
    return replace(
        observer, sensor=replace(sensor, delay_s=min((near + np.arange(-60e-6, 61e-6, 20e-6)).tolist(), key=residual))
    )


def follow(
    sensor: Sensor, activity: Activity, readings: Readings, rate_hz: float, idle_w: float, above_w: Floats
) -> SampleTimes:
    """The track through a recording of roughly known powers, whose blocks of ``BLOCK_S`` fit the readings best.

    It is the path of phases with the least sum of squares among those whose rate changes slowly. Neighbours bridge a
    block with little information (nothing ran) or a misleading one. ``above_w`` is that of each interval above idle.
    """
    start, end = activity.begin_s, activity.finish_s
    blocks = max(1, int((end - start - SETTLE_S) / BLOCK_S))
    begins = start + SETTLE_S + BLOCK_S * np.arange(blocks, dtype=np.float64)
    phases = np.arange(BINS) / BINS
    cost = np.zeros((blocks, BINS))
    for b, begin in enumerate(begins):
        mine = readings.between(begin, begin + BLOCK_S)
        if mine.sum() < 5:
            continue
        zero = start + np.floor((begin - SETTLE_S - start) * rate_hz) / rate_hz  # whole samples after the start
        edges = np.arange(zero - 1e-3, begin + BLOCK_S, GRID_S)
        seen = responded(sensor.response, idle_w + activity.power(edges, above_w)[0][:, None])
        times = readings.time_s[mine]
        places = ReadingSeries.from_times(times, float(zero))
        wrong = designs(sensor, seen, edges[0], np.array([rate_hz]), phases, places)[0, :, :, 0] - readings.value[mine]
        cost[b] = ((wrong - wrong.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    path = _cheapest(cost)
    straight = SampleTimes.straight(start, end, rate_hz, start)
    number = (begins + BLOCK_S / 2 - start) * rate_hz
    taken = straight.start_s + (number + path / BINS) / rate_hz
    return straight.through(number, np.asarray(taken, np.float64))


def _cheapest(cost: Floats) -> Ints:
    """The cheapest path through (blocks, phases), unwound, of slowly changing rate; shape (blocks,).

    A state is a phase and its step per block: two bins times a number that changes by at most one, that is by
    0.025 Hz per second, up to 0.4 Hz.
    """
    moves = 2 * np.arange(-16, 17)
    total = np.broadcast_to(cost[0], (len(moves), cost.shape[1])).copy()
    came = np.zeros((len(cost), *total.shape), np.int64)
    wall = np.full((1, cost.shape[1]), np.inf)
    for b in range(1, len(cost)):
        options = np.stack([np.vstack([wall, total[:-1]]), total, np.vstack([total[1:], wall])])
        came[b] = np.argmin(options, axis=0)  # which neighbour's rate was there before the move
        best = np.take_along_axis(options, came[b][None], axis=0)[0]
        total = np.stack([np.roll(row, move) for row, move in zip(best, moves, strict=True)]) + cost[b]
    rate, phase = (int(i) for i in np.unravel_index(int(np.argmin(total)), total.shape))
    path = [phase]
    for b in range(len(cost) - 1, 0, -1):
        phase -= int(moves[rate])
        rate += int(came[b][rate, phase % cost.shape[1]]) - 1
        path.append(phase)
    return np.array(path[::-1])
