"""A search over rate and phase of a sampler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from jouletrace.arrays import Floats
from jouletrace.attribution.activity import Activity
from jouletrace.attribution.fit import LEAD_S, enough
from jouletrace.run.readings import Readings
from jouletrace.sensor.models import Sensor
from jouletrace.sensor.phases import GRID_S, SETTLE_S, ReadingSeries, designs, responded

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
    def place(self) -> tuple[float, float, float]:
        """From where a lock begins: rate, window and phase."""
        return self.rate_hz, self.start_s, self.one_s


def search(
    sensor: Sensor,
    activity: Activity,
    readings: Readings,
    inner: bool = False,
    known: dict[bool, list[Window]] | None = None,
) -> Search:
    """Fit powers at every rate of the sensor's range and every phase, on ``WINDOWS`` parts of a recording.

    They lie between its start and its end; with ``inner`` in equal shares of the time in which kernels run. A search of
    a wider range repeats nothing that is in ``known``, which holds for one activity and its readings.
    """
    windows = {} if known is None else known
    if inner not in windows:
        windows[inner] = [Window(sensor, activity, readings, *edges) for edges in _windows(activity, inner)]
    parts = windows[inner]
    most = max(len(part.watts) for part in parts)
    enough(activity, most, columns=False)
    parts = [part for part in parts if len(part.watts) > most / 2]  # others lack readings
    ends = [[round(rate / RATE_STEP_HZ) for rate in edges] for edges in sensor.ranges_hz]  # of a grid that all share
    rates: Floats = RATE_STEP_HZ * np.concatenate([np.arange(first, last + 1.0) for first, last in ends])
    coarse = _total(parts, [[fit.square for fit in part.fitted(rates, PHASES)] for part in parts])
    candidates = sorted((_near(rate, parts) for rate in _distinct_rates(rates, coarse)), key=lambda one: one[0])
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
        self._known: dict[tuple[float, int], _Fit] = {}  # searches of other ranges ask for the same again

    def fitted(self, rates_hz: Floats, phases: int) -> list[_Fit]:
        """The best fit of each rate among so many phases."""
        rates, places = rates_hz.tolist(), ReadingSeries.from_times(self._time, self.start_s)
        offsets = np.arange(phases) / phases
        new = [rate for rate in rates if (rate, phases) not in self._known]
        for some in (new[first : first + TOGETHER] for first in range(0, len(new), TOGETHER)):
            design = designs(self._sensor, self._seen, self._first, np.array(some), offsets, places)
            squares = _mean_squares(design.reshape(-1, *design.shape[2:]), self.watts).reshape(-1, phases)
            for rate, square in zip(some, squares, strict=True):
                one_s = self.start_s + float(offsets[np.argmin(square)]) / rate
                self._known[rate, phases] = _Fit(float(square.min()), rate, one_s)
        return [self._known[rate, phases] for rate in rates]


def _mean_squares(design: Floats, watts: Floats) -> Floats:
    """Mean square residual at the best powers, for each phase; shape (phases,)."""
    turned = design.transpose(0, 2, 1)
    noise_w = max(NOISE * float(watts.std()), LEAST_NOISE_W)
    ridge = (noise_w / PRIOR_SD_W) ** 2
    gram = turned @ design + ridge * np.eye(design.shape[2])
    moment = turned @ watts + ridge * PRIOR_W
    powers = np.linalg.solve(gram, moment[..., None])
    return np.asarray(np.mean(((design @ powers)[..., 0] - watts) ** 2, axis=1))
