"""Levels of a record: quiet, against temperature, idle and working."""

import numpy as np
import pytest

from covering import fewest, most
from energy_signals import T0, wander
from jouletrace.errors import BadInputError
from jouletrace.sensor.baseline import _otsu, idle_and_working_levels, quiet_level, temperature_slope

SECOND = 10**9


def test_a_quiet_level_covers_in_spite_of_correlation():
    hits = 0
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        found = quiet_level(125 + 2 * wander(rng, 250, 3.0, 1.0))
        hits += found.low <= 125 <= found.high
    assert fewest(1000) <= hits <= most(1000)


def test_the_slope_with_temperature_is_estimated():
    rng = np.random.default_rng(1)
    temperature = np.round(np.linspace(45, 55, 400))
    found = temperature_slope(temperature, 120 + 0.6 * (temperature - 50) + rng.normal(0, 0.5, 400))
    assert found.low < 0.6 < found.high
    assert found.half_width < 0.1


def test_a_temperature_that_does_not_vary_gives_no_slope():
    assert temperature_slope(np.full(50, 45.0), np.full(50, 120.0)).reason == "temperature_did_not_vary"
    assert temperature_slope([45.0, 50.0], [1.0, 2.0]).reason == "too_few_values"


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
    assert found.difference.reason == "one_level"


def test_a_log_too_short_to_split_says_so():
    assert idle_and_working_levels([T0, T0 + 1], [1.0, 2.0]).idle.reason == "too_few_values"
    found = idle_and_working_levels(T0 + np.arange(5) * SECOND, [60.0, 60.0, 60.1, 180.0, 180.0])
    assert {one.reason for one in (found.idle, found.working, found.difference)} == {"too_few_values"}


def test_bad_logs_are_refused():
    with pytest.raises(BadInputError, match="finite"):
        idle_and_working_levels([T0, T0 + 1], [1.0, np.nan])
    with pytest.raises(BadInputError, match="do not go with"):
        temperature_slope([1.0], [1.0, 2.0])


def test_a_slope_is_no_surer_for_readings_that_follow_one_another():
    """A GPU that warms by 10 K and whose power wanders: the interval of the slope holds it as often as it says."""
    temperature = np.round(np.linspace(45, 55, 300))
    hits = 0
    for seed in range(300):
        power = 120 + 0.6 * (temperature - 50) + wander(np.random.default_rng(seed), 300, 4.0, 1.0)
        found = temperature_slope(temperature, power)
        hits += found.low <= 0.6 <= found.high
    assert hits >= fewest(300)


def test_levels_of_a_log_are_no_surer_for_readings_that_follow_one_another():
    hits = np.zeros(3)
    for seed in range(300):
        rng = np.random.default_rng(seed)
        power = np.concatenate([np.full(150, 62.0), np.full(150, 180.0)]) + wander(rng, 300, 4.0, 1.0)
        found = idle_and_working_levels(T0 + np.arange(300) * SECOND, power)
        for k, (level, truth) in enumerate(((found.idle, 62), (found.working, 180), (found.difference, 118))):
            hits[k] += level.low <= truth <= level.high
    assert min(hits) >= fewest(300)


@pytest.mark.parametrize(("lengths", "dropped"), [((40, 80, 30), 4), ((40, 80), 2), ((4, 80, 4), 4)])
def test_readings_beside_a_step_may_be_of_its_ramp_and_those_at_the_ends_of_a_log_are_not(lengths, dropped):
    power = np.concatenate([np.full(n, 180.0 if k % 2 else 62.0) for k, n in enumerate(lengths)])
    found = idle_and_working_levels(T0 + np.arange(len(power)) * SECOND, power)
    assert (found.idle.value, found.working.value) == (pytest.approx(62.0), pytest.approx(180.0))
    assert found.dropped == dropped
    assert found.idle.n + found.working.n == len(power) - dropped


@pytest.mark.parametrize("seed", range(4))
def test_the_threshold_leaves_the_least_variance_within_both_sides(seed):
    """Of logs of which a few readings are low and most are high and spread."""
    rng = np.random.default_rng(seed)
    power = np.sort(np.concatenate([rng.normal(60, 8, 30), 60 + rng.gamma(2, 30, 170)]))
    within = [n * power[:n].var() + (200 - n) * power[n:].var() for n in range(1, 200)]
    assert np.sum(power < _otsu(power)) == 1 + int(np.argmin(within))
