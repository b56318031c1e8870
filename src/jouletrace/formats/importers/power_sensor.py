"""The averaging behind a power reading in a log, determined from the GPU's name and the field that was read.

It follows documentation and published work (Yang, Adamek and Armour, SC 2024) and measurements on an H100;
``devices.nvml.sensors`` uses the same facts for live GPUs.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from jouletrace.run.channels import GAIN_PCT
from jouletrace.sensor.windows.response import Response

_SHORT_WINDOW = re.compile(r"\b(A100|A800|A30)\b", re.I)
_FAST = re.compile(r"\b(V100|TITAN V|P100|P40|P4|GTX 10\d0|TITAN X\w*)\b", re.I)
_ONE_SECOND = re.compile(
    r"\b(G?H100|H200|H800|H20|GH200|G?B[123]00|A10G?|A16|A2|A40|L4|L40S?|"
    r"RTX (PRO )?[A-Z]?\d[05]00\w*( Ada| Blackwell)?|RTX [345]0\d0)\b",
    re.I,
)
_TURING = re.compile(r"\bQuadro RTX\b", re.I)  # named like Ampere's RTX A6000, and unknown


@dataclass(frozen=True)
class PowerSensor:
    """Timing of a sensor as far as it is known in advance.

    Attributes:
        period_s: Seconds between its updates; None if unknown.
        window_s: Averaging window of a reading in seconds; None if unknown.
        most_s: Longest possible window where it is unknown; None for the log's own spacing.
        gain_pct: Proportional error that software can't detect; None if unknown.
    """

    period_s: float | None
    window_s: float | None
    most_s: float | None = 1.0
    gain_pct: float | None = GAIN_PCT


UNKNOWN = PowerSensor(0.1, None)
"""An NVIDIA GPU of unknown model: its readings may be means over up to a second."""

METER = PowerSensor(None, None, most_s=None, gain_pct=None)
"""An unknown meter: each reading may be a mean since the previous one, or momentary."""


def nvidia_sensor(board: str, field: str = "") -> PowerSensor:
    """The sensor behind a field of NVIDIA's tools, which may state "average" or "instant".

    ``board`` is the marketing name of the GPU, in whole or in part; "" if unknown.
    """
    if field == "average":
        return PowerSensor(0.1, 1.0)
    if field == "instant":
        return PowerSensor(0.1, None, most_s=0.1)
    if _FAST.search(board):
        return PowerSensor(0.02, 0.01)
    if _SHORT_WINDOW.search(board):
        return PowerSensor(0.1, 0.025)
    if _ONE_SECOND.search(board) and not _TURING.search(board):
        return PowerSensor(0.1, 1.0)
    return UNKNOWN


def polled_response(sensor: PowerSensor, spacing_s: float, resolution_s: float, quantum_w: float) -> Response:
    """The response of readings that another tool polled and logged, with rows ``spacing_s`` apart.

    A reading is up to one update period old when it is read. Its stamp is truncated to ``resolution_s`` and its watts
    are rounded to steps of ``quantum_w``.
    """
    age = sensor.period_s or 0.0
    period = max(spacing_s, age)
    most = spacing_s if sensor.most_s is None else sensor.most_s
    window = sensor.window_s if sensor.window_s is not None else most / 2
    window_sd = 0.05 * window if sensor.window_s is not None else most / math.sqrt(12)
    jitter = math.hypot(age, resolution_s) / math.sqrt(12)
    covariance = (((age**2 + (0.1 * period) ** 2) / 12, 0.0, 0.0), (0.0, window_sd**2, 0.0), (0.0, 0.0, 0.0))
    return Response(
        period_s=period,
        window_s=window,
        lag_s=(age - resolution_s) / 2,
        jitter_s=jitter,
        noise_w=max(0.5, quantum_w / math.sqrt(12)),
        covariance=covariance,
    )
