"""The response of power readings in a log, which another tool polled from the sensor that ``sensor.kinds`` states."""

from __future__ import annotations

import math

import numpy as np

from jouletrace.analysis.power import warn_of_held
from jouletrace.arrays import Floats, Ints
from jouletrace.run import ChannelInfo, DeviceInfo, Run
from jouletrace.run.channels import POWER
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.kinds import PowerField
from jouletrace.sensor.power_record import printed_step
from jouletrace.sensor.stamps import held_s

LONG_WINDOW_S = 0.2
"""Averaging windows longer than this get a warning: shorter loads than the window read too low."""

_SPARSE, _SLOW_S = 0.5, 2.0
"""Share of the time that readings see, below which it is stated of logs whose rows are so many seconds apart."""

_NOISE_W, _NOISE = 0.5, 0.02
"""Least noise that is assumed of a GPU's sensor, and of one that reads little as a share of its mean reading."""

_LATE = 1.5
"""Range, in spacings, of what an unknown meter's readings are late by: when it averages and delivers is its own."""

METER = PowerField((), gain_pct=None)
"""An unknown meter: each reading may be a mean since the previous one, or momentary."""


class OneReading(ChannelInfo):
    """A channel of a file with one reading, which has no spacing: a record that other files complete has one.

    Attributes:
        known: Timing of its readings; None of another channel than power.
        resolution_s: Resolution of the printed stamps.
    """

    known: PowerField | None
    resolution_s: float


def polled_response(
    sensor: PowerField, spacing_s: float, resolution_s: float, quantum_w: float, typical_w: float, late_s: float = 0.0
) -> StepResponse:
    """The response of readings that another tool polled and logged, ``spacing_s`` apart.

    A reading is up to one update period old when it is read, and up to ``late_s`` more in its first row. Its stamp is
    truncated to ``resolution_s`` and its watts are rounded to steps of ``quantum_w``. Below a ``typical_w`` of 25 W
    noise is less than a GPU's.
    """
    age = (sensor.period_s or 0.0) + late_s
    period = max(spacing_s, age)
    most = spacing_s if sensor.most_s is None else sensor.most_s
    window = sensor.window_s if sensor.window_s is not None else most / 2
    window_sd = 0.05 * window if sensor.window_s is not None else most / math.sqrt(12)
    jitter = math.hypot(age, resolution_s) / math.sqrt(12)
    late, late_by = (age, age) if sensor.period_s else (max(age, spacing_s), _LATE * max(age, spacing_s))
    covariance = (((late_by**2 + (0.1 * period) ** 2) / 12, 0.0, 0.0), (0.0, window_sd**2, 0.0), (0.0, 0.0, 0.0))
    return StepResponse(
        period_s=period,
        window_s=window,
        lag_s=(late - resolution_s) / 2,
        jitter_s=jitter,
        noise_w=max(min(_NOISE_W, _NOISE * typical_w), quantum_w / math.sqrt(12)),
        covariance=covariance,
    )


def describe(
    run: Run,
    device: DeviceInfo,
    info: ChannelInfo,
    time: Ints,
    value: Floats,
    resolution_s: float,
    sensor: PowerField | None,
) -> None:
    """State a channel's spacing and, for power, the response of its readings."""
    steps = np.diff(np.sort(time))
    row_s = float(np.median(steps[steps > 0])) / 1e9 if np.any(steps > 0) else 0.0
    new_s = held_s(time, value) if sensor is not None else None
    spacing_s = max(new_s or 0.0, row_s)
    info.period_s = spacing_s or None
    if isinstance(info, OneReading):
        info.known, info.resolution_s = sensor, resolution_s
    if sensor is None or not spacing_s:
        return
    typical_w, late_s = float(np.mean(np.abs(value))), row_s if new_s else 0.0
    response = polled_response(sensor, spacing_s, resolution_s, printed_step(value), typical_w, late_s)
    info.period_s, info.window_s, info.gain_pct = response.period_s, sensor.window_s, sensor.gain_pct
    info.response = response.to_dict()
    if sensor.window_s is not None:
        info.gapless = sensor.window_s >= 0.9 * response.period_s and spacing_s >= 0.9 * response.period_s
    if info.name != POWER:
        return
    if new_s:
        warn_of_held(run, info)
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


def describe_joined(run: Run) -> None:
    """Describe channels of files with one reading each, as those of one file with all of them."""
    devices = {device.id: device for device in run.devices}
    for info in run.channels:
        if isinstance(info, OneReading) and info.device in devices:
            series = run.series(info.device, info.name)
            describe(run, devices[info.device], info, *series, info.resolution_s, info.known)
