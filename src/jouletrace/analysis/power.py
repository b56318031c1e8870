"""The power record of a Run's device and how its sensor answers: what every energy is computed from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from jouletrace.arrays import Ints
from jouletrace.attribution.outcome import SWINGS
from jouletrace.attribution.prior import Prior
from jouletrace.attribution.spans import SpanEnergies, shown_ns, span_energies
from jouletrace.run import ChannelInfo, DeviceInfo, Estimate, Run
from jouletrace.run.channels import POWER
from jouletrace.run.forms import StoredLevel
from jouletrace.run.readings import Readings
from jouletrace.run.recording_names import SAMPLE_RATE
from jouletrace.run.seconds import NS, last_hour
from jouletrace.sensor import shares
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.kinds import readings_of, response_of
from jouletrace.sensor.power_record import MOST_W, at_slots, clean, most_power_w
from jouletrace.sensor.stamps import OVERSAMPLED, held_s, published

METHOD = "windows"

TOO_SHORT = "sensor_too_slow"
"""Why there is no energy of a block that the sensor doesn't resolve."""

NO_READING = "no_power_reading"
"""Why a device of a log has no power record: the log should have its power, and has no reading of it."""

WHICH_POWER = "which_power"
"""Why a device of a log has none: the log has several powers of it, and none that is the whole."""

_OVER_MEDIAN = 10.0
"""A meter of machines reads no more than so many times its median."""

_OF_SPACING = ("hole", "skipped")
"""Issues that polls have of their own, which come faster than what they show."""


def no_power_reason(run: Run, device: str) -> str:
    """Why a device has no power record: the reason that was noted when it was opened."""
    return str(_about(run, device).details.get("no_power", "no_power_sensor"))


def _about(run: Run, device: str) -> DeviceInfo:
    """The facts of a device; of an unknown one there are none."""
    return next((info for info in run.devices if info.id == device), DeviceInfo(device, ""))


def tail_s(channel: ChannelInfo) -> float:
    """Seconds of record that the end of a window needs after it; 0 for other channels than power."""
    if channel.name != POWER:
        return 0.0
    return response_of(channel).reach_s


def power_record(run: Run, device: str) -> tuple[Readings, StepResponse] | None:
    """The cleaned power record of a device, as drawn, with its response; None if there is none."""
    channel = run.channel(device, POWER)
    if channel is None:
        return None
    limit_w = most_w(run, device)

    def as_read() -> tuple[Readings, StepResponse]:
        stamps, watts = run.series(device, POWER)
        response = response_of(channel)
        if channel.gapless or not _oversampled(stamps, response.period_s):
            return clean(stamps, watts, response.period_s, most_w=limit_w, gapless=bool(channel.gapless)), response
        if np.all(np.diff(stamps) >= 0):
            return clean(*published(stamps, watts, response.period_s), response.period_s, most_w=limit_w), response
        polls = clean(stamps, watts, most_w=limit_w)  # in order, without the time that a clock had twice
        updates = published(polls.time_ns, polls.value, response.period_s)
        record = clean(*updates, response.period_s, most_w=limit_w)
        issues = {code: count for code, count in polls.issues.items() if code not in _OF_SPACING} | record.issues
        return replace(record, issues=issues, implausible_ns=polls.implausible_ns), response

    def computed(_: pa.Table) -> tuple[Readings, StepResponse]:
        record, response = as_read()
        return replace(record, value=channel.drawn_w(record.value)), response

    return run.remember("samples", ("power_record", repr(channel), limit_w), computed)


def state_period(run: Run, device: str) -> None:
    """State a longer period of a power channel that was polled live, where its changes show one."""
    channel = run.channel(device, POWER)
    if channel is None or channel.gapless or run.kind == "import":  # an importer stated it
        return
    new_s = held_s(*run.series(device, POWER))
    if new_s is None or OVERSAMPLED * new_s <= response_of(channel).period_s:
        return
    channel.period_s = new_s
    if channel.response:
        channel.response = {**channel.response, "period_s": new_s}
    warn_of_held(run, channel)


def warn_of_held(run: Run, channel: ChannelInfo) -> None:
    """State that rows come faster than readings of a channel, which states its period."""
    text = f"a new reading every {channel.period_s:.3g} s: rows between repeat it, and it counts once"
    run.warn("readings_repeated", text, channel.device)


def known_rate_hz(run: Run, device: str) -> float | None:
    """Samples per second behind a device's readings, if an earlier recording of it determined them."""
    return run.stored.get(SAMPLE_RATE, {}).get(device, StoredLevel()).get("value")


def readings(run: Run, device: str) -> tuple[Readings, shares.Response] | None:
    """The cleaned power record of a device, and what a reading shows of power; None if there is none.

    Where the stamps of a sensor lie on a grid, each reading is at the time at which it was taken.
    """
    channel, power = run.channel(device, POWER), power_record(run, device)
    if channel is None or power is None:
        return None
    record, response_of_kind = power
    response = replace(readings_of(channel, known_rate_hz(run, device)), period_s=response_of_kind.period_s)
    if not response_of_kind.stamp_grid or len(record) < 2:
        return record, response
    return at_slots(record, response_of_kind.period_s, response_of_kind.stamp_grid), response


def energies(
    run: Run,
    device: str,
    start_ns: ArrayLike,
    end_ns: ArrayLike,
    bursts_ns: ArrayLike | None = None,
    period_s: float | None = None,
    prior: Prior = Prior(),  # noqa: B008  # frozen
) -> SpanEnergies:
    """Energies of spans on one device, with arguments of ``span_energies``; none has one without a power record.

    If the Run holds means of seconds, spans within its last hour have those of its readings.
    """
    recent = last_hour(run)
    last = readings(recent, device) if recent is not None else None
    if recent is not None and last is not None and len(last[0]) > 1:
        first_ns, last_ns = shown_ns(*last)
        if np.all((np.asarray(start_ns) >= first_ns) & (np.asarray(end_ns) <= last_ns)):
            return energies(recent, device, start_ns, end_ns, bursts_ns, period_s, prior)
    record_and_response, power = readings(run, device), power_record(run, device)
    if record_and_response is None or power is None:
        return SpanEnergies.none(np.size(start_ns), no_power_reason(run, device))
    each = span_energies(*record_and_response, start_ns, end_ns, bursts_ns=bursts_ns, period_s=period_s, prior=prior)
    if recent is not None:
        each = each.less_certain(run.remember("recent", ("unseen", device), lambda _: _unseen(recent, device)))
    codes = sensor_flags(power[1])
    return replace(each, flags=[(*flags, *codes) for flags in each.flags])


def _unseen(recent: Run, device: str) -> float:
    """Standard uncertainty of the energy of a Run's last hour by swings between readings, over the energy."""
    record_and_response = readings(recent, device)
    if record_and_response is None or len(record_and_response[0]) < 2:
        return 0.0
    first_ns, last_ns = shown_ns(*record_and_response).tolist()
    hour = energies(recent, device, [first_ns + NS], [last_ns - NS], bursts_ns=[]).estimate()
    return hour.budget.get(SWINGS, 0.0) / hour.value if hour.value else 0.0


def sensor_flags(response: StepResponse) -> list[str]:
    """Codes that qualify every energy of a sensor."""
    codes = {"unmodelled": not response.modelled, "nominal_response": response.origin == "nominal"}
    return [code for code, holds in codes.items() if holds]


def most_w(run: Run, device: str) -> float:
    """The most that a device can draw, in watts, by what is known of its limits, or by its name.

    A meter may be that of many machines: its own readings say what it measures.
    """
    info = _about(run, device)
    if info.kind == "meter":
        watts = run.series(device, POWER)[1]
        read = watts[np.isfinite(watts)]
        return max(MOST_W, _OVER_MEDIAN * float(np.median(read))) if len(read) else MOST_W
    return most_power_w(info.power_limits_w.get("max"), info.power_limit_w, info.name)


def _oversampled(stamps: Ints, period_s: float) -> bool:
    """True if reads come faster than updates; in a slow log, newest row first or last, each row is a reading."""
    return len(stamps) < 3 or float(np.median(np.diff(np.sort(stamps)))) < OVERSAMPLED * 1e9 * period_s


def window_estimate(run: Run, device: str, start_ns: int, end_ns: int) -> Estimate:
    """Energy of one block of code in joules; null with the reason where the sensor can't support it."""
    record_and_response, span = readings(run, device), energies(run, device, [start_ns], [end_ns])
    if (
        record_and_response is not None
        and span.has_energy.all()
        and too_short(record_and_response[1].period_s, start_ns, end_ns)
    ):
        return Estimate.null(TOO_SHORT, "window")
    return replace(span.estimate(method="window"), flags=())


def too_short(period_s: float, start_ns: int, end_ns: int) -> bool:
    """True for a block shorter than one update of the sensor, whatever the readings around it say.

    The power that it drew could be anything that is lost in one of them.
    """
    return end_ns - start_ns < period_s * 1e9


def join(flags: Iterable[tuple[str, ...]]) -> list[str]:
    """All flags that occur, each once, in order of appearance."""
    return list(dict.fromkeys(code for some in flags for code in some))
