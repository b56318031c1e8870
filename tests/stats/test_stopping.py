"""The stopping rule: its intervals cover what they say, the stopping included."""

import math

import numpy as np
import pytest
from scipy import stats

from jouletrace.stats import two_stage_estimate, windows_needed

FIRST = 8
TRUE = 100.0


def measured(rng, sd, target, most=10_000):
    """One series as the rule would measure it: a first stage, then as many windows as it asks for."""
    first = TRUE + sd * rng.standard_normal(FIRST)
    more = min(windows_needed(first, target), most) - FIRST
    return np.concatenate([first, TRUE + sd * rng.standard_normal(more)])


@pytest.mark.thorough
@pytest.mark.parametrize(("sd", "most"), [(0.3, 10_000), (1.0, 10_000), (2.0, 10_000), (2.0, 12)])
def test_intervals_cover_95_percent_with_the_stopping(sd, most):
    rng = np.random.default_rng(11)
    series = [measured(rng, sd, 0.01, most) for _ in range(2500)]
    found = [two_stage_estimate(values, FIRST) for values in series]
    assert 0.93 <= np.mean([e.low <= TRUE <= e.high for e in found]) <= 0.97


@pytest.mark.thorough
def test_stopping_when_the_interval_looks_narrow_covers_too_seldom():
    """The rule that this one replaces, to show that the test above can fail."""
    rng = np.random.default_rng(11)
    covered = 0
    for _ in range(1000):
        values = list(TRUE + rng.standard_normal(3))
        while len(values) < 60:
            half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
            if half < 0.008 * TRUE:
                break
            values.append(TRUE + rng.standard_normal())
        covered += abs(np.mean(values) - TRUE) <= half
    assert covered / 1000 < 0.93


def test_enough_windows_reach_the_wanted_interval():
    rng = np.random.default_rng(5)
    values = measured(rng, 3.0, 0.01)
    t = stats.t.ppf(0.975, FIRST - 1)
    stein = t * np.std(values[:FIRST], ddof=1) / math.sqrt(len(values))
    assert len(values) > FIRST
    assert stein <= 0.01 * abs(np.mean(values[:FIRST]))
    shorter = t * np.std(values[:FIRST], ddof=1) / math.sqrt(len(values) - 1)
    assert shorter > 0.01 * abs(np.mean(values[:FIRST]))


def test_a_calm_first_stage_requests_nothing_more():
    assert windows_needed(np.array([1.0, 1.0001, 0.9999, 1.0]), 0.01) == 4


@pytest.mark.parametrize("first", [[0.0, 0.0, 0.0], [1.0, -1.0], [1.0, math.nan, 2.0], [1.0, math.inf]])
def test_a_first_stage_that_says_nothing_requests_nothing_more(first):
    assert windows_needed(np.array(first), 0.01) == len(first)


def test_the_mean_of_all_windows_is_stated_with_their_number():
    values = np.array([10.0, 10.2, 9.9, 10.1, 10.3, 9.7])
    found = two_stage_estimate(values, 4, "windows")
    assert found.value == pytest.approx(values.mean())
    assert (found.n, found.method) == (6, "windows")


def test_one_stage_is_the_ordinary_t_interval():
    values = np.array([10.0, 10.2, 9.9, 10.1, 10.3, 9.7, 10.0, 9.8])
    found = two_stage_estimate(values, len(values))
    half = stats.t.ppf(0.975, 7) * np.std(values, ddof=1) / math.sqrt(8)
    assert found.half_width == pytest.approx(half)


def test_windows_that_stick_together_widen_the_interval():
    rng = np.random.default_rng(3)
    steps = rng.standard_normal(40)
    drifting = TRUE + np.convolve(steps, 0.9 ** np.arange(40))[:40]
    shuffled = rng.permutation(drifting)
    drifts, mixed = two_stage_estimate(drifting, 40), two_stage_estimate(shuffled, 40)
    assert drifts.half_width > 1.5 * mixed.half_width


def test_a_wild_second_stage_is_not_hidden_by_a_calm_first():
    values = np.concatenate([TRUE + np.tile([0.0, 0.01], 4), TRUE + np.array([5.0, -5.0, 5.0, -5.0])])
    found = two_stage_estimate(values, 8)
    assert found.half_width > 1.0


def test_one_window_has_no_interval_and_none_no_value():
    one = two_stage_estimate(np.array([3.0]), 8)
    assert (one.value, one.low, one.high, one.n) == (3.0, None, None, 1)
    assert two_stage_estimate(np.array([]), 8).reason == "no_windows"


@pytest.mark.parametrize("target", [1e-3, 1e-12, 1e-300, 5e-324, 0.0])
def test_a_target_that_no_time_suffices_for_asks_for_very_many(target):
    first = np.array([1.0, 1.01, 0.99, 1.0, 1.02])
    assert windows_needed(first, target) > 100
    assert windows_needed(first, target) <= 10**12
    assert windows_needed(np.ones(5), target) == 5


def test_the_first_stage_says_how_well_its_own_spread_is_known():
    """Stein's interval: spread and freedom of the first four, number of all."""
    first = np.array([10.0, 10.4, 9.7, 10.1])
    values = np.concatenate([first, 10.05 + 0.01 * np.tile([1.0, -1.0], 6)])
    found = two_stage_estimate(values, 4)
    half = stats.t.ppf(0.975, 3) * np.std(first, ddof=1) / math.sqrt(16)
    assert found.half_width == pytest.approx(half)


def test_four_windows_that_stick_together_count_for_less():
    """An arch of four has the largest correlation of neighbours that four can have: the cosine of 72 degrees."""
    values = TRUE + np.sin(2 * np.pi * np.arange(1, 5) / 5)
    r = math.cos(math.radians(72)) + 1 / 4  # less its bias
    excess = r - 1 / math.sqrt(4)  # beyond its standard error
    half = stats.t.ppf(0.975, 3) * np.std(values, ddof=1) / 2 * math.sqrt((1 + excess) / (1 - excess))
    assert two_stage_estimate(values, 4).half_width == pytest.approx(half)


def test_a_second_stage_that_spreads_more_has_its_own_spread_and_freedom():
    values = TRUE + np.array([0.1, -0.1, 0.1, -0.1, 3.0, -3.0, 2.0, -2.0])
    half = stats.t.ppf(0.975, 7) * np.std(values, ddof=1) / math.sqrt(8)
    assert two_stage_estimate(values, 4).half_width == pytest.approx(half)


@pytest.mark.parametrize("n", [2, 3])
def test_two_and_three_windows_have_the_ordinary_interval(n):
    values = np.array([10.0, 10.2, 9.9])[:n]
    half = stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / math.sqrt(n)
    assert two_stage_estimate(values, 8).half_width == pytest.approx(half)


def test_windows_that_follow_a_trend_count_for_a_nineteenth_of_their_number_and_no_less():
    """Nine tenths is the most that the correlation of neighbours is taken for."""
    half = stats.t.ppf(0.975, 399) * np.std(np.arange(400.0), ddof=1) / 20
    assert two_stage_estimate(np.arange(400.0), 400).half_width == pytest.approx(half * math.sqrt(1.9 / 0.1))
