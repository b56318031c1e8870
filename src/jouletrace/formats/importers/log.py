"""A log while it is read: rows with their stamps, devices and their readings; common to all formats of logs."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from jouletrace.analysis.imported_recording import moment, seconds_text
from jouletrace.analysis.power import NO_READING
from jouletrace.arrays import Floats, Ints
from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions, Left, new_run
from jouletrace.formats.importers.columns import block, join
from jouletrace.formats.importers.power_sensor import OneReading, describe
from jouletrace.formats.importers.shared_times import hurried, in_no_order, readings_at_once, repeated, steps_back
from jouletrace.formats.importers.stamps import FARTHEST_NS, Stamps, evenly, read_stamps, spread
from jouletrace.formats.importers.units import LARGEST, NO_UNIT, Unit
from jouletrace.run import ChannelInfo, DeviceInfo, Run, device_labels
from jouletrace.run.channels import CHANNEL_UNITS, ENERGY_COUNTER, POWER
from jouletrace.sensor.kinds import USAGE, PowerField, sensor_behind

INTERVAL_S = 1.0
"""Assumed interval between rows without a time: the default of most tools that print none."""

NAMELESS = "meter"
"""Name of the device of a log that doesn't say what it measures."""

MOST_W = 1e6
"""No device draws a megawatt."""

_MOST = {"W": MOST_W, "MHz": 1e6, "Cel": 1e3, "%": 1e6}
"""Readings beyond these are no readings, by the unit of their channel."""

_EMPTY, _EMPTY_ROWS = 0.02, 10
"""Share of the time, and rows, from which on it is stated that rows at the ends hold nothing."""

LIMIT = "power_limit_w"
_LIMIT = re.compile(r"(^|_)(limit|cap|tdp|rated|budget)(_|$)")
_LIMITS = {"power_min_limit_w": "min", "power_max_limit_w": "max", "power_default_limit_w": "default"}

_SIMULATED = re.compile(r"SIM(ULATED\b|-)")
"""How the ids and names of jouletrace's own simulated GPUs begin."""

SensorOf = Callable[[DeviceInfo, str], tuple[str, PowerField | None]]
"""Kind of the sensor behind a power channel ("" if unknown) and timing of its readings, by device and power field."""


def nvidia(device: DeviceInfo, field: str) -> tuple[str, PowerField]:
    """The sensor behind a power field of an NVIDIA GPU."""
    return sensor_behind(field, device.name)


@dataclass
class _LoggedSeries:
    """Readings of a channel, each with the number of its row."""

    unit: str
    source: str
    power_field: str
    rows: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))


class Log:
    """Rows in the order of the file; every reading belongs to the last row.

    Stamps are read by whole columns (``read_stamps``), so readings only contain the number of their row.

    Attributes:
        left: Counts of unusable content.
        devices: Devices by id, in order of appearance.
        apart: How to log so that readings of several devices can be distinguished; "" where the file does so.
        bursts: True if the tool writes a row of each device at once, and never two of one.
        interval: Why rows without times are taken to be ``INTERVAL_S`` apart.
    """

    def __init__(self, path: Path, options: ImportOptions, left: Left | None = None) -> None:
        self.left = left or Left(path)
        self.devices: dict[str, DeviceInfo] = {}
        self.apart = ""
        self.bursts = False
        self.interval = "the default of their tool"
        self._path = path
        self._options = options
        self._readings: dict[tuple[str, str], _LoggedSeries] = {}
        self._times: list[str] = []
        self._ticks: list[int] = []
        self._counts: dict[str, int] = {}
        self._notes: list[tuple[str, str, str]] = []
        self._empty: dict[tuple[str, str], str] = {}

    def __len__(self) -> int:
        """Number of readings."""
        return sum(len(series.rows) for series in self._readings.values())

    def row(self, stamp: str, of: str = "") -> int:
        """Begin a row, with its time as printed ("" if it is missing), and return its number.

        ``of`` is the device whose row it is, where several alternate; it distinguishes rows without times.
        """
        tick = self._counts[of] = self._counts.get(of, -1) + 1
        self._times.append(stamp)
        self._ticks.append(tick)
        return len(self._times) - 1

    def device(self, id: str, name: str, **facts: object) -> str:
        """The id of a device, which is registered at its first occurrence with its known facts.

        Nodes number their GPUs alike, so a GPU of another ``host`` is another device.
        """
        there = self.devices.get(id)
        host = facts.get("host", "")
        if there is not None and there.host != host:
            id = f"{id}@{host}"
        if id not in self.devices:
            given = {key: value for key, value in facts.items() if value not in ("", None)}
            given["simulated"] = any(_SIMULATED.match(text.removeprefix("imported:")) for text in (id, name))
            self.devices[id] = DeviceInfo(id, name, **given)  # type: ignore[arg-type]  # fields of DeviceInfo
        return id

    def gpu(self, number: str) -> str:
        """The id of a GPU of which only the number is known."""
        index = int(number)
        return self.device(f"imported:{index}", self._options.device or f"device {index}", index=index)

    def add(
        self, device: str, channel: str, value: float, unit: Unit = NO_UNIT, source: str = "", field: str = USAGE
    ) -> None:
        """Add a reading in ``unit``, whose suffix is appended to the channel's name if it is missing.

        The channel's unit (SI), source and, of power, ``field`` (``sensor.kinds``), which states the averaging, are
        those of its first reading. A channel has one reading a row, the first.

        Raises:
            BadInputError: If a row has another power of the device already.
        """
        name = channel if channel.endswith(unit.suffix) else channel + unit.suffix
        series = self._readings.get((device, name))
        if series is None:
            si = CHANNEL_UNITS[name][0] if name in CHANNEL_UNITS else unit.si
            series = self._readings[device, name] = _LoggedSeries(si, source, field)
        number = len(self._times) - 1
        if series.rows and series.rows[-1] == number:
            self._second(series, name, value * unit.factor, source or channel, device)
            return
        series.rows.append(number)
        series.values.append(value * unit.factor)

    def empty(self, device: str, channel: str, heading: str) -> None:
        """Note a cell without a value: a channel that has no other, of a column with this heading, is named."""
        self._empty.setdefault((device, channel), heading)

    def _second(self, series: _LoggedSeries, channel: str, value: float, source: str, device: str) -> None:
        """Count a reading that differs from the one of its channel in the same row; of power, there's no choosing."""
        if series.values[-1] == value:  # an exporter repeats a GPU's readings for each process that shares it
            return
        if channel == POWER:
            both = f"{series.source} ({series.values[-1]:g} W) and {source} ({value:g} W)"
            name = self.devices[device].name
            raise BadInputError(f"{self._path}: a row has two powers of {name}, {both}: remove one of them")
        self.left.add("second_readings", "readings stand beside another of their kind in their row", place=source)

    def note(self, code: str, text: str, where: str = "") -> None:
        """Add a warning to the Run, by default about the file."""
        self._notes.append((code, text, where or self._path.name))

    def channels(self, device: str) -> set[str]:
        """Names of the channels of a device."""
        return {channel for of, channel in self._readings if of == device}

    def source(self, device: str, channel: str) -> str:
        """The origin of the readings of a channel."""
        return self._readings[device, channel].source

    def median(self, device: str, channel: str) -> float | None:
        """Median reading of a channel; None if it has none."""
        series = self._readings.get((device, channel))
        return float(np.median(np.asarray(series.values))) if series is not None else None

    def rename(self, device: str, channel: str, to: str) -> None:
        """Rename a channel of a device."""
        self._readings[device, to] = self._readings.pop((device, channel))
        if heading := self._empty.pop((device, channel), ""):
            self._empty[device, to] = heading

    def run(
        self,
        form: str,
        what: str,
        *,
        dialect: str = "",
        sensor: SensorOf = nvidia,
        unit: str = "",
        stamps: Stamps | None = None,
    ) -> Run:
        """A Run of everything added, in the format ``form``; ``what`` is the word for its rows ("scrapes").

        ``unit`` is that of times which are numbers ("ms"), if the format states it. ``stamps`` are the times of all
        rows, if they were read already.

        Raises:
            BadInputError: If no reading has a time, readings of several devices can't be distinguished, or the time
                zone is unknown.
        """
        stamps = stamps or self._stamps(what, unit)
        self.left.add("no_time", f"{what} without a readable time", int((~stamps.valid).sum()) - stamps.strays)
        self.left.add("stray_times", f"{what} have a time that is years from the others", stamps.strays)
        run = new_run(self._path, form, stamps.clock, dialect)
        for code, text, where in [*((c, t, self._path.name) for c, t in stamps.notes.items()), *self._notes]:
            run.warn(code, text, where)
        self.write(run, stamps, sensor)
        if not len(run.samples):
            raise BadInputError(f"{self._path}: not one row has a time and a reading{self.left.first()}")
        self.left.warn(run)
        _warn_of_empty_ends(run, stamps.time_ns[stamps.valid])
        return run

    def _stamps(self, what: str, unit: str) -> Stamps:
        if any(self._times):
            return read_stamps(self._times, self._options.time_zone, unit)
        note = f"the {what} have no times: an interval of {INTERVAL_S:g} s is assumed, {self.interval}"
        return evenly(self._ticks, INTERVAL_S, note)

    def write(self, run: Run, stamps: Stamps, sensor: SensorOf = nvidia) -> None:
        """Fill a Run's ``samples``, ``channels`` and ``devices``; readings of rows without a time are left out.

        Raises:
            BadInputError: If readings of several devices can't be distinguished.
            ValueError: If ``stamps`` aren't one for each row.
        """
        if len(stamps.valid) != len(self._times):
            raise ValueError(f"{len(stamps.valid)} stamps for {len(self._times)} rows")
        blocks = []
        found = {device.id: self._of_device(run, device, stamps) for device in self.devices.values()}
        onward_ns = self._onward(run, stamps, [[row for row, _ in some.values()] for some in found.values()])
        self._note_unread(run)
        for device in self.devices.values():
            run.devices.append(device)
            for channel, (row, read) in found[device.id].items():
                series = self._readings[device.id, channel]
                _note_limit(device, channel, read)
                time, value = self._in_order(run, onward_ns[row], read)
                if len(time) > 1 and np.median(np.diff(np.sort(time)).astype(np.float64)) > FARTHEST_NS:
                    self.left.add("stray_times", "readings are years apart", len(time))
                    continue
                if np.all(np.diff(time) >= 0):
                    time = spread(time, stamps.resolution_s)
                info = (ChannelInfo if len(row) > 1 else OneReading)(device.id, channel, series.unit, series.source)
                known = None
                if channel.startswith("power_"):
                    info.sensor, known = sensor(device, series.power_field)
                elif channel == ENERGY_COUNTER:
                    _, of_counter = sensor(device, series.power_field)
                    info.gain_pct = None if of_counter is None else of_counter.gain_pct
                describe(run, device, info, time, value, stamps.resolution_s, known)
                run.channels.append(info)
                blocks.append(block("samples", len(row), time_ns=time, device=device.id, channel=channel, value=value))
        run.samples = join("samples", blocks)
        if len(run.samples):
            run.created_ns = int(run.samples["time_ns"].to_numpy().min())

    def _in_order(self, run: Run, time: Ints, value: Floats) -> tuple[Ints, Floats]:
        """Times and values, sorted and noted where they are in no order."""
        if not in_no_order(time):
            return time, value
        run.warn("rows_sorted", "rows are in no order of time: they were sorted", self._path.name)
        order = np.argsort(time, kind="stable")
        return time[order], value[order]

    def _onward(self, run: Run, stamps: Stamps, found: list[list[Ints]]) -> Ints:
        """The rows' times on the clock of the first, where it stepped back: rows go on at the usual distance.

        ``found`` has the rows of each channel of each device.
        """
        time, said = stamps.time_ns.copy(), dict[str, None]()
        for own in filter(None, found):
            rows = max(own, key=len)
            steps, by_ns, usual_ns = steps_back(time[rows], stamps.resolution_s)
            if len(steps):
                many = f"{len(steps)} times, first " if len(steps) > 1 else ""
                after = moment(int(time[rows[steps[0] - 1]]))
                text = f"the clock stepped back {many}by {seconds_text(by_ns[0] / 1e9)} after {after}"
                said[f"{text}: rows from there on are taken to go on {seconds_text(usual_ns / 1e9)} later"] = None
                gone_ns = np.append(0, np.cumsum(by_ns))
                time += gone_ns[np.searchsorted(rows[steps], np.arange(len(time)), side="right")]
            count, usual_s, lacking_s = hurried(time[rows], stamps.resolution_s)
            if count:
                text = f"rows are {seconds_text(usual_s)} apart, but {count} come sooner, and none came late"
                lacking = f"{seconds_text(lacking_s)} are missing in time and energy"
                said[f"{text}: if the clock stepped back, {lacking}"] = None
        for text in said:
            run.warn("clock_stepped", text, self._path.name)
        return time

    def _of_device(self, run: Run, device: DeviceInfo, stamps: Stamps) -> dict[str, tuple[Ints, Floats]]:
        """Rows and values of each channel of a device, without impossible readings and repeated rows."""
        found: dict[str, tuple[Ints, Floats]] = {}
        for (of, channel), series in self._readings.items():
            if of != device.id:
                continue
            row, value = np.frombuffer(series.rows, np.int64), np.frombuffer(series.values, np.float64)
            good = stamps.valid[row]
            row, value = _possible(run, device, channel, series.unit, row[good], value[good])
            if len(row):
                found[channel] = row, value
        if not found:
            return found
        rows = np.unique(np.concatenate([row for row, _ in found.values()]))
        readings = (_dense(rows, *one) for one in found.values())
        again = rows[repeated(stamps.time_ns[rows], readings, stamps.resolution_s)]
        self.left.add("repeated_rows", "rows repeat another one, in time and in all readings", len(again))
        found = {
            channel: (row[new], value[new])
            for channel, (row, value) in found.items()
            if any(new := ~np.isin(row, again))
        }
        self._refuse_several(run, device, found, stamps)
        return found

    def _refuse_several(
        self, run: Run, device: DeviceInfo, found: dict[str, tuple[Ints, Floats]], stamps: Stamps
    ) -> None:
        """Ask for the device where readings of several share times: half of their energy would be lost.

        Raises:
            BadInputError: If they do.
        """
        powers = [one for name, one in found.items() if is_power(name)]
        if not powers:
            return
        row, value = found.get(POWER, powers[0])
        each, certain = readings_at_once(stamps.time_ns[row], value, stamps.resolution_s, self.bursts)
        alone = len(np.unique(stamps.time_ns[row])) == len(row)
        if certain and self.apart:
            there = f"each {'group of rows' if alone else 'time'} has {each} readings of power"
            text = f"{there}: are they of {each} GPUs without an index?"
            raise BadInputError(f"{self._path}: {text} {self.apart[:1].upper()}{self.apart[1:]}")
        if certain:
            text = f"each time has {each} readings of {device.name}: are they of {each} machines?"
            raise BadInputError(f"{self._path}: {text} Import the log of each machine alone")
        if each > 1 and self.apart:
            there = f"rows come in groups of {each}" if alone else f"each stamp has {each} rows"
            text = f"{there}, which are taken for readings that followed each other"
            run.warn("stamps_shared", f"{text}; if they are of {each} devices: {self.apart}", device.id)

    def _note_unread(self, run: Run) -> None:
        """Mark devices without a reading of power, which the analysis names; name all other channels without one."""
        read: dict[str, set[str]] = {}
        for of, channel in self._readings:
            read.setdefault(of, set()).add(channel)
        for of, channel in self._empty:
            if is_power(channel) and not any(map(is_power, read.get(of, ()))):
                self.devices[of].details.setdefault("no_power", NO_READING)
        labels = device_labels(list(self.devices.values())) if self._empty else {}
        unread: dict[str, list[str]] = {}
        for (of, channel), heading in self._empty.items():
            said = is_power(channel) and self.devices[of].details.get("no_power") == NO_READING
            if not said and not any(name.startswith(channel) for name in read.get(of, ())):
                unread.setdefault(heading, []).append(labels[of])
        for heading, names in unread.items():
            run.warn("no_reading", f"no reading of {heading}: {', '.join(names)}", self._path.name)


def is_power(channel: str) -> bool:
    """True if a channel is a power that a device draws, no limit of it."""
    return channel.endswith("_w") and _LIMIT.search(channel) is None


def _warn_of_empty_ends(run: Run, time_ns: Ints) -> None:
    """State how long rows at the ends of a log, which has rows at ``time_ns``, hold no reading at all."""
    read = run.samples["time_ns"].to_numpy()
    empty_s, whole_s = (np.ptp(time_ns) - np.ptp(read)) / 1e9, np.ptp(time_ns) / 1e9
    if empty_s > _EMPTY * whole_s and len(time_ns) > _EMPTY_ROWS:
        text = f"of {whole_s:.4g} s, rows of {empty_s:.4g} s at the ends hold no reading: they are in no figure"
        run.warn("ends_without_power", text)


def _note_limit(device: DeviceInfo, channel: str, value: Floats) -> None:
    """Record a limit of a GPU's power, where the channel is one: readings are compared with them."""
    if not (channel == LIMIT or channel in _LIMITS) or not np.any(value > 0):
        return
    limit = float(np.median(value[value > 0]))  # a limit of 0 W is none
    if channel == LIMIT:
        device.power_limit_w = device.power_limit_w or limit
    else:
        device.power_limits_w.setdefault(_LIMITS[channel], limit)


def _dense(rows: Ints, row: Ints, value: Floats) -> Floats:
    """The readings of ``row`` at all ``rows``; NaN where there is none."""
    dense = np.full(len(rows), np.nan)
    dense[np.searchsorted(rows, row)] = value
    return dense


def _possible(run: Run, device: DeviceInfo, channel: str, unit: str, row: Ints, value: Floats) -> tuple[Ints, Floats]:
    """Readings without impossible ones (a power that no device draws, or no number of a sensor), which are counted."""
    power = is_power(channel)
    good = np.abs(value) <= _MOST.get(unit, LARGEST)
    if not good.all():
        beyond = "beyond 1 MW" if power else "no numbers of a sensor"
        text = f"{int((~good).sum())} of {len(good)} readings of {channel} are {beyond} and were left out"
        run.warn("power_impossible" if power else "not_a_number", text, device.id)
    return row[good], value[good]
