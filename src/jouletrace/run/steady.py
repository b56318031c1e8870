"""The time of a recording: that of the host's clock at its start, and from then on by one that never steps."""

from __future__ import annotations

import os
import time
from typing import Final

OFFSET: Final = "JOULETRACE_CLOCK"
"""Variable by which the processes of a recording share its ``offset_ns``; the native tracer reads it, too."""

_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)
"""Goes on while the machine sleeps; None where the system has no such clock."""


def steady_ns() -> int:
    """Nanoseconds since a fixed point, such as the start of the machine."""
    return time.monotonic_ns() if _CLOCK is None else time.clock_gettime_ns(_CLOCK)


def host_offset_ns() -> int:
    """Nanoseconds from the Unix epoch to that point, as the host's clock has it now."""
    looks = []
    for _ in range(3):  # one that is interrupted takes longer
        before_ns, host_ns, after_ns = steady_ns(), time.time_ns(), steady_ns()
        looks.append((after_ns - before_ns, host_ns - (before_ns + after_ns) // 2))
    return min(looks)[1]


def offset_ns() -> int:
    """The same for a recording that begins now; that of the recording which began this process, if one did."""
    given = os.environ.get(OFFSET, "")
    return int(given) if given.isascii() and given.isdecimal() else host_offset_ns()
