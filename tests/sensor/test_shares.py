"""Shares of intervals in readings, against integrals over a fine grid."""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.run import ChannelInfo
from jouletrace.sensor import HOPPER_SENSOR, Response, Timeline, averaged, calibrated, readings_of
from jouletrace.sensor.calibration import StepResponse
from jouletrace.sensor.shares import Shape, both_seen, seen, shares

RESPONSE = Response.sampled(HOPPER_SENSOR, 0.02)
WINDOW = Response(0.0, 0.1, 0.004, 1e-4, 0.0, 0.5, 0.1, window_s=0.025)


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


KINDS = {
    "part of the time": WINDOW,
    "overlapping": replace(WINDOW, window_s=0.3),
    "since the reading before": replace(WINDOW, back_to_back=True),
    "memory": RESPONSE,
}


def weights(response, time_s, middle):
    """Weight of each step before readings, shape (readings, steps): sums to 1 over all time."""
    late = time_s[:, None] - middle
    if not response.window_s:
        return np.exp(-np.maximum(late, 0) / response.rise_s) * (late > 0) * 1e-5 / response.rise_s
    begin = np.append(time_s[0] - response.window_s, time_s[:-1])
    begin = begin if response.back_to_back else time_s - response.window_s
    return ((late > 0) & (middle > begin[:, None])) * 1e-5 / (time_s - begin)[:, None]


@pytest.mark.parametrize("kind", KINDS)
def test_readings_show_what_ran_in_their_windows(timeline, kind):
    middle, runs = fine(timeline, end_s=1.3)
    time_s = np.array([0.35, 0.52, 0.61, 0.99, 1.25])
    found = shares(time_s, timeline, KINDS[kind])
    np.testing.assert_allclose(found, weights(KINDS[kind], time_s, middle) @ runs, atol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_readings_of_levels_are_their_weighted_means(kind):
    rng = np.random.default_rng(3)
    cut_s, time_s = np.sort(rng.uniform(0, 1.0, 30)), np.array([0.31, 0.47, 0.66, 0.98, 1.08])
    level_w = rng.uniform(100, 400, 29)
    middle = np.arange(-0.1 + 5e-6, 1.2, 1e-5)
    power = level_w[np.clip(np.searchsorted(cut_s, middle) - 1, 0, 28)]
    found = averaged(time_s, cut_s, level_w, KINDS[kind])
    np.testing.assert_allclose(found, weights(KINDS[kind], time_s, middle) @ power, rtol=3e-3)


@pytest.mark.parametrize("kind", ["part of the time", "overlapping", "memory"])
def test_what_readings_show_of_swings_is_an_integral(kind):
    response, time_s, turn = KINDS[kind], np.array([0.05, 0.33, 0.5, 0.61]), 2j * np.pi * 7.0
    middle = np.arange(5e-6, 0.7, 1e-5)
    weight = weights(response, time_s, middle) * (middle < 0.45)
    late = weight * (middle > 0.1)
    np.testing.assert_allclose(seen(time_s, 0.1, 0.45, response, turn), late @ np.exp(turn * middle), atol=2e-4)
    np.testing.assert_allclose(seen(time_s, 0.1, 0.45, response).real, late.sum(axis=1), atol=1e-3)
    both = both_seen(time_s, 0.45, response)
    np.testing.assert_allclose(both, weight @ weight.T * 1e5, rtol=2e-3, atol=1e-3 * both.max())


def test_a_calibrated_response_keeps_its_mean_delay_and_what_is_known_of_it():
    covariance = ((9e-8, -1e-7, 0.0), (-1e-7, 3.6e-7, -2e-8), (0.0, -2e-8, 4e-8))
    for window_s, rise_s in ((0.0018, 0.0128), (0.025, 0.003)):
        known = StepResponse(0.1, window_s, rise_s, lag_s=0.0027, covariance=covariance)
        found = calibrated(known)
        half, spread = (found.window_s / 2, found.window_s / 12**0.5) if found.window_s else (found.rise_s,) * 2
        assert found.delay_s + half == pytest.approx(known.delay_s)
        assert spread == pytest.approx(np.hypot(window_s / 12**0.5, rise_s))
        sd = np.hypot(found.delay_sd_s, (found.delay_by_width_s + half) * found.width_sd)
        assert sd == pytest.approx(known.delay_sd_s, rel=1e-6)


def test_delays_of_windows_are_tried_apart_where_they_are_uncertain():
    delays, weight = zip(*replace(WINDOW, delay_sd_s=0.02).delays(0.2), strict=True)
    middle = np.array([one.delay_s for one in delays])
    assert np.average(middle, weights=weight) == pytest.approx(WINDOW.delay_s)
    variance = np.average((middle - WINDOW.delay_s) ** 2, weights=weight) + delays[0].delay_sd_s ** 2
    assert np.sqrt(variance) == pytest.approx(0.02, rel=0.03)
    assert WINDOW.delays(0.2) == [(WINDOW, 1.0)]


def test_few_windows_overlap():
    assert [replace(WINDOW, window_s=one).stride for one in (0.025, 0.1, 0.4, 1.0)] == [1, 1, 1, 3]


@pytest.mark.parametrize(
    ("sensor", "period_s", "window_s", "back_to_back"),
    [
        ("hopper", 0.02, 0.0, False),
        ("volta", 0.02, 0.01, False),
        ("ampere_datacenter", 0.1, 0.025, False),
        ("average_1s", 0.1, 1.0, False),
        ("counter", 0.05, 0.05, True),
    ],
)
def test_every_kind_of_sensor_states_what_readings_show(sensor, period_s, window_s, back_to_back):
    channel = ChannelInfo("gpu", "power_w", "W", "", period_s=period_s, window_s=window_s or 0.025, sensor=sensor)
    found = readings_of(channel)
    assert (found.period_s, found.window_s, found.back_to_back) == (period_s, window_s, back_to_back)
    assert bool(found.rise_s) == (sensor == "hopper")
    assert found.jitter_s == pytest.approx(
        {"volta": 2e-3, "ampere_datacenter": 3e-3, "average_1s": 5e-3, "counter": 1e-3 / 12**0.5}.get(sensor, 0.0)
    )


@pytest.mark.parametrize("calibration", [{}, StepResponse(0.02, 0.0018, 0.0124, lag_s=0.0027, noise_w=0.5).to_dict()])
def test_a_sample_rate_that_is_known_determines_the_memory(calibration):
    channel = ChannelInfo("gpu", "power_w", "W", "", period_s=0.02, sensor="hopper", response=calibration)
    free, found = readings_of(channel), readings_of(channel, 1240.0)
    assert found.sample_s == pytest.approx(1 / 1240)
    assert found.width_sd == 1e-3
    assert (found.period_s, found.noise_w) == (free.period_s, free.noise_w)
    assert found.delay_s == pytest.approx(free.delay_s + free.delay_by_width_s * np.log(found.rise_s / free.rise_s))
    volta = replace(channel, sensor="volta", response={})
    assert readings_of(volta, 1240.0) == readings_of(volta)


@pytest.mark.parametrize("window_s", [0.0, 0.012])
def test_a_window_and_two_approaches_show_what_their_step_response_says(window_s):
    """A step at 0 that ends at 0.05 s, by numerical integration of the weight."""
    shape = Shape(0.001, window_s, ((0.9, 0.003), (0.1, 0.015)))
    t = np.linspace(-0.01, 0.1, 23)
    timeline = Timeline(np.array([0.0]), np.array([0.05]), np.zeros(1, np.int64))

    def shown(time_s):
        back_s = np.linspace(0, window_s, 2001) if window_s else np.zeros(1)
        at = time_s + 0.001 - back_s
        memory = sum(
            share * (np.exp(-np.maximum(at - 0.05, 0) / rise) - np.exp(-np.maximum(at, 0) / rise))
            for share, rise in shape.approach
        )
        return memory.mean()

    expected = [shown(one) for one in t]
    np.testing.assert_allclose(shape.shares(t, timeline)[:, 0], expected, atol=1e-3)
    np.testing.assert_allclose(
        shape.averaged(t, np.array([-1.0, 0.0, 0.05, 1.0]), np.array([0.0, 1.0, 0.0])), expected, atol=1e-3
    )
