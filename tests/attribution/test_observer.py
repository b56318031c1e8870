"""Parts of readings: shares against sums over the timeline, derivatives against small steps."""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.attribution import Kind, Sampled, activity_of
from jouletrace.attribution.observer import DELAY_UNIT_S, STRETCH_UNIT, TRACK_UNIT_S, Averaged
from jouletrace.sensor import HOPPER_SENSOR, SampleTimes, read_out
from jouletrace.sensor.models import Means


@pytest.fixture(scope="module")
def activity():
    """Twelve seconds of kernels of three kinds, of 2 to 9 ms with pauses of 1 to 3 ms."""
    rng = np.random.default_rng(3)
    length, pause = rng.uniform(2e6, 9e6, 1600), rng.uniform(1e6, 3e6, 1600)
    start = np.cumsum(length + pause) - length
    return activity_of(
        start.astype(np.int64), (start + length).astype(np.int64), rng.integers(0, 3, 1600), [Kind(k) for k in "abc"], 0
    )


TIME = 1.0 + 0.02 * np.arange(400)


def powers(activity):
    """Watts of each column, idle last, and of each interval above idle."""
    watts = np.append(np.linspace(300.0, 700.0, len(activity.members)), 120.0)
    return watts, (watts[:-1] - watts[-1])[activity.column]


def mean_power(activity, begin_s, end_s, watts):
    """Mean power of a span, by sums over the intervals."""
    inside = np.clip(np.minimum(activity.end_s, end_s) - np.maximum(activity.start_s, begin_s), 0, None)
    return watts[-1] + inside @ (watts[:-1] - watts[-1])[activity.column] / (end_s - begin_s)


@pytest.fixture
def averaged():
    return Averaged(Means(0.025, delay_s=0.004, delay_spread_s=2e-3, stretch_spread=0.02), 0.005, 0.03)


def test_a_mean_is_over_its_window_some_time_before_its_reading(activity, averaged):
    watts, above = powers(activity)
    seen = averaged.observe(activity, TIME, activity.slowness, above)
    length = 0.025 * 1.03
    true = [mean_power(activity, t - 0.005 - length, t - 0.005, watts) for t in TIME]
    assert seen.shares @ watts == pytest.approx(true)
    assert seen.shares.sum(axis=1) == pytest.approx(np.ones(len(TIME)))
    of_kernels = averaged.observe(activity, TIME, above, above)
    assert of_kernels.value == pytest.approx(np.array(true) - watts[-1])
    assert averaged.reach_s == pytest.approx(length + 0.005)
    assert seen.shift.shape == (len(TIME), 2)


@pytest.mark.parametrize("which", [0, 1])
def test_the_derivative_of_a_mean_by_delay_and_length_is_its_change(activity, averaged, which):
    """Ends scatter by 0.3 ms, within which a kernel begins or not: over many readings that is the derivative."""
    watts, above = powers(activity)
    seen = averaged.observe(activity, TIME, activity.slowness, above)
    step = np.zeros(2)
    step[which] = 0.3 if which == 0 else 0.3e-3 / 0.025 / STRETCH_UNIT
    there, back = (
        averaged.moved(averaged.unknowns()[0] + way * step).observe(activity, TIME, activity.slowness, above)
        for way in (1, -1)
    )
    change = (there.shares - back.shares) @ watts / (2 * step[which])
    slope = np.polyfit(change, seen.shift[:, which], 1)[0]
    assert slope == pytest.approx(1.0, abs=0.02)
    assert np.corrcoef(change, seen.shift[:, which])[0, 1] > 0.999


def test_the_place_of_a_mean_is_in_units_of_its_scatter(averaged):
    place, prior = averaged.unknowns()
    assert place == pytest.approx([5.0, 3.0])
    moved = averaged.moved(np.array([7.0, -1.0]))
    assert (moved.delay_s, moved.stretch) == (pytest.approx(0.007), pytest.approx(-0.01))
    assert moved.unknowns()[0] * [DELAY_UNIT_S, STRETCH_UNIT] == pytest.approx([moved.delay_s, moved.stretch])
    # the prior: the nominal delay and length, 2 ms and 2 % about them
    assert np.linalg.solve(prior.rows, prior.target) == pytest.approx([4.0, 0.0])
    assert np.linalg.inv(prior.rows) == pytest.approx(np.diag([2.0, 2.0]))


@pytest.fixture
def sampled():
    track = SampleTimes.straight(0.5, 9.5, 1225.0, 2.0)
    shift = 2e-5 * np.sin(np.arange(len(track.shift_s)))
    change = 0.01 * np.cos(np.arange(46))
    return Sampled(HOPPER_SENSOR, replace(track, shift_s=shift), change - change.mean())


def test_a_reading_of_a_sampler_is_the_average_of_what_its_samples_see(activity, sampled):
    watts, above = powers(activity)
    at = sampled.track.instants()
    _, total, _ = activity.seen(at, sampled.response, above, above)
    read = read_out(sampled.sensor, total[:, None], at, TIME)[:, 0]
    seen = sampled.observe(activity, TIME, above, above)
    assert seen.value == pytest.approx(read)
    assert seen.shares @ watts == pytest.approx(watts[-1] + read)
    assert seen.shares.sum(axis=1) == pytest.approx(np.ones(len(TIME)))
    assert sampled.reach_s == 0.0


def test_derivatives_by_the_track_and_the_response_are_changes_of_the_readings(activity, sampled):
    _, above = powers(activity)
    seen = sampled.observe(activity, TIME, above, above, shape=True)
    now, rng = sampled.unknowns(shape=True)[0], np.random.default_rng(0)
    place, change = rng.normal(size=len(now) - 46), rng.normal(size=46)
    moves = np.append(place, np.zeros(46)), np.append(0 * place, change - change.mean())
    for move, rel, least in zip(moves, (1e-3, 0.02), (0.02, 1.0), strict=True):
        there, back = (sampled.moved(now + 1e-3 * way * move).observe(activity, TIME, above, above) for way in (1, -1))
        assert seen.shift @ move == pytest.approx((there.value - back.value) / 2e-3, rel=rel, abs=least)
    assert sampled.observe(activity, TIME, above, above).shift.shape == (len(TIME), len(place))


def test_the_place_of_a_sampler_is_its_track_in_units_of_10_us(sampled):
    place, _ = sampled.unknowns()
    assert place * TRACK_UNIT_S == pytest.approx(sampled.track.shift_s)
    moved = sampled.moved(place + 1.0)
    assert moved.track.shift_s == pytest.approx(sampled.track.shift_s + TRACK_UNIT_S)
    assert moved.change is sampled.change


def test_a_track_bends_by_a_tenth_of_a_millisecond_and_is_free_to_shift_and_to_tilt(sampled):
    place, prior = sampled.unknowns()
    count, curvature = len(place), prior.rows.T @ prior.rows
    steady, tilted, bent = np.ones(count), np.arange(count, dtype=float), np.zeros(count)
    bent[2] = 1e-4 / TRACK_UNIT_S
    for free in (steady, tilted):
        assert free @ curvature @ free < 1e-3
    # second differences of 1, -2 and 1 standard deviations
    assert bent @ curvature @ bent == pytest.approx(6.0, rel=1e-3)
    assert not prior.target.any()


def test_regressors_of_values_and_powers_go_with_their_size(activity, sampled):
    _, above = powers(activity)
    once, twice = (sampled.observe(activity, TIME[:50], k * above, k * above, shape=True) for k in (1.0, 2.0))
    assert twice.shares == pytest.approx(once.shares)
    for name in ("value", "shift"):
        assert 2.0 * getattr(once, name) == pytest.approx(getattr(twice, name))
