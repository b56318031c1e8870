"""Replays with the clock at which they really ran: the driver reports the one that was asked for."""

from __future__ import annotations

from typing import Protocol, TypeVar

from jouletrace.execution.steps.base import CountsCycles

Ran_co = TypeVar("Ran_co", covariant=True)


class Replays(Protocol[Ran_co]):
    """Something that can be run back to back."""

    def replay(self, n: int) -> Ran_co:
        """Run ``n`` iterations and wait for them."""


def counted_replay(step: Replays[Ran_co], n: int, counter: object = None) -> tuple[Ran_co, float | None]:
    """Run ``n`` iterations, with the device's cycle counters read before and after, outside of their interval.

    The first reading on a device loads what reads them: make it before a ramp, not between ramp and window.

    Args:
        step: What to run.
        n: How often.
        counter: A step on the same device whose counters are read; None for those of ``step``.

    Returns:
        What ``replay`` does, and the mean SM clock from reading to reading in MHz; None where it can't be determined.
    """
    counter = step if counter is None else counter
    if not isinstance(counter, CountsCycles):
        return step.replay(n), None
    before = counter.cycles()
    ran = step.replay(n)
    after = counter.cycles() if before is not None else None
    return ran, after.mean_mhz(before) if before is not None and after is not None else None
