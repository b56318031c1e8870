"""Figures of a recording while it runs: running sums of the power record for ranges and steps, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace import analysis
from jouletrace.analysis.power import most_w, no_power_reason, tail_s
from jouletrace.arrays import Floats, Ints
from jouletrace.profiler.monitoring.watch import Meter
from jouletrace.profiler.record.ranges import Opened, Span
from jouletrace.recording.collector import SampleStream
from jouletrace.run import ChannelInfo, Run, tables
from jouletrace.run.channels import POWER
from jouletrace.run.shown import Shown
from jouletrace.sensor.kinds import response_of
from jouletrace.words.reasons import no_energy
from jouletrace.words.scale import quantity
from jouletrace.words.text import printable

_SHOWN = 4
"""Ranges in a printed line."""


@dataclass(frozen=True)
class RangeSoFar:
    """The ended ranges or steps of one path that the power record has passed.

    Attributes:
        count: Number of ranges.
        time_s: Mean duration in seconds.
        energy_j: Mean energy in joules over all devices, without correction for the sensor; None with a ``reason``.
        last_time_s, last_energy_j: Figures of the last range; joules None if it is too short for the sensor.
        reason: Why there is no energy: "sensor_too_slow" for short ranges (use ``Recording.recent`` for
            those), "outside_record", or why a device reports no power.
    """

    count: int
    time_s: float
    energy_j: float | None
    last_time_s: float
    last_energy_j: float | None
    reason: str | None = None


@dataclass(frozen=True)
class SoFar(Shown):
    """Plain sums of the power record for live displays, without intervals, which the Run contains.

    Attributes:
        label: Label of the recording.
        time_s: Seconds from its beginning to the end of the power record; without one, to the last mark.
        energy_j: Energy of all devices in that time in joules; None if one of them reports no power.
        power_w: Their mean power since the previous call.
        hole_s: Seconds of that time without readings, for which the energy is an estimate.
        ranges: Figures by path: names from the outermost range inwards, separated by "/"; steps are "step".
        simulated: Whether a device is a simulated GPU.
        problem: Why recording has stopped; None while it runs.
        reason: Why there is no energy: as of ``RangeSoFar``.
    """

    label: str
    time_s: float
    energy_j: float | None
    power_w: float | None
    hole_s: float = 0.0
    ranges: Mapping[str, RangeSoFar] = field(default_factory=dict)
    simulated: bool = False
    problem: str | None = None
    reason: str | None = None

    def __str__(self) -> str:
        """One line: time, energy, power, and the ranges with the most energy, or the most time without energy."""
        parts = [quantity(self.time_s, "s"), no_energy(self.reason) if self.reason else quantity(self.energy_j, "J")]
        if self.power_w is not None:
            parts.append(quantity(self.power_w, "W"))
        with_energy = [(path, of_path) for path, of_path in self.ranges.items() if of_path.energy_j is not None]
        with_energy.sort(key=lambda item: -(item[1].energy_j or 0.0) * item[1].count)
        for path, of_path in with_energy[:_SHOWN]:
            parts.append(f"{path} {quantity(of_path.energy_j, 'J')} × {of_path.count}")
        if self.reason:
            longest = sorted(self.ranges.items(), key=lambda item: -item[1].time_s * item[1].count)
            parts += [f"{path} {quantity(of_path.time_s, 's')} × {of_path.count}" for path, of_path in longest[:_SHOWN]]
        if self.hole_s:
            parts.append(f"{quantity(self.hole_s, 's')} without readings")
        if self.problem:
            parts.append(self.problem)
        mark = "SIMULATED " if self.simulated else ""
        return printable(f"{mark}{self.label}: {', '.join(parts)}")


RECENT_S = 120.0
_RECENT_SPANS = 50_000
_CURVE_S = 900.0
"""Length in seconds of the energy curve, which bounds the age of a step's start; the energy at the starts of open
ranges is stored separately."""

_NOTED_AFTER_NS = 10_000_000_000
_LONG = 10.0
"""Least number of readings in an interval with its own energy, as in ``analysis.span_energies``."""

_MOST_PATHS = 1000
OTHERS = "(others)"


@dataclass
class _Sums:
    """Sums of one path.

    Attributes:
        stretches: Number of contiguous segments: of ranges that don't begin at the end of the previous one.
        lost: Number of ranges that began before the energy curve.
    """

    count: int = 0
    seconds: float = 0.0
    joules: float = 0.0
    stretches: int = 0
    lost: int = 0
    last_end_ns: int = 0
    last_s: float = 0.0
    last_j: float = 0.0


class LiveSums:
    """Running sums of the data given to ``update``. Not thread-safe.

    Args:
        run: The session's Run: its devices and channels, and the base of recent figures.
        stream: The growing stream of samples, read from its beginning.
        start_ns: Start of the sums, in nanoseconds since the Unix epoch.
    """

    def __init__(self, run: Run, stream: SampleStream, start_ns: int) -> None:
        self._run = run
        self._stream = stream
        self._start_ns = start_ns
        power = [channel for channel in run.channels if channel.name == POWER]
        self._meters = [
            Meter(channel, start_ns, most_w(run, channel.device), _CURVE_S, _delay_s(channel)) for channel in power
        ]
        unread = [device.id for device in run.devices if run.channel(device.id, POWER) is None]
        self._missing = no_power_reason(run, unread[0]) if unread else None
        self._period_s = max((channel.period_s or 0.02 for channel in power), default=0.02)
        self._started: dict[int, float] = {}
        self._waiting: list[Span] = []
        self._sums: dict[tuple[str, ...], _Sums] = {}
        self._samples: deque[tuple[int, pa.Table]] = deque()
        self._spans: deque[Span] = deque(maxlen=_RECENT_SPANS)
        self._before = (0.0, 0.0)
        self._power_w: float | None = None
        self._end_ns = 2**63 - 1
        self.problem: str | None = None

    def update(self, spans: Iterable[Span], still_open: Iterable[Opened]) -> None:
        """Add ended spans and new readings."""
        fresh = self._stream.take()
        if len(fresh):
            self._samples.append((int(pc.max(fresh["time_ns"]).as_py()), fresh))
            oldest = self._samples[-1][0] - int(RECENT_S * 1e9)
            while self._samples[0][0] < oldest:
                self._samples.popleft()
        for meter in self._meters:
            meter.take(fresh)
        spans = list(spans)
        self._spans.extend(spans)
        self._waiting += spans
        reached = self._reached()
        ready = [span for span in self._waiting if span.end_ns <= reached]
        if ready:
            self._waiting = [span for span in self._waiting if span.end_ns > reached]
            self._sum_up(ready)
        self._note_starts(still_open, reached)

    def so_far(self, label: str, ended: Run | None = None) -> SoFar:
        """The current sums; of a recording that has ended, those of its ranges beside the figures of its Run."""
        powered = self._missing is None
        reached = self._reached()
        seconds = max((reached - self._start_ns) / 1e9, 0.0)
        energy = float(self._energy(reached)) if powered and seconds > 0 else None
        if energy is not None and seconds > self._before[0]:
            self._power_w = (energy - self._before[1]) / (seconds - self._before[0])
            self._before = seconds, energy
        power = self._power_w
        if ended is not None:
            time, energy, power = (ended.result(name).value for name in ("time_s", "energy_total_j", "power_w"))
            seconds = seconds if time is None else time
        return SoFar(
            label,
            seconds,
            energy,
            power,
            sum(meter.hole_s for meter in self._meters),
            {"/".join(path): self._range(sums) for path, sums in self._sums.items()},
            self._run.simulated,
            self.problem,
            self._missing,
        )

    def recent(self, seconds: float) -> Run:
        """An analysed Run of the last ``seconds`` of the record: figures with intervals."""
        tail = max((tail_s(channel) for channel in self._run.channels), default=0.0)
        end = self._reached() - int(tail * 1e9)
        start = max(end - int(min(seconds, RECENT_S) * 1e9), self._start_ns)
        inside = [span for span in self._spans if start <= span.start_ns and span.end_ns <= end]
        run = replace(self._run, warnings=list(self._run.warnings), complete=False)
        run.samples = tables.concat((table for _, table in self._samples), "samples")
        device = self._run.devices[0].id
        rows = span_columns(inside, device)
        phase: dict[str, object] = {"id": 0, "kind": "phase", "name": "monitor", "lane": "record", "device": device}
        phase |= {"start_ns": start, "end_ns": max(end, start)}
        run.spans = tables.concat(
            [tables.from_rows([phase], "spans"), tables.conform(pa.table(rows), "spans")], "spans"
        )
        return analysis.analyse(run)

    @property
    def since_ns(self) -> int:
        """Start of the data in all power records; 0 without one."""
        return max((meter.first_ns for meter in self._meters), default=0)

    def end(self, end_ns: int) -> None:
        """Add the last readings, up to the end of the recording, and close the stream."""
        self._end_ns = end_ns
        self.update((), ())
        self.close()

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    def _reached(self) -> int:
        """End of the data in all power records; without a power sensor, the end of the last span."""
        if self._meters:
            return min(self._end_ns, *(meter.reached_ns for meter in self._meters))
        return max((span.end_ns for span in self._spans), default=self._start_ns)

    def _energy(self, time_ns: Ints | int) -> Floats:
        nothing = np.zeros(np.shape(time_ns))
        return np.asarray(sum((meter.until(time_ns) for meter in self._meters), start=nothing), np.float64)

    def _note_starts(self, still_open: Iterable[Opened], reached: int) -> None:
        """Store the energy at the starts of open ranges: an epoch may be longer than the kept curve."""
        for opened in still_open:
            if opened.id not in self._started and opened.start_ns < reached - _NOTED_AFTER_NS:
                self._started[opened.id] = float(self._energy(opened.start_ns))

    def _sum_up(self, spans: Sequence[Span]) -> None:
        start = np.array([span.start_ns for span in spans], np.int64)
        end = np.array([span.end_ns for span in spans], np.int64)
        joules, seconds = np.zeros(len(spans)), (end - start) / 1e9
        if self._meters:
            joules = self._energy(end) - self._energy(start)
            curve_ns = max(meter.oldest_ns for meter in self._meters)
            for i in np.flatnonzero(start < curve_ns).tolist():
                noted = self._started.get(spans[i].id)
                joules[i] = np.nan if noted is None else float(self._energy(spans[i].end_ns)) - noted
        paths: dict[tuple[str, ...], list[int]] = {}
        for i, span in enumerate(spans):
            paths.setdefault(span.path, []).append(i)
            self._started.pop(span.id, None)
        for path, rows in paths.items():
            apart = path in self._sums or len(self._sums) < _MOST_PATHS
            sums = self._sums.setdefault(path if apart else (OTHERS,), _Sums())
            of = np.array(rows)
            of = of[np.argsort(start[of], kind="stable")]
            befores = np.append(sums.last_end_ns, end[of][:-1])
            finite = np.isfinite(joules[of])
            sums.count += len(of)
            sums.seconds += float(seconds[of].sum())
            sums.joules += float(joules[of][finite].sum())
            sums.lost += int((~finite).sum())
            sums.stretches += int((np.abs(start[of] - befores) > 0.02 * (end[of] - start[of])).sum())
            last = of[-1]
            sums.last_end_ns, sums.last_s, sums.last_j = int(end[last]), float(seconds[last]), float(joules[last])

    def _range(self, sums: _Sums) -> RangeSoFar:
        long_s = _LONG * self._period_s
        last = sums.last_j if sums.last_s >= long_s and np.isfinite(sums.last_j) and self._missing is None else None
        reason = self._missing
        if reason is None and sums.lost:
            reason = "outside_record"
        elif reason is None and sums.seconds < long_s * sums.stretches:
            reason = "sensor_too_slow"
        each = sums.joules / sums.count if reason is None else None
        return RangeSoFar(sums.count, sums.seconds / sums.count, each, sums.last_s, last, reason)


def _delay_s(channel: ChannelInfo) -> float:
    """The sensor's delay beyond the half period that a meter's mean over the preceding period accounts for."""
    response = response_of(channel)
    return response.delay_s - response.period_s / 2


def span_columns(spans: Sequence[Span], device: str) -> dict[str, list[object]]:
    """Columns of the ``spans`` table."""
    names = ("id", "parent", "kind", "name", "lane", "start_ns", "end_ns")
    columns: dict[str, list[object]] = {name: [span[i] for span in spans] for i, name in enumerate(names)}
    columns["device"] = [device] * len(spans)
    return columns
