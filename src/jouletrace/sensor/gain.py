"""The gain of power sensors: no software sees it; it cancels on one GPU, and between two it doesn't.

Every comparison judges by these functions, so that the same Runs have the same verdict wherever they are compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from jouletrace.run import DeviceInfo, Estimate, Run
from jouletrace.run.channels import ENERGY_COUNTER, GAIN_PCT, POWER


def gain_of(run: Run, unstated_pct: float = GAIN_PCT, devices: Sequence[DeviceInfo] | None = None) -> float | None:
    """Relative gain error of the sensors of a Run's devices, the largest; 0 without devices. By default of all.

    A sensor that states none has ``unstated_pct``, but a simulated GPU's has none then. None of an imported log none of
    whose sensors states one: what read it may be any meter.
    """
    devices = run.devices if devices is None else devices
    channels = [run.channel(device.id, POWER) or run.channel(device.id, ENERGY_COUNTER) for device in devices]
    stated = [None if channel is None else channel.gain_pct for channel in channels]
    if run.kind == "import" and not any(stated):
        return None
    unstated = [0.0 if device.simulated else unstated_pct for device in devices]
    return max((b if a is None else a for a, b in zip(stated, unstated, strict=True)), default=0.0) / 100


def gain_between(*gains: float) -> float:
    """Relative gain error between the sensors of GPUs, from that of each.

    Those of two are independent and add up in quadrature. Of more, the extremes are picked: one may be at either limit.
    """
    return math.hypot(*gains) if len(gains) < 3 else sum(sorted(gains)[-2:])


def shown(change: Estimate) -> bool:
    """True if the interval of a change, with the gain in it, doesn't hold zero."""
    return change.low is None or change.high is None or not change.low <= 0 <= change.high
