"""Under what conditions a Run was measured: clocks, temperature, throttling, power limit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.spans import phase_edges
from jouletrace.analysis.windows import of_variant
from jouletrace.run import Run
from jouletrace.run.channels import throttle_names

PHASE = "energy"
"""The phase whose conditions count; the whole Run where there is no such phase."""

WHOLE = ("untouched", "a", "b")
"""Variants of windows in which a workload ran as it is: of a profile, and of the two sides of ``ab``."""

ACTIVITY = {
    "graphics": "graphics_active",
    "sm": "sm_active",
    "occupancy": "sm_occupancy",
    "tensor": "pipe_tensor_active",
    "memory": "memory_active",
}
"""What a device's counters say it did: name and channel."""


def conditions(run: Run, device: str | None = None) -> dict[str, Any]:
    """Conditions while energy was measured, on one device.

    Args:
        run: The Run.
        device: ``DeviceInfo.id``; the first device if None.

    Returns:
        ``clocks_mhz``: {"sm_reported", "sm_measured", "memory"}, each {"mean", "min", "max"} in MHz: the
        first and last as the driver reports them; "sm_measured" by the SMs' cycle counters around windows of the whole
        workload, the real clock where the driver reports the requested one;
        ``temperature_c``: {"start", "end", "mean", "max"} in °C;
        ``throttle_reasons``: name -> share of the readings (0 to 1), empty if there were none;
        ``power_limit_w``: enforced limit in watts.
        Each is None where the device doesn't report it. ``activity``, where it has such counters: mean share of
        time (0 to 1) of each of ``ACTIVITY``.
    """
    info = next((d for d in run.devices if device in (None, d.id)), None)
    if info is None:
        return {
            "clocks_mhz": {"sm_reported": None, "sm_measured": None, "memory": None},
            "temperature_c": None,
            "throttle_reasons": None,
            "power_limit_w": None,
        }
    shares = {name: _readings(run, info.id, channel) for name, channel in ACTIVITY.items()}
    active = {name: float(values.mean()) for name, values in shares.items() if len(values)}
    return {
        **({"activity": active} if active else {}),
        "clocks_mhz": {
            "sm_reported": _spread(_readings(run, info.id, "clock_sm_mhz")),
            "sm_measured": _spread(measured_mhz(run)) if info is run.devices[0] else None,  # whose windows they are
            "memory": _spread(_readings(run, info.id, "clock_memory_mhz")),
        },
        "temperature_c": _course(_readings(run, info.id, "temperature_c")),
        "throttle_reasons": _shares(_readings(run, info.id, "throttle_bits")),
        "power_limit_w": info.power_limit_w,
    }


def measured_mhz(run: Run) -> NDArray[np.float64]:
    """Mean SM clock of each window of a workload as it is, in MHz, by cycle counters; unmeasured ones left out."""
    found = np.concatenate([of_variant(run, variant)["counted_mhz"].to_numpy() for variant in WHOLE]).astype(float)
    return np.asarray(found[np.isfinite(found)])


def capped(run: Run, device: str, start_ns: int, end_ns: int) -> bool:
    """Whether the power cap held the clock down for most of a time."""
    stamps, values = run.series(device, "throttle_bits")
    inside = (stamps >= start_ns) & (stamps <= end_ns)
    return (_shares(values[inside]) or {}).get("sw_power_cap", 0.0) > 0.5


def _readings(run: Run, device: str, channel: str) -> NDArray[np.float64]:
    """Readings of a channel within the phase, in order of time."""
    stamps, values = run.series(device, channel)
    starts, ends = phase_edges(run, PHASE)
    if len(starts):
        # More phases have begun by then than have ended before.
        begun, ended = np.searchsorted(np.sort(starts), stamps, "right"), np.searchsorted(np.sort(ends), stamps, "left")
        inside = begun > ended
        stamps, values = stamps[inside], values[inside]
    ordered: NDArray[np.float64] = np.asarray(values, dtype=np.float64)[np.argsort(stamps, kind="stable")]
    return ordered[np.isfinite(ordered)]


def _spread(values: NDArray[np.float64]) -> dict[str, float] | None:
    if not len(values):
        return None
    return {"mean": float(values.mean()), "min": float(values.min()), "max": float(values.max())}


def _course(values: NDArray[np.float64]) -> dict[str, float] | None:
    if not len(values):
        return None
    return {
        "start": float(values[0]),
        "end": float(values[-1]),
        "mean": float(values.mean()),
        "max": float(values.max()),
    }


def _shares(values: NDArray[np.float64]) -> dict[str, float] | None:
    """Share of readings in which each reason was on; readings are evenly spaced, so of time."""
    if not len(values):
        return None
    bits = values[(values >= 0) & (values < 2**53)]
    masks, counts = np.unique(bits.astype(np.int64), return_counts=True)
    shares: dict[str, float] = {}
    for mask, count in zip(masks, counts, strict=True):
        for name in throttle_names(int(mask)):
            shares[name] = shares.get(name, 0.0) + float(count) / len(values)
    return dict(sorted(shares.items(), key=lambda item: -item[1]))
