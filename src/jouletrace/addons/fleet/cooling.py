"""Cooling of a GPU before it is measured: heat raises leakage, and lowers clocks under a cap."""

from __future__ import annotations

from typing import Any

from jouletrace.devices.base import Device
from jouletrace.profiler.progress import Progress

CHANNEL = "temperature_c"
MARGIN_C = 5.0
"""Margin of the default target above the temperature of a GPU at first sight, in °C."""

_LOOK_S = 0.5


def wait_until_cool(device: Device, cool_to_c: float | None, limit_s: float, progress: Progress) -> dict[str, Any]:
    """Wait until the die has reached the requested temperature, or the time is up.

    Args:
        device: The GPU, opened.
        cool_to_c: Temperature to wait for, in °C; None doesn't wait.
        limit_s: Longest wait in seconds.
        progress: Receives the phase of waiting.

    Returns:
        ``from_c``, ``to_c`` (None where the GPU doesn't report it), ``seconds`` waited, and ``reached``: whether
        it was cool enough at the end; None if no wait was requested.
    """
    first = now = temperature(device)
    start_ns = device.clock.monotonic_ns()
    waited_s = 0.0
    if cool_to_c is not None and first is not None and first > cool_to_c and limit_s > 0:
        progress.begin(f"cooling down to {cool_to_c:.0f} °C", limit_s)
        while now is not None and now > cool_to_c and waited_s < limit_s:
            device.clock.sleep(min(_LOOK_S, limit_s - waited_s))
            waited_s = (device.clock.monotonic_ns() - start_ns) / 1e9
            now = temperature(device)
    reached = None if cool_to_c is None or now is None else now <= cool_to_c
    return {"from_c": first, "to_c": now, "seconds": waited_s, "reached": reached}


def temperature(device: Device) -> float | None:
    """Temperature of the die in °C, read now; None where the device doesn't report it."""
    for source in device.sources():
        if any(channel.name == CHANNEL for channel in source.channels):
            for found in source.poll():
                if found.channel == CHANNEL and len(found.value):
                    return float(found.value[-1])
    return None
