"""Energy counters that step: read between two of their own steps they are exact, elsewhere stale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jouletrace.errors import BadInputError
from jouletrace.run import Estimate
from jouletrace.run.readings import Readings
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.power_record import MOST_W, integrate
from jouletrace.stats.interval import Z95

Floats = NDArray[np.float64]

_MOST_J = 2.0**64 / 1e3
"""No counter goes beyond: they have 64 bits, and count in millijoules or finer."""


FLOOR = 0.01
"""Lower bound on the relative half-width of the agreement between a record and its counter.

Times of steps and of readings don't explain all by which the two differ: of four Runs on H100s that were recorded for
this project one has a ratio of 0.9982, three half-widths of these terms from 1.
"""


MOST_FALLS = 0.1
"""Share of the reads from which on falls aren't resets: the values are no counter, but energies of single intervals."""

_OF_READS = 4
"""Of fewer reads than so many for each fall it can't be said that the others rise."""

_AT_ENDS = 3
"""Steps of which the largest states the power at an end."""


@dataclass(frozen=True)
class CounterReads:
    """The sound reads of a counter, in the order of time."""

    time_ns: NDArray[np.int64]  # shape (n,)
    energy_j: Floats  # shape (n,), as read
    # Numbers of the reads before which it had restarted or jumped; energy across them is unknown
    resets: NDArray[np.intp]
    # Counts by code: "counter_reset", "clock_stepped_back", "nan", "implausible"
    issues: dict[str, int]
    falls: int  # how often a read was below the one before, among all reads

    def __len__(self) -> int:
        return len(self.time_ns)

    @property
    def counts(self) -> bool:
        """True if it is a counter at all: one rarely falls."""
        return self.falls <= min(max(2.0, MOST_FALLS * len(self)), len(self) / _OF_READS)


@dataclass(frozen=True)
class CounterSteps:
    """The steps of a counter as polling saw them."""

    time_ns: NDArray[np.int64]  # time of the first read of each new value, shape (n,)
    before_ns: NDArray[np.int64]  # time of the last read of the old one: the step came in between, shape (n,)
    energy_j: Floats  # the counter after each step, without resets, shape (n,)
    # Numbers of the steps at which it had restarted; energy across them is unknown
    resets: NDArray[np.intp]
    # Counts by code: "counter_reset", "clock_stepped_back", "nan", "implausible"
    issues: dict[str, int]

    def __len__(self) -> int:
        return len(self.time_ns)

    @property
    def period_s(self) -> float:
        """Median time between steps; NaN below two."""
        return float(np.median(np.diff(self.time_ns))) / 1e9 if len(self) > 1 else float("nan")


def sound_reads(time_ns: ArrayLike, energy_j: ArrayLike, *, most_w: float = MOST_W) -> CounterReads:
    """The polled reads of a counter in order, without those that can't be.

    Args:
        time_ns: Times of the reads, shape (n,).
        energy_j: What they said, in joules, shape (n,).
        most_w: The most that the GPU can draw: a rise that would mean more is a reset, as every fall is. Reads that
            jump so and come back are left out.

    Raises:
        BadInputError: If shapes don't match.
    """
    time, energy = np.asarray(time_ns, np.int64), np.asarray(energy_j, np.float64)
    if time.shape != energy.shape or time.ndim != 1:
        raise BadInputError(f"counter: {time.shape} times do not go with {energy.shape} readings")
    issues: dict[str, int] = {}
    finite = np.isfinite(energy)
    if not finite.all():
        issues["nan"] = int((~finite).sum())
    sound = finite & (np.abs(energy) <= _MOST_J)
    time, energy = time[sound], energy[sound]
    back = int((np.diff(time) < 0).sum())
    if back:
        issues["clock_stepped_back"] = back
        order = np.argsort(time, kind="stable")
        time, energy = time[order], energy[order]
    step_j, falls = printed_step_j(energy), int((np.diff(energy) < 0).sum())
    kept = _without_glitches(time, energy, most_w, step_j)
    if left_out := int(finite.sum()) - int(kept.sum()):
        issues["implausible"] = left_out
    time, energy = time[kept], energy[kept]
    resets = np.flatnonzero(~_plausible(np.diff(energy), np.diff(time), most_w, step_j)) + 1
    if len(resets):
        issues["counter_reset"] = len(resets)
    return CounterReads(time, energy, resets, issues, falls)


def find_steps(time_ns: ArrayLike, energy_j: ArrayLike, *, most_w: float = MOST_W) -> CounterSteps:
    """Find the steps in polled reads of a counter; arguments and errors are those of ``sound_reads``."""
    reads = sound_reads(time_ns, energy_j, most_w=most_w)
    time, energy, resets = reads.time_ns, reads.energy_j, reads.resets - 1
    change = np.diff(energy)
    at = np.flatnonzero(change)
    running = energy[1:] - np.cumsum(np.where(np.isin(np.arange(len(change)), resets), change, 0.0))
    return CounterSteps(time[1:][at], time[:-1][at], running[at], np.searchsorted(at, resets), reads.issues)


def _plausible(gained_j: Floats, apart_ns: NDArray[np.int64], most_w: float, step_j: float) -> NDArray[np.bool_]:
    """True where a GPU can have drawn so much between two reads; same shape."""
    # No counter goes longer than 2 s without a step, but that of a meter with coarse ones: so much may come at once.
    return np.asarray((gained_j >= 0) & (gained_j <= most_w * (apart_ns / 1e9 + 2.0) + step_j))


def _without_glitches(time: NDArray[np.int64], energy: Floats, most_w: float, step_j: float) -> NDArray[np.bool_]:
    """Which reads to keep: not those that jump away, after which the counter goes on as if they had not been."""
    keep = np.ones(len(time), bool)
    back = 0
    for i in np.flatnonzero(~_plausible(np.diff(energy), np.diff(time), most_w, step_j)):
        later = slice(i + 2, i + 7)  # within these it returns to its earlier course, or it has restarted
        goes_on = _plausible(energy[later] - energy[i], time[later] - time[i], most_w, step_j)
        if i >= back and goes_on.any():
            back = int(i) + 2 + int(np.argmax(goes_on))
            keep[i + 1 : back] = False
    return keep


@dataclass(frozen=True)
class Bracket:
    """Energy between two steps of a counter."""

    # Middles of the intervals in which the steps came
    start_ns: int
    end_ns: int
    energy_j: float  # what the counter gained
    time_sd_s: float  # standard uncertainty of either time, from the spacing of the reads


def between(steps: CounterSteps, first: int, last: int) -> Bracket:
    """The counter's gain from one of its steps to another."""
    middle = [int(steps.before_ns[i]) + int(steps.time_ns[i] - steps.before_ns[i]) // 2 for i in (first, last)]
    width = max(float(steps.time_ns[i] - steps.before_ns[i]) for i in (first, last)) / 1e9
    gained = float(steps.energy_j[last] - steps.energy_j[first])
    return Bracket(middle[0], middle[1], gained, width / np.sqrt(12))


def gained(reads: CounterReads) -> tuple[Estimate, float]:
    """Energy from the first read to the last in J, and the seconds that it is of; resets and jumps are left out.

    A read is up to one update old, by which either end is uncertain.

    Returns:
        The energy; null with "no_samples" below two reads, "not_a_counter" where values fall again and again, and
        "counter_stuck" where it never moved.
    """
    if len(reads) < 2:
        return Estimate.null("no_samples", "counter"), 0.0
    if not reads.counts:
        return Estimate.null("not_a_counter", "counter"), 0.0
    parts = [part for part in np.split(np.arange(len(reads)), reads.resets) if len(part) > 1]
    seconds = sum(float(reads.time_ns[part[-1]] - reads.time_ns[part[0]]) for part in parts) / 1e9
    total = sum(float(reads.energy_j[part[-1]] - reads.energy_j[part[0]]) for part in parts)
    if total <= 0 or seconds <= 0:
        return Estimate.null("counter_stuck", "counter"), seconds
    variance = sum(_variance_of_ends(reads.time_ns[part], reads.energy_j[part]) for part in parts)
    half = Z95 * float(np.sqrt(variance))
    return Estimate(total, total - half, total + half, len(reads), "counter"), seconds


def _variance_of_ends(time: NDArray[np.int64], energy: Floats) -> float:
    """Variance in J² of what a counter gained between two reads, either of which is up to an update old."""
    at = np.flatnonzero((np.diff(energy) > 0) & (np.diff(time) > 0))
    if not len(at):
        return 0.0
    since_s = np.diff(time[at + 1], prepend=time[0]) / 1e9
    update_s = float(np.median(since_s[1:])) if len(at) > 1 else float(since_s[0])
    since_s[0] = max(since_s[0], update_s)  # the step before came before the first read
    power = np.diff(energy)[at] / since_s
    ends = np.array([power[:_AT_ENDS].max(), power[-_AT_ENDS:].max()])
    return float(np.sum((update_s * ends) ** 2)) / 12


def printed_step_j(energy_j: Floats) -> float:
    """Step in J to which a counter was printed: a meter may count in hundredths of a kWh, 36 kJ each.

    0 where it is less than a joule, or can't be seen, as of zeros alone.
    """
    if not np.any(energy_j):
        return 0.0
    for unit_j in (3.6e6, 3.6e3, 1.0):
        for places in range(4 if unit_j > 1 else 1):
            counts = energy_j * 10**places / unit_j
            if np.all(np.abs(counts - np.round(counts)) < 1e-6):
                return unit_j / 10.0**places
    return 0.0


def record_over_counter(record: Readings, response: StepResponse, steps: CounterSteps) -> Estimate:
    """Energy of the record over the counter's, between two steps as far apart as there are.

    Its interval holds the uncertain times of both steps at the power that was drawn then, the
    uneven times of the readings wherever the power changed, and ``FLOOR``. The gain of the GPU's
    sensor is in both readings and can't show.

    Returns:
        The ratio, about 1; null with "no_samples", "counter_did_not_step" or "hole_in_record".
    """
    if len(record) < 2:
        return Estimate.null("no_samples", "counter")
    since, until = int(record.time_ns[0]), int(record.time_ns[-1])
    delay = round(response.delay_s * 1e9) - round(response.period_s * 5e8)
    inside = np.flatnonzero((steps.before_ns > since - min(delay, 0)) & (steps.time_ns < until - max(delay, 0)))
    # The widest run of steps without a reset.
    runs = np.split(inside, np.searchsorted(inside, steps.resets)) if len(inside) else []
    runs = [run for run in runs if len(run) > 1]
    if not runs:
        return Estimate.null("counter_did_not_step", "counter")
    run = max(runs, key=lambda run: steps.time_ns[run[-1]] - steps.time_ns[run[0]])
    found = between(
        steps,
        _quietest(record, steps, run[: max(1, len(run) // 10)]),
        _quietest(record, steps, run[-max(1, len(run) // 10) :]),
    )
    if record.hole_seconds([found.start_ns], [found.end_ns]).sum() > 0:
        return Estimate.null("hole_in_record", "counter")
    # Each reading speaks for the time before its stamp, by the response's mean delay.
    window = np.array([found.start_ns, found.end_ns]) + delay
    energy = float(integrate(record.time_ns, record.value, window[:1], window[1:])[0])
    if not np.isfinite(energy) or found.energy_j <= 0:
        return Estimate.null("counter_did_not_step", "counter")
    ends = np.interp([found.start_ns, found.end_ns], record.time_ns, record.value)
    # Where readings come unevenly, every change of power between two of them is mistimed a little.
    near = (record.time_ns > window[0]) & (record.time_ns < window[1])
    uneven = float(np.std(np.diff(record.time_ns[near]))) / 1e9 / np.sqrt(2) if near.sum() > 2 else response.period_s
    mistimed = uneven * float(np.linalg.norm(np.diff(record.value[near])))
    lag = np.sqrt(np.array(response.covariance)[0, 0]) * abs(float(ends[1] - ends[0]))
    sd = float(np.linalg.norm([*(ends * found.time_sd_s), mistimed, lag])) / found.energy_j
    value = energy / found.energy_j
    half = value * float(np.hypot(Z95 * sd, FLOOR))
    return Estimate(value, value - half, value + half, len(run), "counter")


def _quietest(record: Readings, steps: CounterSteps, among: NDArray[np.intp]) -> int:
    """Of some steps the one at the lowest power, where an error of its time costs least."""
    return int(among[np.argmin(np.interp(steps.time_ns[among], record.time_ns, record.value))])
