"""Energy around an interval by a counter's own steps: the reference of tests and benchmarks."""

from dataclasses import dataclass

import numpy as np

from jouletrace.sensor.counter import MOST_W, sound_reads


@dataclass(frozen=True)
class CounterSteps:
    """The steps of a counter as polling saw them."""

    time_ns: np.ndarray  # time of the first read of each new value, shape (n,)
    before_ns: np.ndarray  # time of the last read of the old one: the step came in between, shape (n,)
    energy_j: np.ndarray  # the counter after each step, shape (n,)
    # Numbers of the steps at which it had restarted; energy across them is unknown
    resets: np.ndarray

    def __len__(self) -> int:
        return len(self.time_ns)

    @property
    def period_s(self) -> float:
        """Median time between steps; NaN below two."""
        return float(np.median(np.diff(self.time_ns))) / 1e9 if len(self) > 1 else float("nan")


def find_steps(time_ns, energy_j, *, most_w=MOST_W) -> CounterSteps:
    """Find the steps in polled reads of a counter; arguments and errors are those of ``sound_reads``."""
    reads = sound_reads(time_ns, energy_j, most_w=most_w)
    at = np.flatnonzero(np.diff(reads.energy_j)) + 1
    resets = np.searchsorted(at, reads.resets)
    return CounterSteps(reads.time_ns[at], reads.time_ns[at - 1], reads.energy_j[at], resets)


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


def bracket(steps: CounterSteps, start_ns: int, end_ns: int) -> Bracket | None:
    """The tightest pair of steps around [start, end], without a reset in between; None if none."""
    first = int(np.searchsorted(steps.time_ns, start_ns, side="right")) - 1
    last = int(np.searchsorted(steps.before_ns, end_ns, side="left"))
    if first < 0 or last >= len(steps) or np.any((steps.resets > first) & (steps.resets <= last)):
        return None
    return between(steps, first, last)
