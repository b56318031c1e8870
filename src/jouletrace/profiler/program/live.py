"""Prints the power of a running program, and its latest kernels, in a line every few seconds."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from jouletrace.errors import BadInputError
from jouletrace.profiler.record.live_sums import LiveSums
from jouletrace.recording.session import Session
from jouletrace.run.names import short_names
from jouletrace.tracer.names import demangle
from jouletrace.tracer.rows import KERNEL, read_rows, read_text
from jouletrace.words.scale import quantity
from jouletrace.words.text import printable

EVERY_S = 2.0

SHOWN = 3
"""Kernels in a line."""

_LAST_NS, _LATE_NS = 1_000_000_000, 5_000_000_000
"""Length of what ran last, and how old it may be."""

_MOST = 1 << 16
"""Rows of a process that are looked at."""


class Live:
    """Prints the lines; ``look`` is called more often than they are due.

    Args:
        session: The session in progress.
        rows: Folder of what the tracer writes.
    """

    def __init__(self, session: Session, rows: Path) -> None:
        self._sums = LiveSums(session.run, session.recorder.follow(), session.clock.time_ns())
        self._rows, self._clock = rows, session.clock
        self._begin = time.monotonic()
        self._due = self._begin + EVERY_S

    def look(self) -> None:
        """Print a line if it is due."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY_S
            self._sums.update((), ())
            print(self.line(), file=sys.stderr, flush=True)

    def line(self) -> str:
        """Time, energy and power so far, and the kernels with the most time in the last second."""
        so_far = self._sums.so_far("")
        parts = [
            f"{time.monotonic() - self._begin:.0f} s",
            quantity(so_far.energy_j, "J"),
            quantity(so_far.power_w, "W"),
        ]
        shares = ran_last(self._rows, self._clock.time_ns())
        if shares:
            parts.append(f"GPU busy {100 * min(sum(shares.values()), 1.0):.0f} %")
            short = short_names(shares, 30)
            parts += [f"{short[name]} {100 * share:.0f} %" for name, share in list(shares.items())[:SHOWN]]
        return printable("jouletrace: " + ", ".join(parts))

    def close(self) -> None:
        """Read no further."""
        self._sums.close()


def ran_last(folder: Path, now_ns: int) -> dict[str, float]:
    """Each kernel's share of the last second of all GPUs, the largest first; empty where that was long before now."""
    shares, gpus = dict[str, float](), 0
    for process_folder in folder.glob("*-*"):
        with suppress(BadInputError):  # it isn't there yet
            header, rows = read_rows(process_folder)
            if now_ns - header.flushed_ns > _LATE_NS:
                continue
            since = np.uint64(header.flushed_ns - _LAST_NS)
            rows = rows[-_MOST:]
            rows = rows[(rows["kind"] == KERNEL) & (rows["end"] > since)]
            gpus += len(np.unique(rows["device"]))
            names = read_text(process_folder).names
            seconds = np.bincount(rows["name"], (rows["end"] - np.maximum(rows["start"], since)) / _LAST_NS)
            for number in np.flatnonzero(seconds[: len(names)]).tolist():
                name = demangle(names[number])
                shares[name] = shares.get(name, 0.0) + float(seconds[number])
    return {name: shares[name] / gpus for name in sorted(shares, key=lambda kernel_name: -shares[kernel_name])}
