"""Replays with the clock at which they really ran: the driver tells the one that was asked for."""

from __future__ import annotations

from jouletrace.steps.base import CountsCycles, Interval, Step


def counted_replay(step: Step, n: int) -> tuple[Interval, float | None]:
    """Run ``n`` iterations, with the device's cycle counters read before and after, outside of their interval.

    The first reading on a device loads what reads them: make it before a ramp, not between ramp and window.

    Returns:
        As ``Step.replay``, and the mean SM clock from reading to reading in MHz; None where it can't be told.
    """
    if not isinstance(step, CountsCycles):
        return step.replay(n), None
    before = step.cycles()
    interval = step.replay(n)
    after = step.cycles() if before is not None else None
    return interval, after.mean_mhz(before) if before is not None and after is not None else None
