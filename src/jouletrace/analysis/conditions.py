"""Under what conditions a Run was measured: clocks, temperature, throttling, power limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NotRequired, TypedDict

import numpy as np

from jouletrace.analysis.iterations import PHASE, of_variant
from jouletrace.arrays import Floats
from jouletrace.run import DeviceInfo, Run
from jouletrace.run.channels import THROTTLE_REASONS
from jouletrace.run.spans import spans_of

WHOLE = ("untouched", "a", "b")
"""Variants of windows in which a workload ran as it is: of a profile, and of the two sides of ``ab``."""

ACTIVITY = {
    "graphics": "graphics_active",
    "sm": "sm_active",
    "occupancy": "sm_occupancy",
    "tensor": "pipe_tensor_active",
    "memory": "memory_active",
}
"""Activities in a device's counters: name and channel."""


class ClockSpread(TypedDict):
    """Of a clock, in MHz."""

    mean: float
    min: float
    max: float


class TemperatureCourse(TypedDict):
    """Of a temperature, in °C."""

    start: float
    end: float
    mean: float
    max: float


class Clocks(TypedDict):
    """Of the SMs as the driver reports it; by their cycle counters around windows of the whole workload; of the memory.

    The measured clock is the real one where the driver reports the requested one.
    """

    sm_reported: ClockSpread | None
    sm_measured: ClockSpread | None
    memory: ClockSpread | None


class Conditions(TypedDict):
    """Each is None where the device doesn't report it."""

    # Mean share of time (0 to 1) of each of ``ACTIVITY``, where the device has such counters
    activity: NotRequired[dict[str, float]]
    clocks_mhz: Clocks
    temperature_c: TemperatureCourse | None
    throttle_reasons: dict[str, float] | None  # share of the readings (0 to 1) by name, empty if there were none
    power_limit_w: float | None  # enforced limit in watts


SET = "settings"
"""Where the details of a GPU state the values that were set on it for the Run, with those read back."""

NOT_TAKEN = "setting_not_in_force"
"""Code of the warning that a value that was set wasn't in force."""

UNKNOWN: Conditions = {
    "clocks_mhz": {"sm_reported": None, "sm_measured": None, "memory": None},
    "temperature_c": None,
    "throttle_reasons": None,
    "power_limit_w": None,
}
"""Those without a device, and of several Runs together."""


def conditions(run: Run) -> Conditions:
    """Conditions while energy was measured, on the first GPU (without one, the first device)."""
    return first(by_device(run))


def first(each: Mapping[str, Conditions]) -> Conditions:
    """Those of the first device of ``by_device``; unknown without any."""
    return next(iter(each.values()), None) or UNKNOWN.copy()


def by_device(run: Run) -> dict[str, Conditions]:
    """Conditions while energy was measured, by id of each GPU; without a GPU, of each device."""
    gpus = [device for device in run.devices if device.kind != "cpu"] or run.devices
    counted, none = measured_mhz(run), np.empty(0)  # windows are of the first
    return {device.id: _of_device(run, device, none if k else counted) for k, device in enumerate(gpus)}


def _of_device(run: Run, info: DeviceInfo, counted: Floats) -> Conditions:
    shares = {name: _readings(run, info.id, channel) for name, channel in ACTIVITY.items()}
    active = {name: float(values.mean()) for name, values in shares.items() if len(values)}
    conditions: Conditions = {
        "clocks_mhz": {
            "sm_reported": _spread(_readings(run, info.id, "clock_sm_mhz")),
            "sm_measured": _spread(counted),
            "memory": _spread(_readings(run, info.id, "clock_memory_mhz")),
        },
        "temperature_c": _course(_readings(run, info.id, "temperature_c")),
        "throttle_reasons": _shares(_readings(run, info.id, "throttle_bits")),
        "power_limit_w": info.power_limit_w,
    }
    return {"activity": active, **conditions} if active else conditions


def measured_mhz(run: Run) -> Floats:
    """Mean SM clock of each window of a workload as it is, in MHz, by cycle counters; unmeasured ones left out."""
    mhz = np.concatenate([of_variant(run, variant)["counted_mhz"].to_numpy() for variant in WHOLE]).astype(float)
    return np.asarray(mhz[np.isfinite(mhz)])


def sm_clock_mhz(run: Run) -> float | None:
    """Mean SM clock, MHz, while energy was measured, by cycle counters or else the driver; None if unknown."""
    clocks = conditions(run)["clocks_mhz"]
    spread = clocks["sm_measured"] or clocks["sm_reported"]
    return None if spread is None else spread["mean"]


def capped_share(run: Run) -> float:
    """Share of the time (0 to 1) in which the power cap held the clock down."""
    return (conditions(run)["throttle_reasons"] or {}).get("sw_power_cap", 0.0)


def read_back(run: Run) -> dict[str, float]:
    """Values set on the GPU of a Run as the driver reads them, and the mean SM clock; empty if none was set."""
    facts = next((device.details[SET] for device in run.devices if SET in device.details), None)
    if facts is None:
        return {}
    names = {"power_limit": "limit read (W)", "clock": "clock read (MHz)"}
    values = {names[name]: float(clock["read"]) for name, clock in facts.items()}
    mhz = sm_clock_mhz(run)
    return values if mhz is None else values | {"SM clock (MHz)": round(mhz, 1)}


def not_taken(run: Run) -> str:
    """Why a value that was set on the GPU of a Run wasn't in force; "" if all were."""
    return next((warning.message for warning in run.warnings if warning.code == NOT_TAKEN), "")


def capped(run: Run, device: str, start_ns: int, end_ns: int) -> bool:
    """True if the power cap held the clock down for most of a time."""
    stamps, values = run.series(device, "throttle_bits")
    inside = (stamps >= start_ns) & (stamps <= end_ns)
    return (_shares(values[inside]) or {}).get("sw_power_cap", 0.0) > 0.5


def _readings(run: Run, device: str, channel: str) -> Floats:
    """Readings of a channel within the phase, in order of time."""
    stamps, values = run.series(device, channel)
    starts, ends = spans_of(run, "phase").named(PHASE).edges_ns
    if len(starts):
        # More phases have begun by then than have ended before.
        begun, ended = np.searchsorted(np.sort(starts), stamps, "right"), np.searchsorted(np.sort(ends), stamps, "left")
        stamps, values = stamps[begun > ended], values[begun > ended]
    ordered = np.asarray(values, np.float64)[np.argsort(stamps, kind="stable")]
    return np.asarray(ordered[np.isfinite(ordered)])


def _spread(values: Floats) -> ClockSpread | None:
    return (
        {"mean": float(values.mean()), "min": float(values.min()), "max": float(values.max())} if len(values) else None
    )


def _course(values: Floats) -> TemperatureCourse | None:
    if not len(values):
        return None
    first, last, mean, most = (float(value) for value in (values[0], values[-1], values.mean(), values.max()))
    return {"start": first, "end": last, "mean": mean, "max": most}


def _shares(values: Floats) -> dict[str, float] | None:
    """Share of readings in which each reason but an idle GPU was on; readings are evenly spaced, so of time."""
    if not len(values):
        return None
    bits = values[(values >= 0) & (values < 2**53)].astype(np.int64)
    each = {name: float(np.count_nonzero(bits & bit)) / len(values) for bit, name in THROTTLE_REASONS.items()}
    shares = {name: share for name, share in each.items() if share and name != "gpu_idle"}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))
