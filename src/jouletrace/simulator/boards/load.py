"""Loads of a GPU: iterations of a schedule, or a constant power."""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import Protocol

import numpy as np

from jouletrace.arrays import Floats
from jouletrace.simulator.boards.kernels import SteadyTimeline


class Periodic(Protocol):
    """The content of ``Iterations``: a ``Schedule``, or several in turn."""

    def at(self, ratio: float, voltage_squared: float) -> SteadyTimeline:
        """Its timeline at a clock."""


class Load(Protocol):
    """Work that the GPU does until it is done."""

    def set_clock(self, ratio: float, voltage_squared: float) -> None:
        """Continue at another clock."""

    def left_s(self) -> float:
        """Seconds until it is done, at this clock."""

    def edge_s(self) -> float:
        """Seconds until its power changes, at this clock; infinity if it doesn't."""

    def advance(self, seconds: float, idle_w: float) -> tuple[float, float]:
        """Continue for ``seconds``; returns mean power over context idle and the share of time with a kernel."""


class Iterations:
    """A number of iterations of a schedule, back to back; ``timed`` keeps the end of each for ``ends_s``."""

    def __init__(self, schedule: Periodic, count: int, timed: bool = False) -> None:
        self._schedule = schedule
        self._count = count
        self._whole = 0
        self._at_s = 0.0
        self._at_j = 0.0
        self._elapsed_s = 0.0
        self._timeline = schedule.at(1.0, 1.0)
        self._marks: list[tuple[float, float]] | None = [] if timed else None

    def set_clock(self, ratio: float, voltage_squared: float) -> None:
        """Continue at another clock, from the same point of the same kernel."""
        new = self._schedule.at(ratio, voltage_squared)
        old = self._timeline
        if new is old:
            return
        edge = min(bisect_right(old.edges_s, self._at_s), len(old.edges_s) - 1)
        begin, end = old.edges_s[edge - 1], old.edges_s[edge]
        share = (self._at_s - begin) / (end - begin) if end > begin else 0.0
        self._at_s = new.edges_s[edge - 1] + share * (new.edges_s[edge] - new.edges_s[edge - 1])
        self._at_j = new.reached_j[edge - 1] + share * (new.reached_j[edge] - new.reached_j[edge - 1])
        self._timeline = new

    def left_s(self) -> float:
        """Seconds until the last iteration ends, at this clock."""
        return (self._count - self._whole) * self._timeline.period_s - self._at_s

    def edge_s(self) -> float:
        """Seconds until a kernel begins or ends, at this clock."""
        edges = self._timeline.edges_s
        return edges[min(bisect_right(edges, self._at_s), len(edges) - 1)] - self._at_s

    def advance(self, seconds: float, idle_w: float) -> tuple[float, float]:
        """Continue for ``seconds``; returns mean power over context idle and the share of time with a kernel."""
        line = self._timeline
        period = line.period_s
        if self._marks is not None:
            self._mark(self._marks)
        at = self._at_s + seconds
        passed = int(at / period)
        at -= passed * period
        if self._count <= self._whole + passed:
            passed, at = self._count - self._whole, 0.0
        reached = _between(line.edges_s, line.reached_j, at)
        energy = passed * line.active_j + reached - self._at_j
        self._whole += passed
        self._at_s, self._at_j = at, reached
        self._elapsed_s += seconds
        if self._marks is not None:
            self._mark(self._marks)
        return energy / seconds, line.busy_s / period

    def ends_s(self) -> Floats:
        """Boundaries of the iterations in seconds from the start, shape (count + 1,)."""
        return self.reached_s(np.arange(self._count + 1.0))

    def reached_s(self, done: Floats) -> Floats:
        """Seconds from the start until so many iterations, or parts of one, are done."""
        if not self._marks:
            return np.zeros(len(done))
        elapsed, marked = np.array(self._marks).T
        # a change of clock moves the completed share of an iteration slightly, in either direction
        times: Floats = np.interp(done, np.maximum.accumulate(marked), elapsed)
        return times

    def _mark(self, marks: list[tuple[float, float]]) -> None:
        marks.append((self._elapsed_s, self._whole + self._at_s / self._timeline.period_s))


class Constant:
    """A load of constant board power for a given time; a lower clock lowers its power."""

    def __init__(self, watts: float, seconds: float = inf, busy: float = 1.0) -> None:
        self._watts = watts
        self._busy = busy
        self._left_s = seconds
        self._factor = 1.0

    def set_clock(self, ratio: float, voltage_squared: float) -> None:
        """Power over idle is proportional to the clock and the square of the voltage."""
        self._factor = ratio * voltage_squared

    def left_s(self) -> float:
        """Seconds until it ends."""
        return self._left_s

    def edge_s(self) -> float:
        """Its power doesn't change."""
        return inf

    def advance(self, seconds: float, idle_w: float) -> tuple[float, float]:
        """Continue for ``seconds``; returns the power over the present idle power, and the busy share."""
        self._left_s -= seconds
        return (self._watts - idle_w) * self._factor, self._busy


def _between(edges: list[float], values: list[float], at: float) -> float:
    """Linear interpolation of a single point, ten times as fast as numpy's."""
    edge = bisect_right(edges, at)
    if edge == len(edges):
        edge -= 1
    begin, end, value = edges[edge - 1], edges[edge], values[edge - 1]
    if end <= begin:
        return value
    return value + (at - begin) / (end - begin) * (values[edge] - value)
