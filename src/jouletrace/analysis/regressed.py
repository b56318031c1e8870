"""The regression of a recording: its readings, the sensors that may have made them, and whether to trust the fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from jouletrace.analysis.power import power_record, response_of
from jouletrace.analysis.recording import PHASE, SAMPLE_RATE, samples
from jouletrace.attribution.activity import Activity
from jouletrace.attribution.checks import checks, verdict
from jouletrace.attribution.fit import Fit
from jouletrace.attribution.lock import lock
from jouletrace.attribution.rows import Z95
from jouletrace.errors import BadInputError
from jouletrace.run import ChannelInfo, Estimate, Run
from jouletrace.sensor.observer import PART_TIME, Means
from jouletrace.sensor.readout import Readings, on_grid
from jouletrace.sensor.sampler import HOPPER_SENSOR, Sensor

RATE_NEAR_HZ = 2.0
"""Range around a stored sample rate in which a GPU's rate is searched: it falls by about 0.3 Hz as a die warms."""

ANY_RATE_HZ = (1150.0, 1310.0)
"""Of eight GPUs of the kind seven take 1217 to 1254 samples per second, one 1191."""

GAP_SPREAD_W = 6.0
"""Standard deviation of power between kernels minus power in context idle: -3 to +9 W in 16 recordings of three H200s,
known to 8 W or better, largest on hot dies."""

AROUND_NS = 1_000_000_000
"""Readings this long before and after a recording show where it begins and ends."""


def fitted(
    run: Run,
    device: str,
    channel: ChannelInfo,
    made: Callable[[int], Activity],
    begin_ns: int,
    finish_ns: int,
    rest: Estimate,
) -> tuple[Fit, str]:
    """The regression of a recording, and why its rows can't be trusted; "" if they can.

    ``rest`` is what the GPU drew before and after, with a context and nothing running, W.

    Raises:
        BadInputError: If readings or timeline can't be used.
    """
    readings = _readings(run, device, channel, begin_ns, finish_ns)
    if rest.value is not None and rest.half_width is not None:
        readings = replace(readings, rest_w=(rest.value, float(np.hypot(rest.half_width / Z95, GAP_SPREAD_W))))
    activity, dropped = made(readings.origin_ns), int(run.workload[PHASE].get("dropped") or 0)
    for sensor in samplers(run) if samples(channel) else [_means(channel)]:
        locked = lock(activity, sensor, readings)
        asked = checks(locked, readings, len(run.activity), dropped)
        if all(check.passed for check in asked):
            return locked.fit, ""
    return locked.fit, verdict(asked)


def _readings(run: Run, device: str, channel: ChannelInfo, begin_ns: int, finish_ns: int) -> Readings:
    """The power record about a recording."""
    found = power_record(run, device)
    assert found is not None
    record = found[0]
    near = (record.time_ns > begin_ns - AROUND_NS) & (record.time_ns < finish_ns + AROUND_NS)
    time, watts = record.time_ns[near], record.power_w[near]
    if channel.gapless:  # read out by the driver every 20 ms; a calibrated period is that of the sensor's response
        return on_grid(time, watts)
    if not len(time):
        raise BadInputError("the power record has no readings while kernels were recorded")
    # polled: a stamp is when a new value was seen
    return Readings((time - time[0]) / 1e9, watts, int(time[0]), channel.period_s or 0.02, 1.0, 0, 0)


def samplers(run: Run) -> list[Sensor]:
    """A sensor that samples: near the rate of an earlier recording of the GPU, else where most are, else any."""
    known = (run.stored.get(SAMPLE_RATE) or {}).get("value")
    ranges = [HOPPER_SENSOR.rates_hz, ANY_RATE_HZ]
    if isinstance(known, int | float) and ANY_RATE_HZ[0] <= known <= ANY_RATE_HZ[1]:
        ranges.insert(0, (known - RATE_NEAR_HZ, known + RATE_NEAR_HZ))
    return [replace(HOPPER_SENSOR, rates_hz=rates) for rates in ranges]


def _means(channel: ChannelInfo) -> Means:
    """What is known of a sensor that averages: the window that its driver states, or that of its kind."""
    response = response_of(channel)
    return replace(PART_TIME, window_s=response.window_s, delay_s=response.lag_s)
