"""The real clock. A simulated GPU has its own."""

from __future__ import annotations

import time


class RealClock:
    """The host's clocks."""

    virtual = False

    def time_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Nanoseconds since a fixed point; never steps."""
        return time.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        if seconds > 0:
            time.sleep(seconds)
