"""The estimator, as ``judge.py`` asks it: ``attribute`` for a burst without a timeline."""

import numpy as np

from jouletrace.attribution.attribute import attribute
from jouletrace.sensor.kinds import readings_of
from jouletrace.sensor.shares import Response

BEFORE_S = 0.7
"""Record before a burst that is used: idle power wanders."""


def estimate(times_s: np.ndarray, values_w: np.ndarray, spans: list, **known) -> tuple[np.ndarray, ...]:
    """Means, lower and upper ends, and means at each grid point, in J."""
    if "channel" in known:
        found = attribute(times_s, values_w, spans, response=readings_of(known["channel"]))
        return *found.interval(), found.tried_j
    response = Response(known["rise_s"], 0.02, known["delay_s"], 2e-4, 1 / 16, 0.35, 0.02)
    use = times_s > min(start for start, _ in spans) - BEFORE_S
    found = attribute(
        times_s[use],
        values_w[use],
        spans,
        response=response,
        period_s=known.get("period_s"),
        times_sd_s=known["times_sd_s"][use],
    )
    return *found.interval(), found.tried_j
