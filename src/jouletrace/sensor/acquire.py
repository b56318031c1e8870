"""Acquisition of a sampler's clock: a search over rate and phase, then a track through the recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.sensor.models import SampleResponse, Sensor
from jouletrace.sensor.observer import Timeline
from jouletrace.sensor.readout import Readings
from jouletrace.sensor.sampler import Track

Array = NDArray[np.float64]

GRID_S = 10e-6
"""Spacing of the table of possible samples: far finer than a response."""

WINDOWS, WINDOW_S = 3, 3.0
"""Parts of a recording that are searched separately; a rate must hold in all."""

BUSY_STEP_S = 0.1
"""Steps in which the time in which kernels ran is added up, to place these parts."""

RATE_STEP_HZ = 0.3
"""An error of half a step makes the phase slip by a quarter of a period from the middle of a window to its ends."""

PHASES = 8
KINDS = 9
"""Kinds that the search distinguishes, those with most time; coarser kinds cause false locks."""

APART_HZ = 1.0
"""Rates this close count as one: windows are short, and the rate drifts by 0.3 Hz as a die warms."""

BLOCK_S = 1.0
BINS = 80
"""Phases of a sample period in the dynamic programme, per block."""

_TOGETHER = 100
"""Readings over which an average decays by no more than a double can hold: 26 samples each, of at least 8 averaged."""

SETTLE_S = 0.12
"""Readings later than this after the start contain at most e^-9 of what was before it (e^-4.6 at 32 averages)."""


@dataclass(frozen=True)
class Search:
    """Result of a rate search."""

    rate_hz: float  # the rate with the smallest residual
    residual_w: float  # its root mean square residual, at the best phase of each window
    runner_up_w: float  # the same of the second best rate
    evidence: float  # logarithm of the likelihood ratio of the two
    # The window with the smallest residual
    start_s: float
    end_s: float
    one_s: float  # time of one sample in it

    @property
    def place(self) -> tuple[float, float, float]:
        """From where a lock begins: rate, window and phase."""
        return self.rate_hz, self.start_s, self.one_s


def search(
    sensor: Sensor, timeline: Timeline, readings: Readings, inner: bool = False, known: Windows | None = None
) -> Search:
    """Fit powers at every rate of the sensor's range and every phase, on ``WINDOWS`` parts of a recording.

    They lie between its start and its end; with ``inner`` in equal shares of the time in which kernels run. A search of
    a wider range repeats nothing that is in ``known``, which holds for one timeline and its readings.
    """
    windows = {} if known is None else known
    if inner not in windows:
        windows[inner] = [_Window(sensor, timeline, readings, *edges) for edges in _windows(timeline, inner)]
    parts = windows[inner]
    most = max(len(part.watts) for part in parts)
    parts = [part for part in parts if len(part.watts) > most / 2]  # others lack readings
    first_step, last_step = (round(rate / RATE_STEP_HZ) for rate in sensor.rates_hz)
    rates: Array = RATE_STEP_HZ * np.arange(first_step, last_step + 1, dtype=np.float64)  # a grid that all ranges share
    coarse = _total(parts, [part.least(rates) for part in parts])
    best: list[tuple[float, float, list[tuple[float, float, float]]]] = []
    for rate in _apart(rates, coarse):
        near = rate + RATE_STEP_HZ * np.arange(-1.5, 1.51, 0.25)
        fits = [part.best(near) for part in parts]
        best.append((float(_total(parts, [np.array([square]) for square, _, _ in fits])[0]), rate, fits))
    best.sort(key=lambda one: one[0])
    (first, _, fits), (second, _, others) = best[0], best[min(1, len(best) - 1)]
    weights = [len(part.watts) for part in parts]
    w = int(
        np.argmin([square / max(part.watts.var(), 1e-12) for (square, _, _), part in zip(fits, parts, strict=True)])
    )
    return Search(
        rate_hz=fits[w][1],
        residual_w=float(np.sqrt(np.average([square for square, _, _ in fits], weights=weights))),
        runner_up_w=float(np.sqrt(np.average([square for square, _, _ in others], weights=weights))),
        evidence=second - first,
        start_s=parts[w].start_s,
        end_s=parts[w].end_s,
        one_s=fits[w][2],
    )


def _windows(timeline: Timeline, inner: bool) -> list[tuple[float, float]]:
    """Where to search: from the first to the last part that is busy enough, since any rate fits where few kernels run.

    Rate and phase are then known for all that is between, and slip by no sample there.
    """
    # A start or an end that is unlike the rest can mislead: ``inner`` parts are another attempt.
    begin, finish = timeline.begin_s, timeline.finish_s
    first = begin + 0.35 if finish - begin > 1 else begin
    last = max(finish - WINDOW_S - 0.1, first)
    edges = np.linspace(begin, finish, max(2, round((finish - begin) / BUSY_STEP_S)))
    ran = np.append(0.0, np.cumsum(1 - timeline.table(edges, 0)[:, -2]))
    starts = np.linspace(first, last, max(1, round((last - first) / BUSY_STEP_S)))
    busy = np.interp(starts + WINDOW_S, edges, ran) - np.interp(starts, edges, ran)
    starts = starts[busy >= 0.5 * busy.max()]
    count = max(1, min(WINDOWS, int((finish - begin - 0.5) / WINDOW_S)))
    wanted = np.linspace(starts[0], starts[-1], count)
    if inner:
        wanted = np.interp((np.arange(count) + 0.5) / count * ran[-1], ran, edges) - WINDOW_S / 2
    chosen = [starts[np.argmin(np.abs(starts - at))] for at in wanted]
    return [(float(start), float(min(start + WINDOW_S, finish))) for start in dict.fromkeys(chosen)]


def _total(parts: Sequence[_Window], square: Sequence[Array]) -> Array:
    """Negative logarithm of the likelihood, from the mean square residual of each part."""
    return np.asarray(
        np.sum([len(part.watts) / 2 * np.log(one) for part, one in zip(parts, square, strict=True)], axis=0)
    )


def _apart(rates: Array, total: Array) -> list[float]:
    """The six most likely rates, ``APART_HZ`` from each other, which are refined after the search."""
    chosen: list[float] = []
    for i in np.argsort(total):
        if all(abs(rates[i] - other) > APART_HZ for other in chosen):
            chosen.append(float(rates[i]))
        if len(chosen) == 6:
            break
    return chosen


def follow(
    sensor: Sensor, timeline: Timeline, readings: Readings, rate_hz: float, idle_w: float, above_w: Array
) -> Track:
    """The track through a recording of roughly known powers, by dynamic programming over the phase.

    It is the path of phases with the least sum of squares among those whose rate changes slowly. Neighbours bridge a
    block with little information (nothing ran) or a misleading one. ``above_w`` is that of each interval above idle.
    """
    start, end = timeline.begin_s, timeline.finish_s
    blocks = max(1, int((end - start - SETTLE_S) / BLOCK_S))
    begins = start + SETTLE_S + BLOCK_S * np.arange(blocks, dtype=np.float64)
    phases = np.arange(BINS) / BINS
    cost = np.zeros((blocks, BINS))
    for b, begin in enumerate(begins):
        mine = readings.between(begin, begin + BLOCK_S)
        if mine.sum() < 5:
            continue
        zero = start + np.floor((begin - SETTLE_S - start) * rate_hz) / rate_hz  # whole samples after the start
        edges = np.arange(zero - 1e-3, begin + BLOCK_S + 2e-3, GRID_S)
        seen = _responded(sensor.response, idle_w + timeline.power(edges, above_w)[:, None])
        times = readings.time_s[mine]
        read = _designs(sensor, seen, edges[0], zero, begin + BLOCK_S, rate_hz, phases, times)[:, :, 0]
        wrong = read - readings.watts[mine]
        cost[b] = ((wrong - wrong.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    path = _cheapest(cost)
    straight = Track.straight(start, end, rate_hz, start)
    number = (begins + BLOCK_S / 2 - start) * rate_hz
    taken = straight.start_s + (number + path / BINS) / rate_hz
    return straight.through(number, np.asarray(taken, np.float64))


def _cheapest(cost: Array) -> NDArray[np.int64]:
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


class _Window:
    """A part of a recording that is searched separately."""

    def __init__(self, sensor: Sensor, timeline: Timeline, readings: Readings, start_s: float, end_s: float) -> None:
        self.start_s, self.end_s = float(start_s), float(end_s)
        mine = readings.between(start_s + SETTLE_S, end_s - 0.005)
        self.watts = readings.watts[mine]
        self._time = readings.time_s[mine]
        self._sensor = sensor
        edges = np.arange(start_s - 1e-3, end_s + 2e-3, GRID_S)
        self._first = edges[0]
        self._seen = _responded(sensor.response, timeline.table(edges, KINDS))
        # Searches of other ranges ask for the same again.
        self._least: dict[float, float] = {}
        self._best: dict[tuple[float, ...], tuple[float, float, float]] = {}

    def least(self, rates_hz: Array) -> Array:
        """Mean square residual at the best of ``PHASES`` phases, by rate; computed once for each rate."""
        for rate in rates_hz.tolist():
            if rate not in self._least:
                self._least[rate] = float(self.mean_squares(np.array([rate]), PHASES).min())
        return np.array([self._least[rate] for rate in rates_hz.tolist()])

    def mean_squares(self, rates_hz: Array, phases: int) -> Array:
        """Mean square residual by rate and phase, shape (rates, phases)."""
        offsets = np.arange(phases) / phases
        return np.stack([self._mean_squares(float(rate), offsets) for rate in rates_hz])

    def best(self, rates_hz: Array) -> tuple[float, float, float]:
        """The least mean square residual among some rates, its rate, and the time of a sample."""
        key = tuple(rates_hz.tolist())
        if key not in self._best:
            self._best[key] = self._search_best(rates_hz)
        return self._best[key]

    def _search_best(self, rates_hz: Array) -> tuple[float, float, float]:
        square = self.mean_squares(rates_hz, 2 * PHASES)
        rate, phase = np.unravel_index(int(np.argmin(square)), square.shape)
        return float(square.min()), float(rates_hz[rate]), float(self.start_s + phase / (2 * PHASES) / rates_hz[rate])

    def _mean_squares(self, rate_hz: float, offsets: Array) -> Array:
        design = _designs(self._sensor, self._seen, self._first, self.start_s, self.end_s, rate_hz, offsets, self._time)
        return _mean_squares(design, self.watts)


def _responded(response: SampleResponse, values: Array) -> NDArray[np.float32]:
    """Value of a sample in each bin: the convolution with the response on the grid."""
    lags = np.arange(np.floor(response.earliest_s / GRID_S), np.ceil(response.latest_s / GRID_S) + 1)
    edges = np.append(lags - 0.5, lags[-1] + 0.5) * GRID_S
    narrow, out = values.astype(np.float32), np.zeros(values.shape, np.float32)
    for weight, lag in zip(np.diff(response.within(edges)).astype(np.float32), lags.astype(int).tolist(), strict=True):
        begin, end = max(0, lag), min(len(out), len(out) + lag)
        if begin < end:
            out[begin:end] += weight * narrow[begin - lag : end - lag]
    return out


def _designs(
    sensor: Sensor,
    seen: NDArray[np.float32],
    first_edge_s: float,
    start_s: float,
    end_s: float,
    rate_hz: float,
    phases: Array,
    time_s: Array,
) -> Array:
    """Readings of each column with samples at ``start_s + (n + phase) / rate``; (phases, readings, columns)."""
    period = float(np.median(np.diff(time_s)))
    place = np.rint((time_s - time_s[0]) / period).astype(np.int64) + int((time_s[0] - start_s) / period)
    every = np.arange(place[-1] + 1)  # missing readings included
    times = np.interp(every, place, time_s) - period * np.maximum(place[0] - every, 0)
    last = np.floor((times[:, None] - sensor.delay_s - start_s) * rate_hz - phases).astype(np.int64)
    last = np.clip(last, 0, int((end_s - start_s) * rate_hz) - 2)
    count = np.diff(last, axis=0, prepend=0)
    step = 1 / (rate_hz * GRID_S)  # from one sample to the next, in entries of the table
    at = (last + phases) * step - np.arange(count.max())[:, None, None] * step
    np.maximum(at, phases * step, out=at)
    at += (start_s - first_edge_s) / GRID_S
    read = _averaged(np.take(seen, at.astype(np.int32), axis=0), count, sensor.averages)
    return np.asarray(np.moveaxis(read[place], 1, 0), np.float64)


def _averaged(values: NDArray[np.float32], count: NDArray[np.int64], averages: int) -> NDArray[np.float32]:
    """The recursive average of ``sampler.read_out`` at the readings alone.

    From one reading to the next the average decays, and the ``count`` samples in between enter. ``values`` are those of
    the samples before each reading, the latest first, shape (samples, readings, phases, columns).

    Returns:
        Shape (readings, phases, columns).
    """
    keep = np.float32(1 - 1 / averages)
    age = np.arange(len(values), dtype=np.float32)
    weight = keep**age / np.float32(averages)
    state = np.tensordot(weight, values, 1)
    for i in range(int(count[1:].min(initial=len(values))), len(values)):
        state -= weight[i] * values[i] * (count <= i)[..., None]
    state[0] = values[:, 0].mean(axis=0)
    # state[i] += keep ** count[i] * state[i - 1], as sums of what the decay so far divides; few enough that it isn't 0
    for first in range(1, len(state), _TOGETHER):
        some = slice(first, first + _TOGETHER)
        decayed = (float(keep) ** np.cumsum(count[some], axis=0))[..., None]
        state[some] = decayed * (state[first - 1] + np.cumsum(state[some] / decayed, axis=0))
    return np.asarray(state)


def _mean_squares(design: Array, watts: Array) -> Array:
    """Mean square residual at the best powers, for each phase; shape (phases,)."""
    turned = design.transpose(0, 2, 1)
    ridge = 0.05**2  # it pulls every power towards 500 W: columns without information stay solvable
    gram = turned @ design + ridge * np.eye(design.shape[2])
    moment = turned @ watts + ridge * 500.0
    powers = np.linalg.solve(gram, moment[..., None])
    return np.asarray(np.mean(((design @ powers)[..., 0] - watts) ** 2, axis=1))


Windows = dict[bool, list[_Window]]
"""The parts of a recording with what searches have computed of them, by ``inner``."""
