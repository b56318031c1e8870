"""The recorder of simulated GPUs in virtual time: timers on the simulated clock poll the sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, cast

import pyarrow as pa

from jouletrace.devices.base import Clock, Device, Source
from jouletrace.errors import RecorderDiedError
from jouletrace.recording.base import Recorder, RecorderCost
from jouletrace.recording.collector import TAIL_S, Collector, fresh_part

_FLUSH_S = 1.0
_LOOK_EVERY_S = 0.02


class Timer(Protocol):
    """A periodic callback."""

    def cancel(self) -> None:
        """Never call again. Safe to call twice."""


class TimerClock(Clock, Protocol):
    """A virtual clock with periodic callbacks."""

    def every(self, interval_s: float, call: Callable[[], object]) -> Timer:
        """Call ``call`` every ``interval_s`` from now on; ``call`` must not advance the clock."""


class InProcessRecorder(Recorder):
    """Records in virtual time, in the process that advances the clock; idle intervals take no real time.

    All devices share one clock. Devices without a source, such as a CPU without readable counters, leave an empty
    stream; their clock may then be real.
    """

    def __init__(
        self, devices: Sequence[Device], spool: Path, power_s: float | None = None, kept_s: float | None = None
    ) -> None:
        super().__init__(spool, kept_s)
        self._devices = list(devices)
        self._clock = devices[0].clock
        self._power_s = power_s
        self._collector: Collector | None = None
        self._timers: dict[int, tuple[Timer, float]] = {}
        self._flusher: Timer | None = None

    def start(self) -> None:
        """Poll every source once and set the timers; see ``Recorder``."""
        self._collector = Collector(self._devices, self._spool, fresh_part(self._spool), self._power_s, self._kept_s)
        self._read(self._collector.path, list(self._collector.channels))
        self.since_ns = self._clock.time_ns()
        if self._collector.sources:
            for source in list(self._collector.sources):
                self._poll(self._collector, source)
            self._flusher = self._every(_FLUSH_S, self._collector.flush)
        self.check()

    def samples(self) -> pa.Table:
        """Everything recorded so far; see ``Recorder``."""
        stream = self._started()
        if self._collector is not None and self._cost is None:
            self._collector.flush()
        return stream.table()

    def fresh(self) -> pa.Table:
        """See ``Recorder``."""
        if self._collector is not None and self._cost is None:
            self._collector.flush()
        return super().fresh()

    def wait_until(self, time_ns: int, timeout_s: float = 5.0) -> bool:
        """Advance virtual time until the power record has passed ``time_ns``; see ``Recorder``."""
        stream = self._started()
        end_ns = self._clock.time_ns() + int(timeout_s * 1e9)
        while True:
            self.check()
            if self._collector is not None and self._cost is None:
                self._collector.poll_power()
                self._collector.flush()
            reached = stream.power_until()
            if reached is not None and reached >= time_ns:
                return True
            if reached is None or self._cost is not None or self._clock.time_ns() >= end_ns:
                return False
            self._clock.sleep(_LOOK_EVERY_S)

    def check(self) -> None:
        """Raise ``RecorderDiedError`` if a sensor has failed."""
        if self._collector is not None and self._collector.failures:
            raise RecorderDiedError("; ".join(self._collector.failures))

    def stop(self) -> RecorderCost:
        """Record the tail, then cancel the timers; the cost in CPU time is stated as zero. See ``Recorder``."""
        collector = self._collector
        if self._cost is not None or collector is None:
            return self._cost or RecorderCost()
        if collector.sources:
            for source in list(collector.sources):
                self._poll(collector, source)
            self._clock.sleep(TAIL_S)
        for timer in (*(timer for timer, _ in self._timers.values()), self._flusher):
            if timer is not None:
                timer.cancel()
        collector.poll_all()
        collector.close()
        self._cost = RecorderCost(0.0, (self._clock.time_ns() - self.since_ns) / 1e9, collector.samples)
        self.check()
        return self._cost

    def _poll(self, collector: Collector, source: Source) -> None:
        """Poll a source and update its timer: the source may have failed or changed its interval."""
        collector.poll(source)
        alive = source in collector.sources
        timer, interval_s = self._timers.get(id(source), (None, None))
        if timer is not None and (not alive or source.interval_s != interval_s):
            timer.cancel()
        if alive and source.interval_s != interval_s:
            timer = self._every(source.interval_s, lambda: self._poll(collector, source))
            self._timers[id(source)] = (timer, source.interval_s)

    def _every(self, interval_s: float, call: Callable[[], object]) -> Timer:
        return cast(TimerClock, self._clock).every(interval_s, call)
