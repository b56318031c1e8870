"""What a running program draws, and what ran last, in a line every few seconds."""

from __future__ import annotations

import sys
import time

from jouletrace.profiler.program.tracer import Tracer
from jouletrace.profiler.record.live_sums import LiveSums
from jouletrace.recording.session import Session
from jouletrace.report.document import printable
from jouletrace.report.scale import quantity
from jouletrace.run.names import short_names

EVERY_S = 2.0

SHOWN = 3
"""Kernels in a line."""


class Live:
    """Prints the lines; ``look`` is called more often than they are due.

    Args:
        session: The session in progress.
    """

    def __init__(self, session: Session) -> None:
        self._sums = LiveSums(session.run, session.recorder.follow(), session.clock.time_ns())
        self._begin = time.monotonic()
        self._due = self._begin + EVERY_S

    def look(self, tracer: Tracer) -> None:
        """Print a line if it is due."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY_S
            self._sums.update((), ())
            print(self.line(tracer), file=sys.stderr, flush=True)

    def line(self, tracer: Tracer) -> str:
        """Time, energy and power so far, and the kernels with the most time in the last records."""
        so_far = self._sums.so_far("")
        parts = [
            f"{time.monotonic() - self._begin:.0f} s",
            quantity(so_far.energy_j, "J"),
            quantity(so_far.power_w, "W"),
        ]
        seen = tracer.glance()
        if seen is not None:
            busy, shares = seen
            parts.append(f"GPU busy {100 * busy:.0f} %")
            short = short_names(shares, 30)
            parts += [f"{short[name]} {100 * share:.0f} %" for name, share in list(shares.items())[:SHOWN]]
        return printable("jouletrace: " + ", ".join(parts))

    def close(self) -> None:
        """Read no further."""
        self._sums.close()
