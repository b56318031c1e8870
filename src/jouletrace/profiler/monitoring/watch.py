"""Live figures of a monitor: the latest readings, energy so far, energy per unit of work.

They serve displays and dashboards, as running sums of readings. The figures of the Run are
computed from its record afterwards, with the sensor's response and intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from jouletrace.analysis.power import most_w
from jouletrace.arrays import Floats
from jouletrace.devices.base import Process
from jouletrace.profiler.monitoring.work_counter import WorkCounter, WorkReading, sample_rows
from jouletrace.recording.session import Session
from jouletrace.run import ChannelInfo, DeviceInfo, device_labels
from jouletrace.run.channels import POWER
from jouletrace.sensor.power_record import HOLE_PERIODS


class Meter:
    """Running energy of one power record: each reading stands for the time since the previous one.

    Args:
        channel: The record.
        start_ns: Start in ns since the Unix epoch.
        most_w: Readings beyond are left out; see ``sensor.power_record.most_power_w``.
        kept_s: Length in seconds of the history for ``until``.
        delay_s: By which a reading is later than the mean over the period before it.

    Attributes:
        start_ns, last_ns: Start and end of the summed interval, by the stamps of readings.
        first_ns: Stamp of the first reading; 0 before it.
        energy_j: Energy in that interval in joules.
        hole_s: Seconds of it without readings.
    """

    def __init__(
        self, channel: ChannelInfo, start_ns: int, most_w: float, kept_s: float = 60.0, delay_s: float = 0.0
    ) -> None:
        self.device, self.channel, self._most_w = channel.device, channel, most_w
        self._kept_ns, self._delay_ns = int(kept_s * 1e9), int(delay_s * 1e9)
        self.start_ns = self.last_ns = start_ns
        self.first_ns = 0
        self.energy_j = self.hole_s = 0.0
        self._hole_s = HOLE_PERIODS * channel.period_s if channel.period_s else float("inf")
        self._times = np.array([start_ns], np.int64)
        self._sums = np.zeros(1)

    def take(self, samples: pa.Table) -> None:
        """Add the device's readings of power that are newer than ``last_ns``."""
        rows = samples.filter(pc.and_(pc.equal(samples["channel"], POWER), pc.equal(samples["device"], self.device)))
        time_ns, watts = rows["time_ns"].to_numpy(), rows["value"].to_numpy()
        if not self.first_ns and len(rows):
            self.first_ns = int(time_ns.min())
        good = (time_ns > self.last_ns) & (watts >= 0) & (watts <= self._most_w)
        order = np.argsort(time_ns[good], kind="stable")
        time, power = time_ns[good][order].astype(np.int64), self.channel.drawn_w(watts[good][order])
        if len(time) == 0:
            return
        apart = np.diff(np.append(self.last_ns, time)) / 1e9
        self.hole_s += float(apart[apart > self._hole_s].sum())
        sums = self.energy_j + np.cumsum(power * apart)
        self.energy_j, self.last_ns = float(sums[-1]), int(time[-1])
        self._times, self._sums = np.append(self._times, time), np.append(self._sums, sums)
        recent = max(int(np.searchsorted(self._times, self.last_ns - self._kept_ns)) - 1, 0)
        self._times, self._sums = self._times[recent:], self._sums[recent:]

    @property
    def oldest_ns(self) -> int:
        """Start of the history for ``until``."""
        return int(self._times[0])

    @property
    def reached_ns(self) -> int:
        """Time of the program that the record has passed."""
        return self.last_ns - self._delay_ns

    def until(self, time_ns: ArrayLike) -> Floats:
        """Joules from the start until ``time_ns``, with its shape."""
        seconds = (np.asarray(time_ns, np.int64) + self._delay_ns - self.start_ns) / 1e9
        return np.asarray(np.interp(seconds, (self._times - self.start_ns) / 1e9, self._sums))


FLUSH_S = 1.0
LATE_S = 0.1
"""Largest age in seconds of the newest power reading if ticks are more frequent than ``FLUSH_S``."""


@dataclass
class Reading:
    """The latest readings of one device.

    Attributes:
        device, name, info: Its id, name and description.
        time_ns: Stamp of the newest reading.
        values: Latest value by channel name; power is the mean since the last tick.
        energy_j: Joules since the monitor began, up to the end of the record; None without a power record.
        hole_s: Seconds of that time without readings.
        start_ns, energy_ns: Times from which and until which ``energy_j`` is summed.
        processes: What uses the device, as far as the driver lists it.
        labels: Who has it now, by name of a label; empty if no observer asks.
        energies: Joules of each that has had it of late, with such labels; together ``energy_j`` of some seconds ago.
    """

    device: str
    name: str
    info: DeviceInfo
    time_ns: int = 0
    values: dict[str, float] = field(default_factory=dict)
    energy_j: float | None = None
    hole_s: float = 0.0
    start_ns: int = 0
    energy_ns: int = 0
    processes: Sequence[Process] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    energies: Sequence[tuple[Mapping[str, str], float]] = ()


@dataclass(frozen=True)
class LiveWork:
    """Real work and its energy over all devices, at the newest reading of the counter within the power record.

    Attributes:
        unit: Unit of work.
        done: Units counted since the monitor began.
        per_s: Units per second since the previous reading; None before the second reading.
        j_each: Joules per unit since the previous reading; None if nothing was counted.
        j_each_mean: The same since the monitor began.
        problem: Why the counter can't be read now; None if it can.
    """

    unit: str
    done: float = 0.0
    per_s: float | None = None
    j_each: float | None = None
    j_each_mean: float | None = None
    problem: str | None = None


Display = Callable[[list[Reading], LiveWork | None], object]
"""Called at each tick with the latest readings, and the work if it is counted: a table, a stream, a publisher."""


class Publisher(AbstractContextManager["Publisher"], Protocol):
    """Publishes what a monitor reads until it is closed: what ``publish(where, program)`` of a wing's module makes.

    ``program`` is the command that is monitored, "" without one.

    Attributes:
        about: A line that says where it publishes.
    """

    about: str

    def show(self, readings: list[Reading], work: LiveWork | None) -> None:
        """Publish these readings from now on; a ``Display``."""


class Observer(Protocol):
    """Asks others about the devices while they are recorded: what ``observe(where)`` of a wing's module makes."""

    def start(self, session: Session) -> None:
        """Begin to ask; spans and warnings are added to the session."""

    def show(self, readings: list[Reading], work: LiveWork | None) -> None:
        """Add labels and energies to the latest readings; the first ``Display``."""

    def finish(self) -> None:
        """Ask once more and stop."""


class Watch:
    """Derives the latest readings from the growing record, and stores the readings of a counter of work."""

    def __init__(
        self,
        session: Session,
        *,
        interval_s: float,
        displays: Sequence[Display] = (),
        counter: WorkCounter | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._session = session
        self._hurry = interval_s < FLUSH_S
        self._observers = observers
        self._displays = [*(observer.show for observer in observers), *displays]
        for observer in observers:
            observer.start(session)
        self._counter = counter
        self._looked_ns = 0
        start = session.clock.time_ns()
        labels = device_labels([device.info for device in session.devices])
        self._readings = {d.info.id: Reading(d.info.id, labels[d.info.id], d.info) for d in session.devices}
        power = [channel for channel in session.recorder.channels if channel.name == POWER]
        self._meters = [Meter(channel, start, most_w(session.run, channel.device)) for channel in power]
        self._work = _WorkMeter(counter.unit) if counter is not None else None

    def tick(self) -> None:
        """Read new samples and pass them to the displays.

        Raises:
            RecorderDiedError: If the recorder has ended.
        """
        self._session.recorder.check()
        if self._counter is not None:
            self.store(self._counter.take())
        if not self._displays:
            return
        if self._hurry:  # without a request the recorder flushes only once per second
            self._session.recorder.wait_until(self._session.clock.time_ns() - int(LATE_S * 1e9), LATE_S)
        self._take(self._session.recorder.fresh())
        if (now := self._session.clock.time_ns()) >= self._looked_ns + FLUSH_S * 1e9:
            self._looked_ns = now
            for device in self._session.devices:
                self._readings[device.info.id].processes = device.processes()
        # Copies, since other threads serve them while the next ones come
        readings = [replace(reading, values=dict(reading.values)) for reading in self._readings.values()]
        work = None
        if self._work is not None and self._counter is not None:
            work = self._work.now(self._meters, len(readings), self._counter.problem())
        for display in self._displays:
            display(readings, work)

    def finish(self) -> None:
        """Let observers end."""
        for observer in self._observers:
            observer.finish()

    def store(self, readings: list[WorkReading]) -> None:
        """Add readings of the counter to the Run."""
        self._session.add_samples(sample_rows(self._session.devices[0].info.id, readings))
        if self._work is not None:
            self._work.waiting += readings

    def _take(self, fresh: pa.Table) -> None:
        if len(fresh) == 0:
            return
        groups = fresh.group_by(["device", "channel"], use_threads=False).aggregate(
            [("time_ns", "max"), ("value", "mean"), ("value", "last")]
        )
        for row in groups.to_pylist():
            reading = self._readings.get(row["device"])
            if reading is None:
                continue
            mean = row["channel"] == POWER
            value = row["value_mean"] if mean else row["value_last"]
            if value is not None and np.isfinite(value):
                info = self._session.run.channel(row["device"], row["channel"])
                reading.values[row["channel"]] = value if info is None else info.drawn_w(value)
                reading.time_ns = max(reading.time_ns, row["time_ns_max"])
        for meter in self._meters:
            meter.take(fresh)
            if meter.last_ns > meter.start_ns and (reading := self._readings.get(meter.device)) is not None:
                reading.energy_j, reading.hole_s = meter.energy_j, meter.hole_s
                reading.start_ns, reading.energy_ns = meter.start_ns, meter.last_ns


class _WorkMeter:
    """Divides energy by work between readings of the counter."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self.waiting: list[WorkReading] = []
        self._first: tuple[WorkReading, float] | None = None
        self._last: tuple[WorkReading, float] | None = None
        self._found = LiveWork(unit)

    def now(self, meters: Sequence[Meter], devices: int, problem: str | None) -> LiveWork:
        """The state at the newest reading that all power records have passed."""
        # A sum over only some devices would look like that of all devices.
        complete = bool(meters) and len(meters) == devices
        reached = min((meter.last_ns for meter in meters), default=0) if complete else None
        ready = [r for r in self.waiting if reached is None or r.time_ns <= reached]
        if ready:
            newest = ready[-1]
            self.waiting = [r for r in self.waiting if r.time_ns > newest.time_ns]
            energy = sum(float(meter.until(newest.time_ns)) for meter in meters) if complete else 0.0
            if self._first is None:
                oldest = ready[0]
                self._first = oldest, sum(float(meter.until(oldest.time_ns)) for meter in meters) if complete else 0.0
            lately = _each(self._last or self._first, (newest, energy))
            whole = _each(self._first, (newest, energy))
            rate = lately[0] if lately else None
            self._last = newest, energy
            joules = (lately[1] if lately else None, whole[1] if whole else None) if complete else (None, None)
            self._found = LiveWork(self._unit, newest.done, rate, *joules)
        return replace(self._found, problem=problem)


def _each(before: tuple[WorkReading, float], after: tuple[WorkReading, float]) -> tuple[float, float | None] | None:
    """Units per second and joules per unit between two readings; None for a single reading."""
    seconds = (after[0].time_ns - before[0].time_ns) / 1e9
    done = after[0].done - before[0].done
    if seconds <= 0:
        return None
    return done / seconds, (after[1] - before[1]) / done if done > 0 else None
