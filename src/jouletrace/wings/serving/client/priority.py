"""A real-time priority for a process that must keep its times, where the system permits it.

On a busy machine a process is woken milliseconds after its timer, and interrupted in the middle of its work: that is
most of what requests are late by. With the lowest real-time priority it is woken at once.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import Self

MOST, OVER_S = 0.8, 2.0
"""Share of a core, and for how long, from which the priority is given back: other processes must not starve."""


class RealTime:
    """The priority, within a ``with`` block.

    Attributes:
        on: Whether the process has it. Root has the right to it, others by ``ulimit -r``.
    """

    def __init__(self) -> None:
        self.on = False
        self._cpu_s = self._wall_s = 0.0

    def __enter__(self) -> Self:
        self._cpu_s, self._wall_s = time.process_time(), time.monotonic()
        if sys.platform == "linux":
            with suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
                self.on = True
        return self

    def __exit__(self, *_: object) -> None:
        if self.on and sys.platform == "linux":
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        self.on = False

    def check(self) -> None:
        """Give the priority back if the process has taken too much of a core for too long; call it often."""
        cpu_s, wall_s = time.process_time(), time.monotonic()
        if wall_s - self._wall_s < OVER_S:
            return
        if self.on and cpu_s - self._cpu_s > MOST * (wall_s - self._wall_s):
            self.__exit__()
        self._cpu_s, self._wall_s = cpu_s, wall_s
