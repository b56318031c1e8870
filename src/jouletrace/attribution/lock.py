"""From a timeline and a record to a fit: find the sample rate, track its phase, fit the powers, and iterate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from jouletrace.arrays import Floats, Ints
from jouletrace.attribution.activity import Activity
from jouletrace.attribution.fit import LEAD_S, ROUNDS, Fit, enough, explained, fit
from jouletrace.attribution.observer import Averaged, Sampled
from jouletrace.run.readings import Readings
from jouletrace.sensor.models import Means, Sensor
from jouletrace.sensor.phases import GRID_S, SETTLE_S, ReadingSeries, designs, responded
from jouletrace.sensor.sampler import SampleTimes, read_out

WINDOWS, WINDOW_S, BUSY_STEP_S = 3, 3.0, 0.1
"""Parts of a recording that are searched separately, and steps in which they may lie; a rate must hold in all."""

RATE_STEP_HZ = 0.3
"""An error of half a step makes the phase slip by a quarter of a period from the middle of a window to its ends."""

PHASES, TOGETHER = 8, 32
"""Phases of a rate that are tried, and rates at a time, whose designs take about 20 MB."""

COLUMNS = 9
"""Columns of an activity that the search distinguishes, those with most time; coarser ones cause false locks."""

PRIOR_W, PRIOR_SD_W = 500.0, 400.0
NOISE, LEAST_NOISE_W = 0.1, 0.1
"""Prior of every power, which keeps columns without information solvable, and the noise that it is weighed against: a
tenth of the readings' scatter. With 20 W for all, the prior decided where kernels take a few percent of the time and
readings scatter by 1 W."""

APART_HZ = 1.0
"""Rates this close count as one: windows are short, and the rate drifts by 0.3 Hz as a die warms."""

EVIDENCE = 20.0
"""Logarithm of the likelihood ratio against another sample rate. The true rate has 51 and more in recordings of known
rate; between false rates the ratio stays below 12 (docs/results/accuracy-programs.md)."""

AVERAGES = (8, 12, 16, 20, 24, 32)
"""Lengths of the recursive average to try beside the nominal one."""

BLOCK_S, BINS = 1.0, 80
"""Blocks of a recording in which a track is followed, and phases of a sample period in each."""


@dataclass(frozen=True)
class Search:
    """Result of a rate search."""

    rate_hz: float  # of the best rate, as the window with the smallest residual refines it
    residual_w: float  # its root mean square residual, at the best phase of each window
    runner_up_w: float  # the same of the second best rate
    evidence: float  # logarithm of the likelihood ratio of the two
    # The window with the smallest residual
    start_s: float
    end_s: float
    one_s: float  # time of one sample in it

    @property
    def start(self) -> tuple[float, float, float]:
        """From where a lock begins: rate, window and phase."""
        return self.rate_hz, self.start_s, self.one_s


def search(
    sensor: Sensor,
    activity: Activity,
    readings: Readings,
    inner: bool = False,
    made: dict[bool, list[Window]] | None = None,
) -> Search:
    """Fit powers at every rate of the sensor's range and every phase, on ``WINDOWS`` parts of a recording.

    They lie between its start and its end; with ``inner`` in equal shares of the time in which kernels run. A search of
    a wider range repeats nothing that is in ``made``, which holds for one activity and its readings.
    """
    windows = {} if made is None else made
    if inner not in windows:
        windows[inner] = [Window(sensor, activity, readings, *edges) for edges in _windows(activity, inner)]
    parts = windows[inner]
    most = max(len(part.watts) for part in parts)
    enough(activity, most, columns=False)
    parts = [part for part in parts if len(part.watts) > most / 2]  # others lack readings
    ends = [[round(rate / RATE_STEP_HZ) for rate in edges] for edges in sensor.ranges_hz]  # of a grid that all share
    rates: Floats = RATE_STEP_HZ * np.concatenate([np.arange(first, last + 1.0) for first, last in ends])
    coarse = _total(parts, [[fit.square for fit in part.fitted(rates, PHASES)] for part in parts])
    candidates = sorted(
        (_near(rate, parts) for rate in _distinct_rates(rates, coarse)), key=lambda candidate: candidate[0]
    )
    (least, best), (second, rival) = candidates[0], candidates[:2][-1]  # itself, if the range has one rate alone
    unexplained = [fit.square / max(part.watts.var(), 1e-12) for fit, part in zip(best, parts, strict=True)]
    w = int(np.argmin(unexplained))
    weights = [len(part.watts) for part in parts]
    residual_w, runner_up_w = (
        float(np.sqrt(np.average([fit.square for fit in fits], weights=weights))) for fits in (best, rival)
    )
    (_, rate_hz, one_s), evidence = best[w], second - least
    return Search(rate_hz, residual_w, runner_up_w, evidence, parts[w].start_s, parts[w].end_s, one_s)


class _Fit(NamedTuple):
    """The best fit of a window among some rates: mean square residual (W²), rate, and time of one of its samples."""

    square: float
    rate_hz: float
    one_s: float


def _near(rate_hz: float, parts: Sequence[Window]) -> tuple[float, list[_Fit]]:
    """Fits of a rate on the grid, one for each window at what suits it best within one and a half steps.

    Before them minus the logarithm of their likelihood.
    """
    rates = rate_hz + RATE_STEP_HZ * np.arange(-1.5, 1.51, 0.25)
    fits = [min(part.fitted(rates, 2 * PHASES), key=lambda fit: fit.square) for part in parts]
    return float(_total(parts, [[fit.square] for fit in fits])[0]), fits


def _windows(activity: Activity, inner: bool) -> list[tuple[float, float]]:
    """Where to search: from the first to the last part that is busy enough, since any rate fits where few kernels run.

    Rate and phase are then known for all that is between, and slip by no sample there.
    """
    # A start or an end that is unlike the rest can mislead: ``inner`` parts are another attempt.
    begin, finish = activity.begin_s, activity.finish_s
    first = begin + LEAD_S
    last = max(finish - WINDOW_S - 0.1, first)
    starts = np.linspace(first, last, max(1, round((last - first) / BUSY_STEP_S)))
    ran = np.ones(len(activity.column))
    since, middle, until = (activity.integral(starts + part * WINDOW_S, ran) for part in (0, 0.5, 1))
    busy = until - since >= 0.5 * (until - since).max()
    starts, middle = starts[busy], middle[busy]
    count = max(1, min(WINDOWS, int((finish - begin - 0.5) / WINDOW_S)))
    if inner:
        shares = (np.arange(count) + 0.5) / count
        nearest = [np.argmin(np.abs(middle - share * activity.seconds[:-1].sum())) for share in shares]
    else:
        nearest = [np.argmin(np.abs(starts - at)) for at in np.linspace(starts[0], starts[-1], count)]
    chosen = starts[nearest].tolist()
    return [(start, min(start + WINDOW_S, finish)) for start in dict.fromkeys(chosen)]


def _total(parts: Sequence[Window], square: ArrayLike) -> Floats:
    """Negative logarithm of the likelihood, from mean square residuals of each part, shape (parts, rates)."""
    return np.array([len(part.watts) for part in parts]) @ np.log(square) / 2


def _distinct_rates(rates: Floats, total: Floats) -> list[float]:
    """The six most likely rates, ``APART_HZ`` from each other, which are refined after the search."""
    chosen: list[float] = []
    for i in np.argsort(total):
        if all(abs(rates[i] - other) > APART_HZ for other in chosen):
            chosen.append(float(rates[i]))
        if len(chosen) == 6:
            break
    return chosen


class Window:
    """A part of a recording that is searched separately."""

    def __init__(self, sensor: Sensor, activity: Activity, readings: Readings, start_s: float, end_s: float) -> None:
        self.start_s, self.end_s = float(start_s), float(end_s)
        mine = readings.between(start_s + SETTLE_S, end_s - 0.005)
        self.watts = readings.value[mine]
        self._time = readings.time_s[mine]
        self._sensor = sensor
        edges = np.arange(start_s - 1e-3, end_s, GRID_S)
        self._first = edges[0]
        self._seen = responded(sensor.response, activity.table(edges, COLUMNS))
        self._fits: dict[tuple[float, int], _Fit] = {}  # searches of other ranges ask for the same again

    def fitted(self, rates_hz: Floats, phases: int) -> list[_Fit]:
        """The best fit of each rate among so many phases."""
        rates, places = rates_hz.tolist(), ReadingSeries.from_times(self._time, self.start_s)
        offsets = np.arange(phases) / phases
        new = [rate for rate in rates if (rate, phases) not in self._fits]
        for some in (new[first : first + TOGETHER] for first in range(0, len(new), TOGETHER)):
            design = designs(self._sensor, self._seen, self._first, np.array(some), offsets, places)
            squares = _mean_squares(design.reshape(-1, *design.shape[2:]), self.watts).reshape(-1, phases)
            for rate, square in zip(some, squares, strict=True):
                one_s = self.start_s + float(offsets[np.argmin(square)]) / rate
                self._fits[rate, phases] = _Fit(float(square.min()), rate, one_s)
        return [self._fits[rate, phases] for rate in rates]


def _mean_squares(design: Floats, watts: Floats) -> Floats:
    """Mean square residual at the best powers, for each phase; shape (phases,)."""
    turned = design.transpose(0, 2, 1)
    noise_w = max(NOISE * float(watts.std()), LEAST_NOISE_W)
    ridge = (noise_w / PRIOR_SD_W) ** 2
    gram = turned @ design + ridge * np.eye(design.shape[2])
    moment = turned @ watts + ridge * PRIOR_W
    powers = np.linalg.solve(gram, moment[..., None])
    return np.asarray(np.mean(((design @ powers)[..., 0] - watts) ** 2, axis=1))


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
    return replace(locked, fit=min(fits, key=lambda fitted: fitted.residual_rms_w))


def lock(
    activity: Activity, sensor: Sensor | Means, readings: Readings, inner: bool = False, earlier: Attempts | None = None
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
    earlier = earlier or Attempts()
    searched = search(sensor, activity, readings, inner, earlier.windows)
    if searched.evidence < EVIDENCE:
        whole = SampleTimes.straight(activity.begin_s, activity.finish_s, searched.rate_hz, searched.one_s)
        return Lock(searched, fit(activity, Sampled(sensor, whole), readings, fit_place=False, rounds=1))
    for before in earlier.locks:
        if before.search is not None and before.search.start == searched.start:
            return replace(before, search=searched)
    near = SampleTimes.straight(searched.start_s, searched.end_s, searched.rate_hz, searched.one_s)
    part = activity.between(searched.start_s, searched.end_s)
    expected, *others = _averagings(part, Sampled(sensor, near), readings)
    chosen = _followed(activity, expected, readings, searched.rate_hz)
    for other in others:
        tried = _followed(activity, other, readings, searched.rate_hz)
        chosen = tried if tried.residual_rms_w < 0.95 * chosen.residual_rms_w else chosen
    earlier.locks.append(Lock(searched, fit(activity, _tuned(chosen), readings, fit_response=True)))
    return earlier.locks[-1]


def _delayed(activity: Activity, sensor: Means, readings: Readings) -> Fit:
    """The fit at the delay of the smallest residual, which has minima as close as kernels follow each other."""
    step = min(0.5 * sensor.delay_spread_s, sensor.window_s / 10)
    count = round(2 * sensor.delay_spread_s / step)
    delays = sensor.delay_s + step * np.arange(-count, count + 1)
    places = [fit(activity, Averaged(sensor, float(delay)), readings, fit_place=False) for delay in delays]
    best = min(places, key=lambda fitted: fitted.residual_rms_w)
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
