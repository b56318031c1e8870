"""Shares of intervals in readings, against integrals over a fine grid."""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.sensor.kinds import HOPPER_SENSOR
from jouletrace.sensor.shares import Response, Timeline, shares

RESPONSE = Response.sampled(HOPPER_SENSOR, 0.02)


@pytest.fixture(scope="module")
def timeline():
    """Intervals of three kinds within a second, of which those of the last overlap with the others."""
    rng = np.random.default_rng(5)
    start = np.sort(rng.uniform(0.05, 1.0, 60))
    return Timeline(start, start + rng.uniform(0.001, 0.02, 60), rng.integers(0, 3, 60))


def fine(timeline, step_s=1e-5, end_s=1.2):
    """Middles of steps, and the number of intervals of each kind that run there, shape (steps, kinds)."""
    middle = np.arange(step_s / 2, end_s, step_s)
    one = [
        (middle[:, None] >= timeline.start_s[mine]) & (middle[:, None] < timeline.end_s[mine])
        for mine in (timeline.kind == k for k in range(3))
    ]
    return middle, np.stack([runs.sum(axis=1) for runs in one], axis=1)


def test_readings_show_the_exponential_average_of_what_ran(timeline):
    middle, runs = fine(timeline)
    time_s = np.array([0.02, 0.13, 0.41, 0.99, 1.15])
    weight = np.exp(-(time_s[:, None] - middle) / RESPONSE.rise_s) * (middle < time_s[:, None]) * 1e-5 / RESPONSE.rise_s
    np.testing.assert_allclose(shares(time_s, timeline, RESPONSE), weight @ runs, atol=2e-3)


def test_seconds_between_instants_are_those_that_ran(timeline):
    middle, runs = fine(timeline)
    time_s = np.sort(np.random.default_rng(1).uniform(0.0, 1.19, 40))
    place = np.searchsorted(time_s, middle)
    expected = [[runs[place == k, kind].sum() * 1e-5 for kind in range(3)] for k in range(1, 40)]
    np.testing.assert_allclose(timeline.seconds(time_s), expected, atol=1e-4)


def test_a_known_rate_gives_a_sharper_memory():
    known = Response.sampled(HOPPER_SENSOR, 0.02, rate_hz=1224.5)
    assert known.rise_s == pytest.approx(16 / 1224.5, rel=0.04)
    assert known.width_sd < RESPONSE.width_sd / 10
    assert known.sample_s == pytest.approx(1 / 1224.5)
    assert replace(known, rise_s=2 * known.rise_s).sample_s == pytest.approx(2 / 1224.5)
