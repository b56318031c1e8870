"""Energy counters that step: read between two of their own steps they are exact, elsewhere stale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jouletrace.errors import BadInputError
from jouletrace.run import ChannelInfo, Estimate
from jouletrace.run.readings import Readings
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.power_record import MOST_OF_A_BOARD_W, MOST_W, integrate, printed_step
from jouletrace.stats.interval import Z95

Floats = NDArray[np.float64]

_MOST_J = 2.0**64 / 1e3
"""No counter goes beyond: they have 64 bits, and count in millijoules or finer."""


_PRINTED_J = (*(3.6e6 / 10**places for places in range(7)), 1.0)
"""kWh and Wh with up to three places, and joules."""

FLOOR = 0.01
"""Lower bound on the relative half-width of the agreement between a record and its counter.

Times of steps and of readings don't explain all by which the two differ: of four Runs on H100s that were recorded for
this project one has a ratio of 0.9982, three half-widths of these terms from 1.
"""


MOST_FALLS = 0.1
"""Share of the reads from which on falls aren't resets: the values are no counter, but energies of single intervals."""

_OF_READS = 4
"""Of fewer reads than so many for each fall it can't be said that the others rise."""

_LONGEST_S = 2.0
"""No counter goes longer without a step, but that of a meter with coarse ones."""

_FROM_ZERO, _NEXT = 2.0, 10
"""Energy and power of a first rise from 0, over the largest of so many next, from which on the 0 isn't believed."""

_OVER_SECOND, _OVER_USUAL = 2.0, 5.0
"""A rise at more than so many times the power of any other, and of most, is a jump, if no GPU draws it."""

_AT_ENDS = 3
"""Steps of which the largest states the power at an end."""


@dataclass(frozen=True)
class CounterReads:
    """The sound reads of a counter, in the order of time."""

    time_ns: NDArray[np.int64]  # shape (n,)
    energy_j: Floats  # shape (n,), as read
    # Numbers of the reads before which it had restarted or jumped; energy across them is unknown
    resets: NDArray[np.intp]
    left_out: int  # how many others were numbers, but no counts
    falls: int  # how often a read was below the one before, among all reads
    channel: ChannelInfo | None = None  # whose calibration against a meter turns what it gained into what was drawn

    def __len__(self) -> int:
        return len(self.time_ns)

    def drawn_j(self, first: int, last: int) -> float:
        """Energy that was drawn between two of them, in J."""
        gained_j = float(self.energy_j[last] - self.energy_j[first])
        seconds = float(self.time_ns[last] - self.time_ns[first]) / 1e9
        return gained_j if self.channel is None else self.channel.drawn_j(gained_j, seconds)

    @property
    def counts(self) -> bool:
        """True if it is a counter at all: one rarely falls."""
        return self.falls <= min(max(2.0, MOST_FALLS * len(self)), len(self) / _OF_READS)


def sound_reads(time_ns: ArrayLike, energy_j: ArrayLike, *, most_w: float = MOST_W) -> CounterReads:
    """The polled reads of a counter in order, without those that can't be.

    Args:
        time_ns: Times of the reads, shape (n,).
        energy_j: What they said, in joules, shape (n,).
        most_w: The most that the GPU can draw: a rise that would mean more since the last one, and an update of the
            counter before it, is a reset, as every fall is. Reads that jump so and come back are left out.

    Raises:
        BadInputError: If shapes don't match.
    """
    time, energy = np.asarray(time_ns, np.int64), np.asarray(energy_j, np.float64)
    if time.shape != energy.shape or time.ndim != 1:
        raise BadInputError(f"counter: {time.shape} times do not go with {energy.shape} readings")
    finite = np.isfinite(energy)
    order = np.argsort(time, kind="stable")
    order = order[(finite & (np.abs(energy) <= _MOST_J))[order]]
    time, energy = time[order], energy[order]
    if len(time) > 2 and energy[0] == 0:
        at = np.flatnonzero(np.diff(energy))[: _NEXT + 1]
        rises = np.diff(energy)[at], _watts(time, energy)[at]
        if len(at) > 1 and all(rise[0] > _FROM_ZERO * rise[1:].max() > 0 for rise in rises):  # it had not been read
            time, energy = time[at[0] + 1 :], energy[at[0] + 1 :]
    watts = np.sort(_watts(time, energy)[np.diff(energy) > 0])
    if most_w >= MOST_W and len(watts) > 2:  # what it counts is unknown
        most_w = min(most_w, max(MOST_OF_A_BOARD_W, _OVER_SECOND * watts[-2], _OVER_USUAL * float(np.median(watts))))
    step_j, falls = printed_step_j(energy), int((np.diff(energy) < 0).sum())
    stretches = np.diff(time[1:][np.diff(energy) != 0]) / 1e9
    update_s = min(float(np.median(stretches)), _LONGEST_S) if len(stretches) else _LONGEST_S

    def possible(gained_j: Floats, apart_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.asarray((gained_j >= 0) & (gained_j <= most_w * (apart_ns / 1e9 + update_s) + step_j))

    kept = _without_glitches(time, energy, possible)
    time, energy = time[kept], energy[kept]
    resets = np.flatnonzero(~possible(np.diff(energy), _since_ns(time, energy))) + 1
    return CounterReads(time, energy, resets, int(finite.sum()) - len(time), falls)


def _since_ns(time: NDArray[np.int64], energy: Floats) -> NDArray[np.int64]:
    """Time of each read but the first since the last new value before it, in which all that it gained was drawn."""
    new = np.append(True, np.diff(energy) != 0)[: len(time)]
    return time[1:] - time[np.maximum.accumulate(np.where(new, np.arange(len(time)), 0))[:-1]]


def _watts(time: NDArray[np.int64], energy: Floats) -> Floats:
    """Mean power of each rise, in the time in which it was drawn."""
    return np.asarray(np.diff(energy) / (np.maximum(_since_ns(time, energy), 1) / 1e9))


def _without_glitches(
    time: NDArray[np.int64], energy: Floats, possible: Callable[[Floats, NDArray[np.int64]], NDArray[np.bool_]]
) -> NDArray[np.bool_]:
    """Which reads to keep: not those that jump away, after which the counter goes on as if they had not been."""
    keep = np.ones(len(time), bool)
    back = 0
    for i in np.flatnonzero(~possible(np.diff(energy), _since_ns(time, energy))):
        later = slice(i + 2, i + 7)  # within these it returns to its earlier course, or it has restarted
        returns = (energy[later] - energy[i + 1]) * (energy[i + 1] - energy[i]) < 0
        goes_on = returns & possible(energy[later] - energy[i], time[later] - time[i])
        if i >= back and goes_on.any():
            back = int(i) + 2 + int(np.argmax(goes_on))
            keep[i + 1 : back] = False
    return keep


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
    if seconds <= 0 or sum(float(reads.energy_j[part[-1]] - reads.energy_j[part[0]]) for part in parts) <= 0:
        return Estimate.null("counter_stuck", "counter"), seconds
    total = sum(reads.drawn_j(part[0], part[-1]) for part in parts)
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
    if len(time) == 2:  # a pair doesn't show its updates: a coarse step takes long, others don't
        update_s = min(update_s, max(_LONGEST_S, printed_step_j(energy) / float(np.diff(energy)[0] / since_s[0])))
    since_s[0] = max(since_s[0], update_s)  # the step before came before the first read
    power = np.diff(energy)[at] / since_s
    ends = np.array([power[:_AT_ENDS].max(), power[-_AT_ENDS:].max()])
    return float(np.sum((update_s * ends) ** 2)) / 12


def printed_step_j(energy_j: Floats) -> float:
    """Step in J to which a counter was printed, 0 where it is less than a joule, or can't be seen, as of zeros alone.

    A meter may count in hundredths of a kWh, 36 kJ each.
    """
    return printed_step(energy_j, _PRINTED_J) if np.any(energy_j) else 0.0


def record_over_counter(record: Readings, response: StepResponse, reads: CounterReads) -> Estimate:
    """Energy of the record over the counter's, between two of its steps as far apart as there are.

    A step came between the read of a new value and the one before. The interval holds these uncertain times at the
    power that was drawn then, the uneven times of the readings wherever the power changed, and ``FLOOR``. The gain of
    the GPU's sensor is in both readings and can't show.

    Returns:
        The ratio, about 1; null with "no_samples", "counter_did_not_step" or "hole_in_record".
    """
    if len(record) < 2:
        return Estimate.null("no_samples", "counter")
    time, power = record.time_ns, record.value
    delay = round(response.delay_s * 1e9) - round(response.period_s * 5e8)
    at = np.flatnonzero(np.diff(reads.energy_j)) + 1
    before, after = reads.time_ns[at - 1], reads.time_ns[at]
    inside = (before > time[0] - min(delay, 0)) & (after < time[-1] - max(delay, 0))
    runs = np.split(at[inside], np.searchsorted(at[inside], reads.resets))
    runs = [run for run in runs if len(run) > 1]
    if not runs:
        return Estimate.null("counter_did_not_step", "counter")
    run = max(runs, key=lambda run: reads.time_ns[run[-1]] - reads.time_ns[run[0]])
    some = max(1, len(run) // 10)  # of these the one at the lowest power, where an error of its time costs least
    lowest = [part[np.argmin(np.interp(reads.time_ns[part], time, power))] for part in (run[:some], run[-some:])]
    apart = reads.time_ns[lowest] - reads.time_ns[np.array(lowest) - 1]
    edges, width = reads.time_ns[lowest] - apart + apart // 2, apart.max() / 1e9
    if record.hole_seconds(edges[:1], edges[1:]).sum() > 0:
        return Estimate.null("hole_in_record", "counter")
    # Each reading speaks for the time before its stamp, by the response's mean delay.
    window = edges + delay
    energy = float(integrate(time, power, window[:1], window[1:])[0])
    gained_j = reads.drawn_j(*lowest)
    if not np.isfinite(energy) or gained_j <= 0:
        return Estimate.null("counter_did_not_step", "counter")
    # A stalled host reads late: the step came anywhere since the read before, at up to the most that was drawn then.
    meanwhile = ((time > edge - gap) & (time < edge + gap) for edge, gap in zip(edges, apart, strict=True))
    most = [power[mask].max(initial=0.0) for mask in meanwhile]
    ends = np.maximum(np.interp(edges, time, power), most)
    # Where readings come unevenly, every change of power between two of them is mistimed a little.
    near = (time > window[0]) & (time < window[1])
    uneven = float(np.std(np.diff(time[near]))) / 1e9 / np.sqrt(2) if near.sum() > 2 else response.period_s
    mistimed = uneven * float(np.linalg.norm(np.diff(power[near])))
    lag = np.sqrt(np.array(response.covariance)[0, 0]) * abs(float(ends[1] - ends[0]))
    sd = float(np.linalg.norm([*(ends * width / np.sqrt(12)), mistimed, lag])) / gained_j
    value = energy / gained_j
    half = float(np.hypot(Z95 * sd, FLOOR * value))
    return Estimate(value, value - half, value + half, len(run), "counter")
