"""A recording of kernels with its readings, the sensors that may have made them, and whether to trust its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from jouletrace.analysis.kernel_times import KernelTimes
from jouletrace.analysis.power import known_rate_hz, power_record
from jouletrace.analysis.rules import doubt
from jouletrace.attribution.activity import Activity
from jouletrace.attribution.attempts import trusted
from jouletrace.attribution.lock import Lock
from jouletrace.attribution.observer import Averaged, Sampled
from jouletrace.attribution.prior import Prior
from jouletrace.attribution.program import Rows, attribute_program
from jouletrace.errors import BadInputError
from jouletrace.run import ChannelInfo, Estimate, Run
from jouletrace.run.channels import POWER
from jouletrace.run.readings import Readings
from jouletrace.sensor import kinds
from jouletrace.sensor.models import Means, Sensor
from jouletrace.sensor.readout import on_grid
from jouletrace.sensor.shares import Response
from jouletrace.stats.interval import Z95
from jouletrace.stats.one_thread import one_thread

AROUND_NS = 1_000_000_000
"""Readings this long before and after a recording show where it begins and ends."""

BEYOND_S = 10.0
"""Kernels lie in the recording, but for what a tracer reports late."""

IDLE_W = 130.0, 30.0
"""Idle power of GPUs with samplers where none was measured, and its standard deviation: H100s and H200s with a context
draw 110 to 140 W."""

OTHERS_W = 400.0, 1000.0
"""Power of kernels above idle, and its standard deviation, on GPUs of other kinds, of which no rows were recorded."""

_NEAR = 0.1
"""Standard deviation of the delay of windows, over their length, once the readings have shown where they lie."""


@dataclass(frozen=True)
class Recorded:
    """Kernels that ran and the readings beside them, with the sensor's place in time."""

    lock: Lock
    response: Response  # of the sensor
    idle_w: tuple[float, float]  # what the GPU draws with nothing running, and the standard deviation
    origin_ns: int  # zero of seconds

    @property
    def activity(self) -> Activity:
        """What ran."""
        return self.lock.fit.activity

    @one_thread
    def rows(self, spans_ns: ArrayLike = ()) -> Rows:
        """Energies of all that was recorded, of these spans, shape (s, 2), and of kinds of kernels."""
        fit, activity = self.lock.fit, self.activity
        spans = (np.asarray(spans_ns, np.int64).reshape(-1, 2) - self.origin_ns) / 1e9
        whole = [[activity.begin_s, activity.finish_s]]
        sampled, prior = None, Prior(known_idle_w=self.idle_w, power_w=OTHERS_W)
        if isinstance(fit.observer, Sampled):
            sampled, prior = fit.observer, Prior(known_idle_w=self.idle_w)
        every = np.vstack([whole, spans])
        return attribute_program(
            fit.time_s, fit.watts, every, activity, response=self.response, sampled=sampled, prior=prior
        )


def recorded(run: Run, times: KernelTimes, rest: Estimate) -> tuple[Recorded, str]:
    """A recording, and why its rows can't be trusted; "" if they can.

    ``rest`` is what the GPU drew before and after, with a context and nothing running, W.

    Raises:
        BadInputError: If readings or timeline can't be used.
    """
    channel, found, about = run.channel(times.device, POWER), power_record(run, times.device), times.about
    assert channel is not None
    assert found is not None
    readings = _readings(found[0], channel, about["start_ns"] - AROUND_NS, about["end_ns"] + AROUND_NS)
    idle_w = IDLE_W if kinds.samples(channel) else readings.rest_w
    if rest.value is not None and rest.half_width is not None:
        idle_w = rest.value, rest.half_width / Z95
        # Between kernels H200s draw -3 to +9 W more than in context idle (16 recordings of three), most on hot
        # dies: a standard deviation of 6 W.
        readings = replace(readings, rest_w=(rest.value, float(np.hypot(idle_w[1], 6.0))))
    activity, dropped = times.activity(readings.origin_ns), about.get("dropped") or 0
    since, until = ((about[edge] - readings.origin_ns) / 1e9 for edge in ("start_ns", "end_ns"))
    if activity.begin_s < since - BEYOND_S or activity.finish_s > until + BEYOND_S:
        raise BadInputError(
            f"kernels run from {activity.begin_s - since:.4g} to {activity.finish_s - since:.4g} s of a recording of "
            f"{until - since:.4g} s: a time of one is damaged"
        )
    locked, asked = trusted(activity, models(run, channel), readings, len(times.start_ns), dropped)
    return Recorded(locked, placed(locked, kinds.readings_of(channel)), idle_w, readings.origin_ns), doubt(asked)


def placed(locked: Lock, known: Response) -> Response:
    """A sensor's response at its place in time."""
    observer = locked.fit.observer
    if isinstance(observer, Sampled):
        return Response.sampled(observer.sensor, known.period_s, observer.track.rate_hz)
    assert isinstance(observer, Averaged)
    late_s = observer.delay_s + observer.sensor.window_s * (1 + observer.stretch) / 2
    known = known.widened(1 + observer.stretch)
    return replace(known, delay_s=late_s - known.middle_s, delay_sd_s=min(known.delay_sd_s, _NEAR * known.width_s))


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
