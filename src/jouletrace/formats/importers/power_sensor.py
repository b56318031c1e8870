"""The response of power readings in a log, which another tool polled from the sensor that ``sensor.kinds`` states."""

from __future__ import annotations

import math

from jouletrace.sensor.kinds import PowerField
from jouletrace.sensor.windows.response import Response

METER = PowerField((), gain_pct=None)
"""An unknown meter: each reading may be a mean since the previous one, or momentary."""


def polled_response(sensor: PowerField, spacing_s: float, resolution_s: float, quantum_w: float) -> Response:
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
