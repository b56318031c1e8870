"""The driver's record of H100 and H200: momentary samples, averaged recursively and read every 20 ms.

Response, average and delay are equal on all recorded GPUs. Of eight, seven take 1217 to 1254 samples per second, one
1191.
"""

import numpy as np

from jouletrace.sensor.kinds.base import Kind, Sensor, nominal
from jouletrace.sensor.response import Response

HOPPER = Response(
    -85e-6,
    np.array(
        [
            *(5, 15, 24, 30, 33, 36, 39, 41, 38, 33, 25, 23, 23, 23, 28, 33, 36, 41, 45, 49, 47, 44, 38, 35, 31, 27),
            *(23, 20, 16, 14, 13, 12, 9, 7, 7, 7, 6, 3, 3, 3, 3, 4, 4, 3, 1),
        ],
        np.float64,
    ),
)
"""Joint estimate from four programs on an H100 (docs/results/attribution-h100.md): two lobes 65 us apart and a tail."""

HOPPER_SENSOR = Sensor(HOPPER)

KIND = Kind(
    lambda channel: bool(channel.gapless) and (channel.period_s or 0.02) < 0.05,
    nominal(0.020, 0.003, 0.003, 0.003, rise_s=0.0125, lag_s=0.002, stamp_grid=2, jitter_s=0.001),  # on one H100 SXM
    HOPPER_SENSOR,
    fixed_window=True,
)
