"""The present code for bursts, as ``measure`` and ``run`` use it, with a response that was not calibrated."""

import numpy as np

from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.kinds import KINDS, response_of
from jouletrace.sensor.power_record import clean
from jouletrace.sensor.windows.energy import window_energy

ORIGIN_NS = 1_700_000_000_000_000_000


def windows(response: StepResponse, stamps_s: np.ndarray, values_w: np.ndarray, spans: list) -> tuple[np.ndarray, ...]:
    """Means, lower and upper ends in J, NaN where there is none."""
    record = clean(ORIGIN_NS + np.rint(stamps_s * 1e9).astype(np.int64), values_w, response.period_s, most_w=2100.0)
    start, end = (ORIGIN_NS + np.rint(np.asarray(spans) * 1e9).astype(np.int64)).T
    found = window_energy(record, response, start, end)
    return found.energy_j, found.low_j, found.high_j


def estimate(times_s: np.ndarray, values_w: np.ndarray, spans: list, **known) -> tuple[np.ndarray, ...]:
    if "channel" in known:
        return windows(response_of(known["channel"]), times_s, values_w, spans)
    return windows(KINDS["hopper"].response, known["stamps_s"], values_w, spans)
