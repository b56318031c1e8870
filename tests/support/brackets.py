"""Energy around an interval by a counter's own steps: the reference of tests and benchmarks."""

import numpy as np

from jouletrace.sensor.counter import Bracket, CounterSteps, between


def bracket(steps: CounterSteps, start_ns: int, end_ns: int) -> Bracket | None:
    """The tightest pair of steps around [start, end], without a reset in between; None if none."""
    first = int(np.searchsorted(steps.time_ns, start_ns, side="right")) - 1
    last = int(np.searchsorted(steps.before_ns, end_ns, side="left"))
    if first < 0 or last >= len(steps) or np.any((steps.resets > first) & (steps.resets <= last)):
        return None
    return between(steps, first, last)
