"""The regression on timelines made by hand: priors, unknowns, steps, and what comes out where the truth is known."""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.attribution import Kind, Sampled, activity_of
from jouletrace.attribution.fit import (
    STEP,
    _start,
    drift_of,
    enough,
    fit,
)
from jouletrace.attribution.observer import Averaged
from jouletrace.errors import BadInputError
from jouletrace.sensor import HOPPER_SENSOR, SampleTimes
from jouletrace.sensor.models import Means
from readings import taken

WATTS = {"a": 400.0, "b": 700.0, "": 130.0}
MEANS = Averaged(Means(0.02, delay_s=0.0, delay_spread_s=1e-3), 0.0)


def timeline(seconds=20.0, stretch=lambda start: 1.0, seed=0, kinds=("a", "b")):
    """Kernels of two kinds, of 10 or 50 ms, with pauses as long; ``stretch`` makes them longer or shorter."""
    rng = np.random.default_rng(seed)
    length, pause = rng.choice([1e7, 5e7], 2000), rng.uniform(1e7, 5e7, 2000)
    start = np.cumsum(length + pause) - length - pause
    length = length * stretch(start / 1e9)
    keep = start + length < seconds * 1e9
    kind = rng.integers(0, 2, 2000)
    return activity_of(
        start[keep].astype(np.int64), (start + length)[keep].astype(np.int64), kind[keep], [Kind(k) for k in kinds], 0
    ).whole()


def read(activity, noise_w=1.0, drift=lambda time: 0.0, clock=0.0, delay_s=0.0, rest_w=(130.0, 100.0)):
    """Means over 20 ms, every 20 ms, of what the two kinds draw; power goes with the clock by an exponent."""
    time = np.arange(0.1, activity.finish_s, 0.02)
    steady = np.array([WATTS[activity.kinds[members[0]].name] for members in activity.members])[activity.column]
    above = (steady - WATTS[""]) * (1 + clock * activity.slowness)
    edges = np.concatenate([time - 0.02, time]) - delay_s
    first, last = activity.integral(edges, above).reshape(2, -1)
    watts = (last - first) / 0.02 + WATTS[""] + drift(time) + noise_w * np.random.default_rng(1).normal(size=len(time))
    return taken(time, watts, rest_w)


def expected(found):
    """Watts of each column of a fit, idle last."""
    activity = found.activity
    return np.array([*(WATTS[activity.kinds[members[0]].name] for members in activity.members), WATTS[""]])


def test_powers_come_out():
    activity = timeline()
    found = fit(activity, MEANS, read(activity))
    assert found.power_w == pytest.approx(expected(found), abs=3.0)
    assert found.residual_rms_w == pytest.approx(1.0, abs=0.1)
    assert found.clock_exponent == pytest.approx(0.0, abs=0.5)
    assert found.seen.sum() == pytest.approx(1.0)
    assert found.seen[:-1].sum() == pytest.approx(activity.seconds[:-1].sum() / 20.0, abs=0.03)


def test_readings_before_the_ramp_and_at_the_end_are_left_out():
    activity = timeline()
    found = fit(activity, MEANS, read(activity))
    assert found.time_s[0] == pytest.approx(activity.begin_s + 0.35, abs=0.021)
    assert found.time_s[-1] == pytest.approx(activity.finish_s - 0.06, abs=0.021)
    slow = Averaged(Means(1.0, delay_s=0.0), 0.02)
    assert fit(activity, slow, read(activity)).time_s[0] == pytest.approx(activity.begin_s + 1.02, abs=0.05)


def test_a_drift_of_the_whole_is_not_taken_for_power_of_kernels():
    activity = timeline()
    given = read(activity, drift=lambda time: 8 * np.sin(2 * np.pi * time / 20))
    found = fit(activity, MEANS, given)
    assert found.power_w == pytest.approx(expected(found), abs=4.0)
    true = 8 * np.sin(2 * np.pi * found.time_s / 20)
    assert found.drift_w == pytest.approx(true - true.mean(), abs=1.5)
    assert found.drift_w.mean() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("seconds", "pieces"), [(5.9, 0), (6.1, 3), (13.9, 4), (14.1, 5), (40.0, 11)])
def test_a_drift_has_a_knot_every_4_s(seconds, pieces):
    basis = drift_of(np.linspace(3.0, 3.0 + seconds, 500))
    assert basis.shape == (500, pieces)
    if pieces:
        assert np.abs(basis.mean(axis=0)).max() < 1e-12
        # with a constant, its columns make every parabola
        time = np.linspace(-1, 1, 500)
        full = np.column_stack([np.ones(500), basis])
        for power in (time, time**2):
            assert full @ np.linalg.lstsq(full, power, rcond=None)[0] == pytest.approx(power, abs=1e-9)


def test_slower_kernels_at_a_lower_clock_draw_less():
    activity = timeline(30.0, lambda start: 1 + 0.03 * np.sin(2 * np.pi * start / 3))
    assert np.std(activity.slowness) == pytest.approx(0.021, abs=0.004)
    found = fit(activity, MEANS, read(activity, clock=-2.0))
    assert found.clock_exponent == pytest.approx(-2.0, abs=0.2)
    assert found.power_w == pytest.approx(expected(found), abs=3.0)
    above = found.above_w()
    assert above == pytest.approx(found.steady_w() * (1 + found.clock_exponent * activity.slowness))
    assert found.steady_w() == pytest.approx((found.power_w[:-1] - found.power_w[-1])[activity.column])


@pytest.mark.parametrize("delay_s", [0.0, 2e-3, -1.5e-3])
def test_a_delay_is_fitted_from_the_nominal_one(delay_s):
    activity = timeline()
    given = read(activity, delay_s=delay_s)
    found = fit(activity, MEANS, given)
    assert found.observer.delay_s == pytest.approx(delay_s, abs=0.1e-3)
    if delay_s:
        assert fit(activity, MEANS, given, fit_place=False).residual_rms_w > 3 * found.residual_rms_w
        assert fit(activity, MEANS, given, fit_place=False).observer is MEANS


def test_idle_that_was_measured_beforehand_is_taken_where_the_readings_show_none():
    start = np.arange(0, 10_000_000_000, 20_000_000, dtype=np.int64)
    activity = activity_of(start, start + 20_000_000, np.arange(len(start)) % 2, [Kind("a"), Kind("b")], 0)
    given = read(activity, rest_w=(121.0, 6.0))
    found = fit(activity, MEANS, given)
    assert found.power_w[-1] == pytest.approx(121.0, abs=0.5)


def test_half_of_the_readings_are_used_where_only_those_may_be():
    activity = timeline()
    given = read(activity)
    use = np.arange(len(given.time_s)) % 2 == 0
    found = fit(activity, MEANS, given, use=use)
    assert len(found.watts) == pytest.approx(len(fit(activity, MEANS, given).watts) / 2, abs=1)
    assert set(found.time_s) <= set(given.time_s[use])


def test_the_prior_of_powers_is_a_common_power_and_what_parts_of_kernels_differ_by():
    """400 W on average while kernels run and 130 W else: 270 W above idle."""
    start = np.array([0, 1_000_000, 1_020_000, 2_000_000], np.int64)
    length = np.array([500_000, 20_000, 20_000, 500_000], np.int64)
    kinds = [Kind("long"), Kind("short"), Kind("short", repeat=True)]
    activity = activity_of(start, start + length, np.array([0, 1, 2, 0]), kinds, 0)
    idle = np.linspace(0, 1, 400)
    above, prior = _start(activity, idle, 400 - 270 * idle, (130.0, 100.0))
    columns = len(activity.members)
    assert above == pytest.approx(270.0, rel=2e-3)
    covariance = np.linalg.inv(prior.rows.T @ prior.rows)
    centre = np.linalg.solve(prior.rows, prior.target)
    assert centre == pytest.approx([400.0] * columns + [130.0, 0.0], rel=2e-3, abs=1e-6)
    sd = np.sqrt(np.diag(covariance))
    assert sd[-2:] == pytest.approx([100.0, 5.0])

    def apart(one, other):
        return np.sqrt(covariance[one, one] + covariance[other, other] - 2 * covariance[one, other])

    names = [activity.kinds[members[0]].name for members in activity.members]
    named = {
        (name, part, bool(repeated)): k
        for k, (name, part, repeated) in enumerate(zip(names, activity.part, activity.repeated, strict=True))
    }
    middle, head, tail = (named["long", part, False] for part in (0, 1, 2))
    short, copies = named["short", 0, False], named["short", 0, True]
    assert sd[middle] == pytest.approx(270.0, rel=5e-3)
    for end in (head, tail):
        assert apart(end, middle) == pytest.approx(0.4 * 270.0, rel=5e-3)
    assert apart(copies, short) == pytest.approx(0.035 * 270.0, rel=5e-3)
    assert apart(short, middle) == pytest.approx(np.sqrt(2) * 270.0, rel=5e-3)


def test_the_prior_of_powers_is_never_narrower_than_30_w():
    activity = timeline(2.0)
    _, prior = _start(activity, np.linspace(0, 1, 400), np.full(400, 130.0) + np.tile([0.1, -0.1], 200), (130.0, 6.0))
    covariance = np.linalg.inv(prior.rows.T @ prior.rows)
    assert np.sqrt(covariance[0, 0]) == pytest.approx(30.0, rel=0.1)


def test_the_prior_of_a_response_is_smooth_near_the_nominal_one_and_of_its_area():
    _, prior = Sampled(HOPPER_SENSOR, SampleTimes.straight(0.0, 1.0, 1224.0, 0.0)).unknowns(shape=True)
    information = (prior.rows.T @ prior.rows)[-46:, -46:]

    def sds(change):
        return np.sqrt(change @ information @ change)

    up_and_down = np.zeros(46)
    up_and_down[20], up_and_down[30] = 0.015, -0.015
    bend = np.sqrt(2 * 6) * 0.015 / 0.006
    assert sds(up_and_down) == pytest.approx(np.sqrt(2 + bend**2))
    tilt = 1e-3 * (np.arange(46) - 22.5)
    assert sds(tilt) == pytest.approx(np.linalg.norm(tilt) / 0.015, rel=1e-6)
    assert sds(np.full(46, 1e-4)) == pytest.approx(46e-4 / 1e-5, rel=1e-3)
    assert not prior.target.any()


def sampler(activity, off_s=0.0):
    """A sampler, readings of it, and the same sampler with samples that are off their places."""
    true = Sampled(HOPPER_SENSOR, SampleTimes.straight(activity.begin_s, activity.finish_s, 1225.0, 1.0))
    time = np.arange(0.1, activity.finish_s, 0.02)
    above = np.array([WATTS[activity.kinds[members[0]].name] for members in activity.members])[activity.column]
    watts = WATTS[""] + true.observe(activity, time, above - WATTS[""], above).value
    return taken(time, watts), replace(true, track=replace(true.track, start_s=true.track.start_s + off_s))


def test_the_place_moves_by_a_bounded_step_towards_the_true_one():
    activity = timeline(6.0)
    readings, late = sampler(activity, 100e-6)
    once, often = (fit(activity, late, readings, rounds=rounds).observer for rounds in (2, 20))
    assert np.abs(once.unknowns()[0]).max() == pytest.approx(STEP)
    assert often.track.instants() + 100e-6 == pytest.approx(late.track.instants(), abs=20e-6)
    assert not often.change.any()


def test_what_is_not_fitted_stays():
    activity = timeline(6.0)
    readings, late = sampler(activity, 30e-6)
    assert fit(activity, late, readings, fit_place=False).observer is late
    assert fit(activity, late, readings).observer.change is late.change
    assert fit(activity, late, readings, fit_response=True).observer.change.any()


def test_ten_readings_are_needed_and_of_a_whole_recording_as_many_as_columns():
    activity = timeline(2.0)
    enough(activity, 10, columns=False)
    with pytest.raises(BadInputError, match=r"9 readings where kernels run, 10 are needed; .* lasts \(2\.0 s\)"):
        enough(activity, 9)
    many = replace(activity, members=tuple((0,) for _ in range(12)))
    enough(many, 12)
    with pytest.raises(BadInputError, match=r"12 kinds .*, but 11 readings"):
        enough(many, 11)
    enough(many, 11, columns=False)
