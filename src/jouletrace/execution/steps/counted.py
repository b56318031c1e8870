"""Replays with the measured clock: the driver reports only the requested one."""

from __future__ import annotations

from typing import Protocol, TypeVar

from jouletrace.execution.steps.base import CountsCycles

Ran_co = TypeVar("Ran_co", covariant=True)


class Replays(Protocol[Ran_co]):
    """A step that can be run back to back."""

    def replay(self, n: int) -> Ran_co:
        """Run ``n`` iterations and wait for them."""


def counted_replay(step: Replays[Ran_co], n: int, counter: object = None) -> tuple[Ran_co, float | None]:
    """Run ``n`` iterations, and read the device's cycle counters before and after, outside of their interval.

    The first reading on a device loads the kernel that reads them: make it before a ramp, not between ramp and window.

    Args:
        step: The step to run.
        n: Number of iterations.
        counter: A step on the same device whose counters are read; None for ``step`` itself.

    Returns:
        The result of ``replay``, and the mean SM clock between the readings in MHz; None where it can't be determined.
    """
    counter = step if counter is None else counter
    if not isinstance(counter, CountsCycles):
        return step.replay(n), None
    before = counter.cycles()
    ran = step.replay(n)
    after = counter.cycles() if before is not None else None
    return ran, after.mean_mhz(before) if before is not None and after is not None else None
