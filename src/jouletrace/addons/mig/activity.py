"""Activity of slices during a measurement: sources polled in a separate thread, and means over windows."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from jouletrace.devices.base import Samples
from jouletrace.errors import JouletraceError

Readings = dict[tuple[str, str], tuple[list[int], list[float]]]
"""Stamps and values by device and channel."""


class ActivitySource(Protocol):
    """A source of the activity of slices."""

    interval_s: float

    def poll(self) -> list[tuple[str, Samples]]:
        """Readings since the last call, by id of the slice."""


class Activity:
    """Collects readings of sources; ``start`` and ``stop`` delimit the thread.

    Attributes:
        failures: Reasons for which sources were given up, if any.
    """

    def __init__(self, sources: Sequence[ActivitySource]) -> None:
        self.failures: list[str] = []
        self._sources = list(sources)
        self._asked = list(sources)
        self._readings: Readings = {}
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def flags(self) -> list[str]:
        """Problems of the sources so far, as codes for a table: "activity_down", "activity_lost"."""
        problems = {code for source in self._asked for code in getattr(source, "problems", ())}
        return [f"activity_{code}" for code in sorted(problems)] + (["activity_lost"] if self.failures else [])

    def start(self) -> None:
        """Start polling; does nothing without sources."""
        if self._sources and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mig-activity", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop polling. Safe to call twice."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def add(self, device: str, samples: Samples) -> None:
        """Add readings from elsewhere."""
        with self._lock:
            times, values = self._readings.setdefault((device, samples.channel), ([], []))
            times.extend(samples.time_ns.tolist())
            values.extend(samples.value.tolist())

    def mean(self, device: str, channel: str, start_ns: int, end_ns: int) -> float | None:
        """Mean of the readings within [start, end]; None without readings."""
        stamps, numbers = self.series(device, channel)
        inside = numbers[(stamps >= start_ns) & (stamps <= end_ns)]
        return float(inside.mean()) if len(inside) else None

    def series(self, device: str, channel: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """All readings of a channel."""
        with self._lock:
            times, values = self._readings.get((device, channel), ([], []))
            return np.array(times, np.int64), np.array(values)

    def _run(self) -> None:
        while self._sources and not self._end.is_set():
            for source in list(self._sources):
                try:
                    for device, samples in source.poll():
                        self.add(device, samples)
                except JouletraceError as error:  # an instance or GPU that vanished: the others continue
                    self.failures.append(str(error))
                    self._sources.remove(source)
            self._end.wait(min((source.interval_s for source in self._sources), default=0.1))
