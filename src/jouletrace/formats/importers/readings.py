"""Readings of a log, collected row by row, and the samples, channels and devices of a Run made of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.monitor import printed_step
from jouletrace.formats.importers import columns
from jouletrace.formats.importers.numbers import LARGEST
from jouletrace.formats.importers.power_sensor import PowerSensor, nvidia_sensor, polled_response
from jouletrace.formats.importers.stamps import Stamps, spread
from jouletrace.run import ChannelInfo, DeviceInfo, Run
from jouletrace.run.channels import CHANNEL_UNITS, POWER

LIMIT = "power_limit_w"
_LIMITS = {"power_min_limit_w": "min", "power_max_limit_w": "max", "power_default_limit_w": "default"}

MOST_W = 1e6
"""No device draws a megawatt."""

LONG_WINDOW_S = 0.2
"""Averaging windows longer than this get a warning: shorter loads than the window read too low."""

SensorOf = Callable[[DeviceInfo, str], PowerSensor]
"""Known properties of the sensor behind a power channel, by device and source."""


def nvidia(device: DeviceInfo, source: str) -> PowerSensor:
    """The sensor of an NVIDIA GPU; the last word of the field's name ("average") may state its averaging."""
    return nvidia_sensor(device.name, source.rpartition(".")[2])


@dataclass
class _Series:
    """Readings of a channel, each with the number of its row."""

    unit: str
    source: str
    rows: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))


class Readings:
    """Readings by device and channel, each with the number of its row's stamp.

    Stamps are read by columns (``stamps.read_stamps``), so a reading only contains the number of its row.
    """

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], _Series] = {}

    def __len__(self) -> int:
        return sum(len(series.rows) for series in self._of.values())

    def add(self, device: str, channel: str, row: int, value: float, unit: str = "", source: str = "") -> None:
        """Add one reading; ``unit`` (SI) and ``source`` are taken from a channel's first reading."""
        series = self._of.get((device, channel))
        if series is None:
            unit = CHANNEL_UNITS[channel][0] if channel in CHANNEL_UNITS else unit or "1"
            series = self._of[device, channel] = _Series(unit, source)
        series.rows.append(row)
        series.values.append(value)

    def channels(self, device: str) -> set[str]:
        """Names of the channels of a device."""
        return {channel for of, channel in self._of if of == device}

    def source(self, device: str, channel: str) -> str:
        """The origin of the readings of a channel."""
        return self._of[device, channel].source

    def median(self, device: str, channel: str) -> float | None:
        """Median reading of a channel; None if it has none."""
        series = self._of.get((device, channel))
        return float(np.median(np.asarray(series.values))) if series is not None else None

    def rename(self, device: str, channel: str, to: str) -> None:
        """Rename a channel of a device."""
        self._of[device, to] = self._of.pop((device, channel))

    def write(self, run: Run, stamps: Stamps, devices: Iterable[DeviceInfo], sensor: SensorOf = nvidia) -> None:
        """Fill a Run's ``samples``, ``channels`` and ``devices``.

        Args:
            run: The Run to fill.
            stamps: Time of each row; readings of rows without one must have been counted as left out.
            devices: The devices that occur.
            sensor: Known properties of the sensor behind a power channel.
        """
        blocks = []
        for device in devices:
            self._note_limits(device)
            run.devices.append(device)
            for (of, channel), series in self._of.items():
                if of != device.id:
                    continue
                row, value = np.frombuffer(series.rows, np.int64), np.frombuffer(series.values, np.float64)
                good = stamps.valid[row]
                row, value = _possible(run, device, channel, row[good], value[good])
                if not len(row):
                    continue
                time = stamps.time_ns[row]
                if np.all(np.diff(time) >= 0):
                    time = spread(time, stamps.resolution_s)
                known = sensor(device, series.source) if channel.startswith("power_") else None
                info = ChannelInfo(of, channel, series.unit, series.source)
                run.channels.append(_described(run, device, info, time, value, stamps.resolution_s, known))
                blocks.append(columns.block("samples", len(row), time_ns=time, device=of, channel=channel, value=value))
        run.samples = columns.join("samples", blocks)
        if len(run.samples):
            run.created_ns = int(run.samples["time_ns"].to_numpy().min())

    def _note_limits(self, device: DeviceInfo) -> None:
        """Record the limits of a GPU's power in a log: readings are compared with them."""
        if device.power_limit_w is None:
            device.power_limit_w = self.median(device.id, LIMIT)
        for channel, name in _LIMITS.items():
            if (limit := self.median(device.id, channel)) is not None:
                device.power_limits_w.setdefault(name, limit)


def _described(
    run: Run,
    device: DeviceInfo,
    info: ChannelInfo,
    time: NDArray[np.int64],
    value: NDArray[np.float64],
    resolution_s: float,
    sensor: PowerSensor | None,
) -> ChannelInfo:
    """A channel with its spacing and, for power, the response of its readings."""
    steps = np.diff(np.sort(time))
    spacing_s = float(np.median(steps[steps > 0])) / 1e9 if np.any(steps > 0) else 0.0
    info.period_s = spacing_s or None
    if sensor is None or not spacing_s:
        return info
    response = polled_response(sensor, spacing_s, resolution_s, printed_step(value))
    info.period_s, info.window_s, info.gain_pct = response.period_s, sensor.window_s, sensor.gain_pct
    info.response = response.to_dict()
    if sensor.window_s is not None:
        info.gapless = sensor.window_s >= 0.9 * response.period_s and spacing_s >= 0.9 * response.period_s
    if info.name == POWER:
        _warn_of_window(run, device, info.source, sensor)
    return info


def _possible(
    run: Run, device: DeviceInfo, channel: str, row: NDArray[np.int64], value: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Readings without impossible ones (a power that no device draws, or no number of a sensor), which are counted."""
    power = channel.startswith("power_")
    good = np.abs(value) <= (MOST_W if power else LARGEST)
    if not good.all():
        beyond = "beyond 1 MW" if power else "no numbers of a sensor"
        text = f"{int((~good).sum())} of {len(good)} readings of {channel} are {beyond} and were left out"
        run.warn("power_impossible" if power else "not_a_number", text, device.id)
    return row[good], value[good]


def _warn_of_window(run: Run, device: DeviceInfo, source: str, sensor: PowerSensor) -> None:
    if sensor.window_s is None and (sensor.most_s or 0.0) > LONG_WINDOW_S:
        text = f"the file doesn't state which GPU's sensor is behind {source}"
        means = f"a reading may be a mean over up to {sensor.most_s:g} s; name the GPU with --device"
        run.warn("sensor_unknown", f"{text}: {means}", device.id)
    elif (sensor.window_s or 0.0) > LONG_WINDOW_S:
        text = f"{source} is a mean over the last {sensor.window_s:g} s on this GPU: shorter bursts read too low"
        run.warn("long_average", text, device.id)
