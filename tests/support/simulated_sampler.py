"""A simulated sensor that takes momentary samples of a load, and averages them recursively."""

from dataclasses import replace

import numpy as np
from scipy.signal import lfilter

from jouletrace.sensor.kinds import HOPPER_SENSOR
from jouletrace.sensor.models import STEP_S
from jouletrace.sensor.shares import Response

IDLE_W, START_S = 130.0, 0.4


class Load:
    """Piecewise constant power above idle, from ``START_S``."""

    def __init__(self, durations_s, watts):
        self.edge_s = START_S + np.append(0.0, np.cumsum(durations_s))
        self.watts = np.asarray(watts, float)

    @property
    def span(self):
        return self.edge_s[0], self.edge_s[-1]

    def energy(self, low_s, high_s):
        upto = np.append(0.0, np.cumsum(self.watts * np.diff(self.edge_s)))
        return np.interp(high_s, self.edge_s, upto) - np.interp(low_s, self.edge_s, upto) + IDLE_W * (high_s - low_s)

    def above(self, time_s):
        """Power above idle at some times."""
        place = np.searchsorted(self.edge_s, time_s, side="right") - 1
        busy = (place >= 0) & (place < len(self.watts))
        return np.where(busy, self.watts[np.clip(place, 0, len(self.watts) - 1)], 0.0)

    def record(self, rng, averages=16, after_s=0.3, sample=None, rate_hz=None):
        """Times and values of readings, and the response of this GPU's sensor; ``sample`` is that of a sample."""
        rate, weight = rate_hz or rng.uniform(1215, 1254) * averages / 16, 1 / averages
        response = Response.sampled(replace(HOPPER_SENSOR, averages=averages), 0.02, rate_hz=rate)
        sample_s = (np.arange(int((self.edge_s[-1] + after_s) * rate)) + rng.random()) / rate
        lags_s, shares = np.zeros(1), np.ones(1)
        if sample is not None:
            lags_s, shares = sample.first_s + STEP_S * np.arange(len(sample.weight)), sample.weight
        power = IDLE_W + self.above(np.subtract.outer(sample_s, lags_s)) @ shares
        state = lfilter([weight], [1, weight - 1], power, zi=[IDLE_W * (1 - weight)])[0]
        read_s = np.arange(0.02 + rng.random() * 0.02, sample_s[-1], 0.02)
        seen = state[np.searchsorted(sample_s, read_s, side="right") - 1]
        self.sample_s = sample_s
        return read_s + response.delay_s, seen + 0.3 * rng.standard_normal(len(seen)), response
