"""Virtual time, which passes only during sleep and work on the GPU."""

from __future__ import annotations

import heapq
import itertools
import os
import time
from collections.abc import Callable

from jouletrace.errors import BadInputError

NS = 1_000_000_000

START = "JOULETRACE_SIMULATED_START"
"""Environment variable: start of virtual time, in whole seconds since the Unix epoch; the present if unset."""

PLAN_NS = 1_767_225_600_000_000_000
"""Plans of load in virtual time are laid out as if it started at 2026-01-01 00:00 UTC, whatever its start."""

FOREVER_NS = 3 * 10**18
"""A century, for work that ends by its own length."""

Physics = Callable[[int], int]
"""Simulates the GPU until a time, or until its work is done; returns the time reached."""


def virtual_start_ns() -> int:
    """Start of virtual time in nanoseconds since the Unix epoch, by default the present: Runs get a true date.

    It is a whole second, so that Runs with different starts have bit-identical readings apart from the date.

    Raises:
        BadInputError: If the environment variable holds no number of seconds.
    """
    given = os.environ.get(START)
    if given is None:
        return time.time_ns() // NS * NS
    if not (given.isascii() and given.isdecimal()) or len(given) > 10:
        raise BadInputError(f"{START}={given[:40]}: must be a whole number of seconds since 1970")
    return int(given) * NS


class VirtualTimer:
    """A call repeated at equal intervals until it is cancelled."""

    def __init__(self, interval_ns: int, call: Callable[[], object]) -> None:
        self.interval_ns = interval_ns
        self.call = call
        self.active = True

    def cancel(self) -> None:
        """Never call again. Safe to call twice."""
        self.active = False


class VirtualClock:
    """A clock whose time passes by ``sleep`` and by work on the GPU, as fast as it can be computed.

    Args:
        idle: What the GPU does while time passes without work.
        start_ns: First reading, in nanoseconds since the Unix epoch.
        cell_ns: The physics stops for timers at whole multiples of this only, where a stop leaves no trace.
            Recording a GPU therefore doesn't change its behaviour.
    """

    virtual = True

    def __init__(self, idle: Physics, start_ns: int = 0, cell_ns: int = 1) -> None:
        self._idle = idle
        self._cell_ns = cell_ns
        self._start_ns = start_ns
        self._now_ns = start_ns
        self._due: list[tuple[int, int, VirtualTimer]] = []
        self._order = itertools.count()
        self._firing = False

    def time_ns(self) -> int:
        """Nanoseconds since the Unix epoch, in the GPU's time."""
        return self._now_ns

    def monotonic_ns(self) -> int:
        """Nanoseconds since the clock was made; never steps."""
        return self._now_ns - self._start_ns

    def ahead_ns(self) -> int:
        """0: it is never set."""
        return 0

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass with the GPU idle, and call the timers that fall due."""
        if seconds > 0:
            self.advance(self._idle, self._now_ns + round(seconds * 1e9))

    def every(self, interval_s: float, call: Callable[[], object]) -> VirtualTimer:
        """Call ``call`` every ``interval_s`` of virtual time, the first time one interval from now.

        A call takes no virtual time and must not sleep.
        """
        interval_ns = round(interval_s * 1e9)
        if interval_ns <= 0:
            raise ValueError(f"a timer needs a positive interval, not {interval_s} s")
        timer = VirtualTimer(interval_ns, call)
        heapq.heappush(self._due, (self._now_ns + interval_ns, next(self._order), timer))
        return timer

    def advance(self, physics: Physics, limit_ns: int | None = None) -> None:
        """Let ``physics`` run until it is done, or until ``limit_ns``, and call the timers on the way."""
        if self._firing:
            raise RuntimeError("a timer of the virtual clock must not let time pass")
        while limit_ns is None or self._now_ns < limit_ns:
            until_ns = limit_ns if limit_ns is not None else self._now_ns + FOREVER_NS
            if (due_ns := self._next_due_ns()) is not None:
                until_ns = min(until_ns, -(-due_ns // self._cell_ns) * self._cell_ns)
            reached_ns = physics(until_ns)
            self._fire(reached_ns)
            self._now_ns = reached_ns
            if reached_ns < until_ns:
                break

    def _next_due_ns(self) -> int | None:
        while self._due and not self._due[0][2].active:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def _fire(self, until_ns: int) -> None:
        """Call the timers that fall due up to ``until_ns``, each at its own time."""
        self._firing = True
        try:
            while (due_ns := self._next_due_ns()) is not None and due_ns <= until_ns:
                timer = heapq.heappop(self._due)[2]
                self._now_ns = due_ns
                heapq.heappush(self._due, (due_ns + timer.interval_ns, next(self._order), timer))
                timer.call()
        finally:
            self._firing = False
