"""Requests to simulated servers, on one GPU at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from jouletrace.arrays import Floats
from jouletrace.simulator.boards.load import Iterations, Load, Periodic


class Queue:
    """Requests to one server, in the order of their arrival: an iteration of a schedule each, one at a time.

    Args:
        schedule: Of a request.
        arrivals_s: Seconds from the start at which requests arrive, ascending.
        seconds: When it ends; requests that aren't done then are cut off.

    Attributes:
        starts_s, ends_s: Seconds at which each served request was begun and done, in order.
        reached: At each step: elapsed seconds, and until then seconds with a kernel and joules over context idle.
    """

    def __init__(self, schedule: Periodic, arrivals_s: Sequence[float], seconds: float) -> None:
        self.starts_s: list[float] = []
        self.ends_s: list[float] = []
        self.reached: list[tuple[float, float, float]] = [(0.0, 0.0, 0.0)]
        self._schedule, self._arrivals_s, self._seconds = schedule, arrivals_s, seconds
        self._elapsed_s = 0.0
        self._serving: Iterations | None = None
        self._clock = 1.0, 1.0

    def set_clock(self, ratio: float, voltage_squared: float) -> None:
        """Continue at another clock."""
        self._clock = ratio, voltage_squared
        if self._serving is not None:
            self._serving.set_clock(ratio, voltage_squared)

    def left_s(self) -> float:
        """Seconds until it ends."""
        return self._seconds - self._elapsed_s

    def edge_s(self) -> float:
        """Seconds until a kernel begins or ends, or a request arrives."""
        self._begin()
        return self._serving.edge_s() if self._serving is not None else max(self._arrival_s() - self._elapsed_s, 0.0)

    def advance(self, seconds: float, idle_w: float) -> tuple[float, float]:
        """Continue for ``seconds``; returns mean power over context idle and the share of time with a kernel."""
        end_s, joules, busy_s = self._elapsed_s + seconds, 0.0, 0.0
        while (left := end_s - self._elapsed_s) > 1e-12:
            self._begin()
            if self._serving is None:
                self._elapsed_s = min(end_s, self._arrival_s())
                continue
            took = min(left, self._serving.left_s())
            if took > 0:
                watts, share = self._serving.advance(took, idle_w)
                joules += watts * took
                busy_s += share * took
                self._elapsed_s += took
            if self._serving.left_s() <= 1e-12:
                self.ends_s.append(self._elapsed_s)
                self._serving = None
        self._elapsed_s = end_s
        _, before_s, before_j = self.reached[-1]
        self.reached.append((end_s, before_s + busy_s, before_j + joules))
        return joules / seconds, busy_s / seconds

    def _begin(self) -> None:
        """Begin the next request, if the server is free and it has arrived."""
        if self._serving is None and self._arrival_s() <= self._elapsed_s:
            self.starts_s.append(self._elapsed_s)
            self._serving = Iterations(self._schedule, 1)
            self._serving.set_clock(*self._clock)

    def _arrival_s(self) -> float:
        """When the next request arrives that isn't begun."""
        return self._arrivals_s[len(self.starts_s)] if len(self.starts_s) < len(self._arrivals_s) else inf


class Together:
    """Loads of several slices at once, each until its own end.

    Attributes:
        caused_j: Energy over context idle that each load caused, before the GPU's noise, shape (n,).
        busy_s: Seconds in which each slice had a kernel running, shape (n,).
    """

    def __init__(self, loads: Sequence[Load | None]) -> None:
        self._loads = loads
        self.caused_j: Floats = np.zeros(len(loads))
        self.busy_s: Floats = np.zeros(len(loads))

    def set_clock(self, ratio: float, voltage_squared: float) -> None:
        """Continue at another clock; all slices share it."""
        for load in self._running():
            load.set_clock(ratio, voltage_squared)

    def left_s(self) -> float:
        """Seconds until the last load is done."""
        return max((load.left_s() for load in self._running()), default=0.0)

    def edge_s(self) -> float:
        """Seconds until a kernel of any load begins or ends."""
        return min((load.edge_s() for load in self._running() if load.left_s() > 0), default=inf)

    def advance(self, seconds: float, idle_w: float) -> tuple[float, float]:
        """Continue for ``seconds``; returns the loads' mean power over context idle and the largest busy share."""
        busiest = 0.0
        before = float(self.caused_j.sum())
        for i, load in enumerate(self._loads):
            own = min(seconds, load.left_s()) if load is not None else 0.0
            if load is None or own <= 0:
                continue
            watts, busy = load.advance(own, idle_w)
            self.caused_j[i] += watts * own
            self.busy_s[i] += busy * own
            busiest = max(busiest, busy * own / seconds)
        return (float(self.caused_j.sum()) - before) / seconds, busiest

    def _running(self) -> list[Load]:
        return [load for load in self._loads if load is not None]
