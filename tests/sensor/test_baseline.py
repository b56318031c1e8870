"""Levels of a record: quiet, against temperature, idle and working."""

import numpy as np
import pytest

from covering import fewest, most
from energy_signals import T0, wander
from jouletrace.errors import BadInputError
from jouletrace.sensor.baseline import (
    _otsu,
    _settled,
    _two_at_rest,
    idle_and_working_levels,
    quiet_level,
)

SECOND = 10**9


def test_a_quiet_level_covers_in_spite_of_correlation():
    hits = 0
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        found = quiet_level(125 + 2 * wander(rng, 250, 3.0, 1.0))
        hits += found.low <= 125 <= found.high
    assert fewest(1000) <= hits <= most(1000)


def log(rng, ramp=0):
    """Idle, work, idle, once per second, with a ramp of some readings at the start of work."""
    power = np.concatenate([np.full(40, 62.0), np.full(80, 180.0), np.full(30, 62.0)])
    power[40 : 40 + ramp] = np.linspace(75, 175, ramp)
    return T0 + np.arange(150) * SECOND, power + rng.normal(0, 0.5, 150)


@pytest.mark.parametrize("ramp", [0, 6])
def test_a_log_is_split_in_two_levels_and_the_ramp_dropped(ramp):
    found = idle_and_working_levels(*log(np.random.default_rng(2), ramp))
    assert found.idle.value == pytest.approx(62, abs=0.4)
    assert found.working.value == pytest.approx(180, abs=0.4)
    assert found.difference.low < 118 < found.difference.high
    assert found.dropped >= ramp


def test_a_log_of_one_level_is_not_split():
    rng = np.random.default_rng(0)
    found = idle_and_working_levels(T0 + np.arange(200) * SECOND, rng.normal(62, 1, 200))
    assert (found.difference.reason, found.dropped) == ("one_level", 0)


def test_a_log_too_short_to_split_says_so():
    assert idle_and_working_levels([T0, T0 + 1], [1.0, 2.0]).idle.reason == "too_few_values"
    six = idle_and_working_levels(T0 + np.arange(6), [70.0, 71.0, 70.0, 300.0, 301.0, 300.0])
    assert (six.idle.value, six.working.value) == (70.5, 300.5)
    assert idle_and_working_levels(T0 + np.arange(5), np.arange(5.0)).idle.reason == "too_few_values"
    found = idle_and_working_levels(T0 + np.arange(5) * SECOND, [60.0, 60.0, 60.1, 180.0, 180.0])
    assert {one.reason for one in (found.idle, found.working, found.difference)} == {"too_few_values"}


def test_bad_logs_are_refused():
    with pytest.raises(BadInputError, match="finite"):
        idle_and_working_levels([T0, T0 + 1], [1.0, np.nan])


def test_levels_of_a_log_are_no_surer_for_readings_that_follow_one_another():
    hits = np.zeros(3)
    for seed in range(300):
        rng = np.random.default_rng(seed)
        power = np.concatenate([np.full(150, 62.0), np.full(150, 180.0)]) + wander(rng, 300, 4.0, 1.0)
        found = idle_and_working_levels(T0 + np.arange(300) * SECOND, power)
        for k, (level, truth) in enumerate(((found.idle, 62), (found.working, 180), (found.difference, 118))):
            hits[k] += level.low <= truth <= level.high
    assert min(hits) >= fewest(300)


@pytest.mark.parametrize(
    ("lengths", "idle", "working"), [((40, 80, 30), 68, 78), ((40, 80), 39, 79), ((4, 80, 4), 6, 78)]
)
def test_readings_beside_a_step_may_be_of_its_ramp_and_those_at_the_ends_of_a_log_are_not(lengths, idle, working):
    power = np.concatenate([np.full(n, 180.0 if k % 2 else 62.0) for k, n in enumerate(lengths)])
    found = idle_and_working_levels(T0 + np.arange(len(power)) * SECOND, power)
    assert (found.idle.value, found.working.value) == (pytest.approx(62.0), pytest.approx(180.0))
    assert (found.idle.n, found.working.n) == (idle, working)
    assert found.dropped == len(power) - idle - working


@pytest.mark.parametrize("seed", range(4))
def test_the_threshold_leaves_the_least_variance_within_both_sides(seed):
    """Of logs of which a few readings are low and most are high and spread."""
    rng = np.random.default_rng(seed)
    power = np.sort(np.concatenate([rng.normal(60, 8, 30), 60 + rng.gamma(2, 30, 170)]))
    within = [n * power[:n].var() + (200 - n) * power[n:].var() for n in range(1, 200)]
    assert np.sum(power < _otsu(power)) == 1 + int(np.argmin(within))


@pytest.mark.parametrize(
    ("low", "high", "high_w", "two"),
    [
        (3, 3, 100.0, True),
        (3, 2, 100.0, False),
        (4, 2, 100.0, False),  # three readings of each
        (57, 3, 100.0, True),
        (58, 3, 100.0, False),  # a twentieth of them
        (100, 5, 100.0, False),
        (20, 20, 84.0, False),
        (20, 20, 84.1, True),  # a tenth of the way from 60 to 300 W
    ],
)
def test_two_levels_at_rest_have_some_readings_each_and_a_tenth_of_the_way_to_work_between_them(low, high, high_w, two):
    power = np.repeat([300.0, 60.0, high_w, 300.0], [9, low, high, 9])
    below, above = _two_at_rest(power, power < 300.0, 300.0)
    assert (below.sum(), above.sum()) == ((low, high) if two else (low + high, 0))
    assert power[above].tolist() == [high_w] * above.sum()


def test_readings_between_two_levels_at_rest_count_for_neither():
    """Means over 1 s, ten per second: 72 W, 130 W with a context, 520 W at work, and back."""
    time = np.arange(0, 60, 0.1)
    power = np.select([time < 12, time < 20, time < 40, time < 48], [72.0, 130.0, 520.0, 130.0], 72.0)
    power = power + np.random.default_rng(0).normal(0, 0.3, len(time))
    read = np.append(power[:9], np.convolve(power, np.full(10, 0.1), "valid"))
    found = idle_and_working_levels(T0 + np.round(time * 1e9).astype(np.int64), read)
    assert found.idle.value == pytest.approx(72.0, abs=0.1)
    assert found.idle.half_width < 0.2
    assert found.resting == pytest.approx((72.0, 130.0), abs=0.1)


def test_idle_is_the_lower_of_two_levels_at_rest():
    power = np.repeat([60.0, 300.0, 100.0], [4, 80, 4])
    found = idle_and_working_levels(T0 + np.arange(88) * SECOND, power)
    assert (found.idle.value, found.idle.n, found.resting) == (60.0, 3, (60.0, 100.0))
    assert found.working.value == pytest.approx(300.0)


@pytest.mark.parametrize(("n", "kept"), [(30, range(12, 19)), (20, range(12, 20))])
def test_a_segment_begins_and_ends_where_it_reaches_its_own_middle_half(n, kept):
    """Between 9 and 50.75 W here; at the end of the log nothing is a ramp."""
    power = np.zeros(n)
    power[10:20] = np.array([5, 6, 50, 52, 51, 53, 40, 30, 12, 8])
    assert _settled(np.arange(10, 20), power, n).tolist() == list(kept)
    assert len(_settled(np.arange(10, 12), power, n)) == 0
    assert _settled(np.arange(10, 13), np.ones(n), n).tolist() == [11]
