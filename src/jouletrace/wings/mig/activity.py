"""Activity of slices during a measurement, by GPM or a dcgm-exporter."""

from __future__ import annotations

import math
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from jouletrace.arrays import Floats, Ints
from jouletrace.devices.base import Clock, RealClock, Samples, one_sample
from jouletrace.devices.nvml.api import Nvml
from jouletrace.devices.nvml.gpm import GpmSource, gpm_sources
from jouletrace.devices.nvml.identity import find_board, uuid_of
from jouletrace.devices.nvml.mig import mig_handles
from jouletrace.errors import BadInputError, JouletraceError, NotPossibleError
from jouletrace.web import SlowError, fetch

Readings = dict[tuple[str, str], tuple[list[int], list[float]]]
"""Stamps and values by device and channel."""


class ActivitySource(Protocol):
    """A source of the activity of slices."""

    interval_s: float

    def poll(self) -> list[tuple[str, Samples]]:
        """Readings since the last call, by id of the slice."""


class ActivityRecorder:
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

    def series(self, device: str, channel: str) -> tuple[Ints, Floats]:
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


class InstanceActivity:
    """One instance; its readings carry its UUID."""

    def __init__(self, uuid: str, source: GpmSource) -> None:
        self.interval_s = source.interval_s
        self._uuid = uuid
        self._source = source

    def poll(self) -> list[tuple[str, Samples]]:
        """Readings since the last call.

        Raises:
            NotPossibleError: If the GPU is gone.
        """
        return [(self._uuid, samples) for samples in self._source.poll()]


def instance_activity(
    board: str, instances: Mapping[str, int], nvml: Nvml | None = None, clock: Clock | None = None
) -> list[InstanceActivity]:
    """A source for each instance (its number by UUID) of a GPU that has GPM counters; empty before Hopper.

    ``nvml`` is kept open as long as the sources live; None opens it. ``clock`` is the source of the stamps.
    """
    library = nvml if nvml is not None else Nvml()
    handle = find_board(library, board)
    devices: dict[str, Any] = {uuid_of(library, one): one for one in mig_handles(library, handle)}
    found = []
    for uuid, number in instances.items():
        sources = gpm_sources(library, handle, uuid, clock or RealClock(), number, devices.get(uuid))
        found += [InstanceActivity(uuid, source) for source in sources]
    return found


FIELDS: dict[str, tuple[str, float]] = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("graphics_active", 1.0),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_active", 1.0),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("sm_occupancy", 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("pipe_tensor_active", 1.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("memory_active", 1.0),
    "DCGM_FI_DEV_FB_USED": ("memory_used_bytes", float(1 << 20)),
}
"""Field, channel, and the factor for its value (a share, MiB). Power belongs to the GPU and isn't read."""

_LINE = re.compile(r'^(?P<name>DCGM_FI_\w+)\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\}\s+(?P<value>\S+)')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_SHARE_SLACK = 1.01
"""Upper bound of a share: counters of an interval that is slightly too short give slightly more than 1."""


class DcgmExporter:
    """One exporter, for the instances of one GPU.

    Args:
        url: URL of the metrics ("http://localhost:9400/metrics"; without a path, /metrics is added).
        board: UUID of the GPU.
        index: Its number, for exporters whose labels lack the UUID.
        instances: Id and memory in bytes of each GPU instance, by its number.
        timeout_s: Longest wait for an answer, in seconds.

    Attributes:
        problems: Problems of its answers, counted by code: "down", "slow", "wrong_units", "not_a_number".
    """

    interval_s = 0.2

    def __init__(
        self,
        url: str,
        board: str,
        index: int | None,
        instances: Mapping[int, tuple[str, int]],
        timeout_s: float = 2.0,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise BadInputError(f"--dcgm-url {url}: write http://HOST:PORT/metrics")
        self.url = url if url.count("/") > 2 else f"{url}/metrics"
        self.problems: Counter[str] = Counter()
        self._board, self._index = board, index
        self._instances = instances
        self._timeout_s = timeout_s

    def check(self) -> None:
        """Query it once, before anything is measured.

        Raises:
            NotPossibleError: If it doesn't answer, or lists none of the instances.
        """
        try:
            text = fetch(self.url, self._timeout_s)
        except OSError as error:
            raise NotPossibleError(
                f"dcgm-exporter doesn't answer ({error}): start it (see docs/how-to/mig.md)"
            ) from None
        if not self.parse(text, time.time_ns()):
            raise NotPossibleError(
                f"dcgm-exporter at {self.url} reports no instance of {self._board}: start it with -d i and "
                "the profiling fields (DCGM_FI_PROF_GR_ENGINE_ACTIVE), after the GPU was divided"
            )

    def poll(self) -> list[tuple[str, Samples]]:
        """Its present readings, by id of the instance; empty if it doesn't answer in time."""
        try:
            text = fetch(self.url, self._timeout_s)
        except OSError as error:
            self.problems["slow" if isinstance(error, SlowError) else "down"] += 1
            return []
        return self.parse(text, time.time_ns())

    def parse(self, text: str, time_ns: int) -> list[tuple[str, Samples]]:
        """Readings in an answer, by id of the instance."""
        found = []
        for line in text.splitlines():
            match = _LINE.match(line)
            if match is None or match["name"] not in FIELDS:
                continue
            labels = dict(_LABEL.findall(match["labels"]))
            instance = self._instances.get(_number(labels.get("GPU_I_ID", "")))
            mine = labels["UUID"] == self._board if "UUID" in labels else labels.get("gpu") == str(self._index)
            if instance is None or not mine:
                continue
            channel, factor = FIELDS[match["name"]]
            device, memory = instance
            try:
                value = float(match["value"]) * factor
            except ValueError:
                self.problems["not_a_number"] += 1
                continue
            if not value >= 0 or value > (memory if channel == "memory_used_bytes" else _SHARE_SLACK):
                self.problems["not_a_number" if math.isnan(value) else "wrong_units"] += 1
                continue
            found.append((device, one_sample(channel, time_ns, min(value, 1.0) if factor == 1.0 else value)))
        return found


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else -1
