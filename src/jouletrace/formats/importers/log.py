"""A log while it is read: rows with their stamps, devices and their readings; common to all formats of logs."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.monitor import printed_step
from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions, Left, new_run
from jouletrace.formats.importers.columns import block, join
from jouletrace.formats.importers.power_sensor import polled_response
from jouletrace.formats.importers.stamps import Stamps, evenly, read_stamps, spread
from jouletrace.formats.importers.units import LARGEST, NO_UNIT, Unit
from jouletrace.run import ChannelInfo, DeviceInfo, Run
from jouletrace.run.channels import CHANNEL_UNITS, POWER
from jouletrace.sensor.kinds import USAGE, PowerField, sensor_behind

INTERVAL_S = 1.0
"""Assumed interval between rows without a time: the default of every tool that prints none."""

MOST_W = 1e6
"""No device draws a megawatt."""

_MOST = {"W": MOST_W, "MHz": 1e6, "Cel": 1e3, "%": 1e6}
"""Readings beyond these are no readings, by the unit of their channel."""

LONG_WINDOW_S = 0.2
"""Averaging windows longer than this get a warning: shorter loads than the window read too low."""

_SPARSE, _SLOW_S = 0.5, 2.0
"""Share of the time that readings see, below which it is stated of logs whose rows are so many seconds apart."""

LIMIT = "power_limit_w"
_LIMITS = {"power_min_limit_w": "min", "power_max_limit_w": "max", "power_default_limit_w": "default"}

SensorOf = Callable[[DeviceInfo, str], tuple[str, PowerField]]
"""Kind of the sensor behind a power channel ("" if unknown) and timing of its readings, by device and power field."""


def nvidia(device: DeviceInfo, field: str) -> tuple[str, PowerField]:
    """The sensor behind a power field of an NVIDIA GPU."""
    return sensor_behind(field, device.name)


@dataclass
class _Series:
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
    """

    def __init__(self, path: Path, options: ImportOptions, left: Left | None = None) -> None:
        self.left = left or Left(path)
        self.devices: dict[str, DeviceInfo] = {}
        self._path = path
        self._options = options
        self._readings: dict[tuple[str, str], _Series] = {}
        self._times: list[str] = []
        self._ticks: list[int] = []
        self._counts: dict[str, int] = {}
        self._notes: list[tuple[str, str, str]] = []

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
            series = self._readings[device, name] = _Series(si, source, field)
        number = len(self._times) - 1
        if series.rows and series.rows[-1] == number:
            self._second(series, name, value * unit.factor, source or channel, device)
            return
        series.rows.append(number)
        series.values.append(value * unit.factor)

    def _second(self, series: _Series, channel: str, value: float, source: str, device: str) -> None:
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
            BadInputError: If no reading has a time, or the time zone is unknown.
        """
        stamps = stamps or self._stamps(what, unit)
        self.left.add("no_time", f"{what} without a readable time", int((~stamps.valid).sum()))
        run = new_run(self._path, form, stamps.clock, dialect)
        for code, text, where in [*((c, t, self._path.name) for c, t in stamps.notes.items()), *self._notes]:
            run.warn(code, text, where)
        self.write(run, stamps, sensor)
        if not len(run.samples):
            raise BadInputError(f"{self._path}: not one row has a time and a reading{self.left.first()}")
        self.left.warn(run)
        return run

    def _stamps(self, what: str, unit: str) -> Stamps:
        if any(self._times):
            return read_stamps(self._times, self._options.time_zone, unit)
        note = f"the {what} have no times: an interval of {INTERVAL_S:g} s is assumed, the default of their tool"
        return evenly(self._ticks, INTERVAL_S, note)

    def write(self, run: Run, stamps: Stamps, sensor: SensorOf = nvidia) -> None:
        """Fill a Run's ``samples``, ``channels`` and ``devices``; readings of rows without a time are left out.

        Raises:
            ValueError: If ``stamps`` aren't one for each row.
        """
        if len(stamps.valid) != len(self._times):
            raise ValueError(f"{len(stamps.valid)} stamps for {len(self._times)} rows")
        blocks = []
        for device in self.devices.values():
            run.devices.append(device)
            for (of, channel), series in self._readings.items():
                if of != device.id:
                    continue
                row, value = np.frombuffer(series.rows, np.int64), np.frombuffer(series.values, np.float64)
                good = stamps.valid[row]
                row, value = _possible(run, device, channel, series.unit, row[good], value[good])
                if not len(row):
                    continue
                _note_limit(device, channel, value)
                time = stamps.time_ns[row]
                if np.all(np.diff(time) >= 0):
                    time = spread(time, stamps.resolution_s)
                info = ChannelInfo(of, channel, series.unit, series.source)
                known = None
                if channel.startswith("power_"):
                    info.sensor, known = sensor(device, series.power_field)
                _describe(run, device, info, time, value, stamps.resolution_s, known)
                run.channels.append(info)
                blocks.append(block("samples", len(row), time_ns=time, device=of, channel=channel, value=value))
        run.samples = join("samples", blocks)
        if len(run.samples):
            run.created_ns = int(run.samples["time_ns"].to_numpy().min())


def _note_limit(device: DeviceInfo, channel: str, value: NDArray[np.float64]) -> None:
    """Record a limit of a GPU's power, where the channel is one: readings are compared with them."""
    if not (channel == LIMIT or channel in _LIMITS) or not np.any(value > 0):
        return
    limit = float(np.median(value[value > 0]))  # a limit of 0 W is none
    if channel == LIMIT:
        device.power_limit_w = device.power_limit_w or limit
    else:
        device.power_limits_w.setdefault(_LIMITS[channel], limit)


def _describe(
    run: Run,
    device: DeviceInfo,
    info: ChannelInfo,
    time: NDArray[np.int64],
    value: NDArray[np.float64],
    resolution_s: float,
    sensor: PowerField | None,
) -> None:
    """State a channel's spacing and, for power, the response of its readings."""
    steps = np.diff(np.sort(time))
    spacing_s = float(np.median(steps[steps > 0])) / 1e9 if np.any(steps > 0) else 0.0
    info.period_s = spacing_s or None
    if sensor is None or not spacing_s:
        return
    response = polled_response(sensor, spacing_s, resolution_s, printed_step(value))
    info.period_s, info.window_s, info.gain_pct = response.period_s, sensor.window_s, sensor.gain_pct
    info.response = response.to_dict()
    if sensor.window_s is not None:
        info.gapless = sensor.window_s >= 0.9 * response.period_s and spacing_s >= 0.9 * response.period_s
    if info.name != POWER:
        return
    if sensor.window_s is None and (sensor.most_s or 0.0) > LONG_WINDOW_S:
        text = f"the file doesn't state which GPU's sensor is behind {info.source}"
        means = f"a reading may be a mean over up to {sensor.most_s:g} s; name the GPU with --device"
        run.warn("sensor_unknown", f"{text}: {means}", device.id)
    elif (sensor.window_s or 0.0) > LONG_WINDOW_S:
        text = f"{info.source} is a mean over the last {sensor.window_s:g} s on this GPU: shorter bursts read too low"
        run.warn("long_average", text, device.id)
    if sensor.window_s is not None and sensor.window_s < _SPARSE * spacing_s and spacing_s >= _SLOW_S:
        text = f"a reading every {spacing_s:.3g} s is a mean over {sensor.window_s:.3g} s"
        run.warn(
            "sparse_readings", f"{text}: {100 * sensor.window_s / spacing_s:.2g} % of the time was seen", device.id
        )


def _possible(
    run: Run, device: DeviceInfo, channel: str, unit: str, row: NDArray[np.int64], value: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Readings without impossible ones (a power that no device draws, or no number of a sensor), which are counted."""
    power = channel.startswith("power_") and not (channel == LIMIT or channel in _LIMITS)
    good = np.abs(value) <= _MOST.get(unit, LARGEST)
    if not good.all():
        beyond = "beyond 1 MW" if power else "no numbers of a sensor"
        text = f"{int((~good).sum())} of {len(good)} readings of {channel} are {beyond} and were left out"
        run.warn("power_impossible" if power else "not_a_number", text, device.id)
    return row[good], value[good]
