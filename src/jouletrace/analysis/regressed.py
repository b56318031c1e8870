"""The regression of a recording: its readings, the sensors that may have made them, and whether to trust the fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jouletrace.analysis.kernel_times import KernelTimes
from jouletrace.analysis.power import known_rate_hz, power_record
from jouletrace.attribution.attempts import trusted
from jouletrace.attribution.checks import verdict
from jouletrace.attribution.fit import Fit
from jouletrace.errors import BadInputError
from jouletrace.run import ChannelInfo, Estimate, Run
from jouletrace.run.channels import POWER
from jouletrace.run.readings import Readings
from jouletrace.sensor import kinds
from jouletrace.sensor.models import Means, Sensor
from jouletrace.sensor.readout import on_grid
from jouletrace.stats.interval import Z95

AROUND_NS = 1_000_000_000
"""Readings this long before and after a recording show where it begins and ends."""

BEYOND_S = 10.0
"""Kernels lie in the recording, but for what a tracer reports late."""


def fitted(run: Run, times: KernelTimes, rest: Estimate) -> tuple[Fit, str]:
    """The regression of a recording, and why its rows can't be trusted; "" if they can.

    ``rest`` is what the GPU drew before and after, with a context and nothing running, W.

    Raises:
        BadInputError: If readings or timeline can't be used.
    """
    channel, found, about = run.channel(times.device, POWER), power_record(run, times.device), times.about
    assert channel is not None
    assert found is not None
    readings = _readings(found[0], channel, about["start_ns"] - AROUND_NS, about["end_ns"] + AROUND_NS)
    if rest.value is not None and rest.half_width is not None:
        # Between kernels H200s draw -3 to +9 W more than in context idle (16 recordings of three), most on hot
        # dies: a standard deviation of 6 W.
        readings = replace(readings, rest_w=(rest.value, float(np.hypot(rest.half_width / Z95, 6.0))))
    activity, dropped = times.activity(readings.origin_ns), about.get("dropped") or 0
    since, until = ((about[edge] - readings.origin_ns) / 1e9 for edge in ("start_ns", "end_ns"))
    if activity.begin_s < since - BEYOND_S or activity.finish_s > until + BEYOND_S:
        raise BadInputError(
            f"kernels run from {activity.begin_s - since:.4g} to {activity.finish_s - since:.4g} s of a recording of "
            f"{until - since:.4g} s: a time of one is damaged"
        )
    locked, asked = trusted(activity, models(run, channel), readings, len(times.start_ns), dropped)
    return locked.fit, "" if all(check.passed for check in asked) else verdict(asked)


def _readings(record: Readings, channel: ChannelInfo, begin_ns: int, finish_ns: int) -> Readings:
    """The power record of a time."""
    near = (record.time_ns > begin_ns) & (record.time_ns < finish_ns)
    time, watts = record.time_ns[near], record.value[near]
    if kinds.samples(channel):  # on the grid of the readout; a calibrated period is that of the sensor's response
        return on_grid(time, watts, kinds.kind_of(channel).response.period_s)
    if not len(time):
        raise BadInputError("the power record has no readings while kernels were recorded")
    return Readings(time, watts, origin_ns=int(time[0]))  # polled: a stamp is when a new value was seen


def models(run: Run, channel: ChannelInfo) -> Sequence[Sensor | Means]:
    """Models of the sensor to try in turn, with the sample rate of an earlier recording of the GPU, if there is one."""
    return kinds.models(channel, known_rate_hz(run, channel.device))
