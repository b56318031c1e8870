"""The power record of a Run's device and how its sensor answers: what every energy is computed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from jouletrace.attribution.prior import Prior
from jouletrace.attribution.spans import SpanEnergies, span_energies
from jouletrace.run import ChannelInfo, Estimate, Run
from jouletrace.run.channels import POWER
from jouletrace.run.forms import StoredLevel
from jouletrace.run.readings import Readings
from jouletrace.run.recording_names import SAMPLE_RATE
from jouletrace.sensor import shares
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.kinds import readings_of, response_of
from jouletrace.sensor.power_record import MOST_W, clean, most_kernel_w, most_power_w
from jouletrace.sensor.stamps import find_grid, published

METHOD = "windows"

NO_READING = "no_power_reading"
"""Why a device of a log has no power record: the log should have its power, and has no reading of it."""

_OVER_MEDIAN = 10.0
"""A meter of machines reads no more than so many times its median."""

_OF_SPACING = ("hole", "skipped")
"""Issues that polls have of their own, which come faster than what they show."""


def no_power_reason(run: Run, device: str) -> str:
    """Why a device has no power record: the reason that was noted when it was opened."""
    info = next((d for d in run.devices if d.id == device), None)
    return str(info.details.get("no_power", "no_power_sensor")) if info else "no_power_sensor"


def tail_s(channel: ChannelInfo) -> float:
    """Seconds of record that the end of a window needs after it; 0 for other channels than power."""
    if channel.name != POWER:
        return 0.0
    return response_of(channel).reach_s


def power_record(run: Run, device: str) -> tuple[Readings, StepResponse] | None:
    """The cleaned power record of a device with its response; None if there is none."""
    channel = run.channel(device, POWER)
    if channel is None:
        return None
    limit_w = most_w(run, device)

    def computed(_: pa.Table) -> tuple[Readings, StepResponse]:
        stamps, watts = run.series(device, POWER)
        response = response_of(channel)
        if channel.gapless or not _oversampled(stamps, response.period_s):
            return clean(stamps, watts, response.period_s, most_w=limit_w), response
        if np.all(np.diff(stamps) >= 0):
            return clean(*published(stamps, watts, response.period_s), response.period_s, most_w=limit_w), response
        polls = clean(stamps, watts, most_w=limit_w)  # in order, without the time that a clock had twice
        updates = published(polls.time_ns, polls.value, response.period_s)
        record = clean(*updates, response.period_s, most_w=limit_w)
        issues = {code: count for code, count in polls.issues.items() if code not in _OF_SPACING} | record.issues
        return replace(record, issues=issues, implausible_ns=polls.implausible_ns), response

    return run.remember("samples", ("power_record", repr(channel), limit_w), computed)


def known_rate_hz(run: Run, device: str) -> float | None:
    """Samples per second behind a device's readings, if an earlier recording of it determined them."""
    return run.stored.get(SAMPLE_RATE, {}).get(device, StoredLevel()).get("value")


def readings(run: Run, device: str) -> tuple[Readings, shares.Response] | None:
    """The cleaned power record of a device, and what a reading shows of power; None if there is none.

    Where the stamps of a sensor lie on a grid, each reading is at the time at which it was taken.
    """
    channel, found = run.channel(device, POWER), power_record(run, device)
    if channel is None or found is None:
        return None
    record, known = found
    response = replace(readings_of(channel, known_rate_hz(run, device)), period_s=known.period_s)
    if not known.stamp_grid or len(record) < 2:
        return record, response
    grid = find_grid(record.time_ns, known.period_s)
    taken = np.maximum.accumulate(grid.taken(known.stamp_grid)) + record.seconds(record.time_ns[0])
    later = np.diff(taken, prepend=-np.inf) > 0
    return replace(record, true_s=taken, late_s=grid.unsure_s).take(later), response


def energies(
    run: Run,
    device: str,
    start_ns: ArrayLike,
    end_ns: ArrayLike,
    bursts_ns: ArrayLike | None = None,
    period_s: float | None = None,
    prior: Prior = Prior(),  # noqa: B008  # frozen
) -> SpanEnergies | None:
    """Energies of spans on one device, with arguments of ``span_energies``; None if it has no power record."""
    found, known = readings(run, device), power_record(run, device)
    if found is None or known is None:
        return None
    each = span_energies(*found, start_ns, end_ns, bursts_ns=bursts_ns, period_s=period_s, prior=prior)
    codes = sensor_flags(known[1])
    return replace(each, flags=[(*flags, *codes) for flags in each.flags])


def sensor_flags(response: StepResponse) -> list[str]:
    """Codes that qualify every energy of a sensor."""
    own = {"unmodelled": not response.modelled, "nominal_response": response.origin == "nominal"}
    return [code for code, holds in own.items() if holds]


def reads_zero(record: Readings) -> bool:
    """True if all readings are 0 W, which no device draws that is on."""
    return len(record) > 0 and not record.value.any()


def most_w(run: Run, device: str) -> float:
    """The most that a reading of a device's power can be, in watts, by what is known of its limits, or by its name.

    A meter may be that of many machines: its own readings say what it measures.
    """
    info = next((one for one in run.devices if one.id == device), None)
    if info is not None and info.kind == "meter":
        watts = run.series(device, POWER)[1]
        read = watts[np.isfinite(watts)]
        return max(MOST_W, _OVER_MEDIAN * float(np.median(read))) if len(read) else MOST_W
    return most_power_w(*_limits(run, device))


def most_kernels_w(run: Run, device: str) -> float:
    """The most that a device can draw while a kernel runs, in watts, by the same."""
    return most_kernel_w(*_limits(run, device))


def _limits(run: Run, device: str) -> tuple[float | None, float | None, str]:
    """The largest power limit of a device and the one in force, in watts, None where unknown; its name."""
    info = next((one for one in run.devices if one.id == device), None)
    return (None, None, "") if info is None else (info.power_limits_w.get("max"), info.power_limit_w, info.name)


def _oversampled(stamps: NDArray[np.int64], period_s: float) -> bool:
    """True if reads come faster than updates; in a slow log, newest row first or last, each row is a reading."""
    return len(stamps) < 3 or float(np.median(np.diff(np.sort(stamps)))) < 0.9e9 * period_s


def window_estimate(run: Run, device: str, start_ns: int, end_ns: int) -> Estimate:
    """Energy of one block of code in joules; null with the reason where the sensor can't support it.

    Shorter than one update of the sensor is too short whatever the readings around it say: what
    the block drew could be anything that is lost in one of them.
    """
    found, energy = power_record(run, device), energies(run, device, [start_ns], [end_ns])
    if found is None or energy is None:
        return Estimate.null(no_power_reason(run, device), "window")
    reason = energy.reason[0]
    if reason is None and end_ns - start_ns < found[1].period_s * 1e9:
        reason = "sensor_too_slow"
    if reason is not None:
        return Estimate.null(reason, "window")
    return Estimate(float(energy.energy_j[0]), float(energy.low_j[0]), float(energy.high_j[0]), 1, "window")


def window_sources(
    run: Run, devices: Iterable[str], start_ns: int, end_ns: int, bursts_ns: ArrayLike | None = None
) -> dict[str, float]:
    """Standard uncertainties by source of what devices drew together in a window, J; of ``window_estimate`` for one."""
    found = (energies(run, device, [start_ns], [end_ns], bursts_ns) for device in devices)
    return together([one.sources([1.0]) for one in found if one is not None])


def together(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Standard uncertainties of a sum by source, of independent parts."""
    return {name: float(np.linalg.norm([one.get(name, 0.0) for one in each])) for one in each for name in one}


def join(flags: Iterable[tuple[str, ...]]) -> list[str]:
    """All flags that occur, each once, in order of appearance."""
    return list(dict.fromkeys(code for some in flags for code in some))


def mean_over(stamps: NDArray[np.int64], values: NDArray[np.float64], start_ns: int, end_ns: int) -> float | None:
    """Mean of the readings within [start, end]; None if there are none."""
    inside = values[(stamps >= start_ns) & (stamps <= end_ns)]
    return float(np.mean(inside)) if len(inside) else None
