"""Intervals that cover as often as they say."""

import numpy as np
import pytest
from scipy import stats

from covering import fewest, most
from energy_signals import wander
from jouletrace.errors import BadInputError
from jouletrace.run import Estimate, widened
from jouletrace.stats import interval

TRIALS = 1000


def hits(make, truth, n=TRIALS, seed=0):
    rng = np.random.default_rng(seed)
    found = [make(rng) for _ in range(n)]
    return sum(e.low <= truth <= e.high for e in found)


@pytest.mark.thorough
@pytest.mark.parametrize("n", [3, 8])
def test_the_mean_of_a_few_runs_or_windows_is_covered_in_95_percent(n):
    held = hits(lambda rng: interval.mean_estimate(rng.normal(7, 2, n)), 7)
    assert fewest(TRIALS) <= held <= most(TRIALS)


def test_a_t_interval_equals_the_textbook():
    found = interval.mean_estimate([1.0, 2.0, 3.0, 4.0])
    assert found.value == 2.5
    assert found.half_width == pytest.approx(3.182446 * np.sqrt(5 / 3 / 4), rel=1e-6)
    assert found.n == 4


def test_a_weighted_mean_uses_its_weights():
    found = interval.mean_estimate([1.0, 3.0], [3.0, 1.0])
    assert found.value == pytest.approx(1.5)


@pytest.mark.parametrize(("rho", "n"), [(0.0, 200), (0.5, 60), (0.9, 400)])
def test_correlated_samples_still_cover(rho, n):
    def make(rng):
        return interval.mean_estimate(wander(rng, n, -1 / np.log(rho) if rho else 1e-3, 1.0), correlated=True)

    assert fewest(400) <= hits(make, 0, 400) <= most(400)


def test_treating_correlated_samples_as_independent_would_not_cover():
    assert hits(lambda rng: interval.mean_estimate(wander(rng, 400, 9.5, 1.0)), 0, 300) < 0.6 * 300


def test_effective_size_matches_theory():
    x = wander(np.random.default_rng(3), 20_000, -1 / np.log(0.8), 1.0)
    assert interval.effective_n(x) == pytest.approx(20_000 * 0.2 / 1.8, rel=0.25)
    assert interval.effective_n(np.ones(50)) == 50


def test_what_all_windows_share_does_not_shrink():
    values = np.random.default_rng(0).normal(100, 1, 10_000)
    found = interval.mean_estimate(values, common_sd=2.0)
    assert found.half_width == pytest.approx(1.96 * 2, rel=1e-3)


def test_few_values_give_no_interval():
    assert interval.mean_estimate([1.0]).reason == "too_few_values"


def test_differences_and_ratios_are_covered():
    def pair(rng):
        return interval.mean_estimate(rng.normal(20, 3, 9)), interval.mean_estimate(rng.normal(10, 1, 6))

    for combine, truth in ((interval.difference, 10), (interval.ratio, 2)):
        held = hits(lambda rng, combine=combine: combine(*pair(rng)), truth)
        assert fewest(TRIALS) <= held <= most(TRIALS)


def test_a_sum_adds_variances():
    parts = [Estimate(10.0, 9.0, 11.0, 50, "x"), Estimate(20.0, 18.0, 22.0, 50, "x")]
    found = interval.total(parts)
    assert found.value == 30
    assert found.half_width == pytest.approx(np.hypot(1, 2), rel=0.02)


def test_a_ratio_to_something_near_zero_is_null():
    found = interval.ratio(Estimate(10.0, 9.0, 11.0, 9), Estimate(0.5, -0.1, 1.1, 9))
    assert found.reason == "denominator_near_zero"


def test_nulls_carry_their_reason_on():
    null = Estimate.null("no_power_sensor")
    some = Estimate(1.0, 0.9, 1.1, 5)
    assert interval.difference(some, null).reason == "no_power_sensor"
    assert interval.ratio(null, some).reason == "no_power_sensor"
    assert widened(null, 1.0).reason == "no_power_sensor"


def test_widening_adds_to_each_end_in_quadrature():
    found = widened(Estimate(10.0, 7.0, 22.0, 9, "x"), 4.0)
    assert (found.low, found.high) == pytest.approx((10 - 5, 10 + np.hypot(12, 4)))
    assert (found.value, found.n, found.method) == (10.0, 9, "x")


def test_a_figure_without_an_interval_has_that_of_what_widens_it():
    found = widened(Estimate(10.0, n=1), 4.0)
    assert (found.low, found.high) == (6.0, 14.0)
    assert widened(found, 0.0) == found


def test_values_that_are_not_finite_are_refused():
    with pytest.raises(BadInputError, match="finite"):
        interval.mean_estimate([1.0, np.nan])
    with pytest.raises(BadInputError, match="weights"):
        interval.mean_estimate([1.0, 2.0], [1.0, -1.0])


def sure(value, half):
    """An estimate whose standard error is as good as known."""
    return Estimate(value, value - half, value + half, 10**6)


@pytest.mark.parametrize(("half_a", "half_b"), [(1.0, 0.0), (0.0, 4.0), (1.0, 4.0), (2.0, 6.0)])
def test_a_ratio_is_in_its_interval_if_the_difference_it_means_may_be_zero(half_a, half_b):
    """Fieller's theorem: of the ends r, a - r b lies half an interval from zero."""
    found = interval.ratio(sure(20.0, half_a), sure(10.0, half_b))
    for end in (found.low, found.high):
        assert abs(20.0 - end * 10.0) == pytest.approx(np.hypot(half_a, end * half_b), rel=1e-4)
    assert found.low < 2.0 < found.high


def test_a_ratio_is_no_surer_than_few_windows_of_its_denominator():
    found = interval.ratio(sure(20.0, 0.0), Estimate(10.0, 9.0, 11.0, 3))
    assert (found.low, found.high) == pytest.approx((20 / 11, 20 / 9), rel=1e-3)


def test_a_sum_is_no_surer_than_few_windows_of_its_largest_term():
    few = Estimate(10.0, 9.0, 11.0, 3)
    assert interval.total([few, sure(5.0, 0.01)]).half_width == pytest.approx(1.0, rel=1e-3)


def test_a_sum_has_the_flags_of_all_that_it_sums_up():
    parts = [Estimate(1.0, flags=("overlapped",)), Estimate(2.0), Estimate(3.0, flags=("pooled", "overlapped"))]
    assert interval.total(parts).flags == ("overlapped", "pooled")
    assert interval.total([*parts, Estimate.null("not_resolved")]).flags == ("overlapped", "pooled")


def test_factors_of_a_sum_are_in_its_interval():
    found = interval.total([sure(10.0, 1.0), sure(4.0, 0.5)], [3.0, -2.0])
    assert found.value == 22.0
    assert found.half_width == pytest.approx(np.hypot(3.0, 1.0), rel=1e-4)
    assert interval.difference(sure(10.0, 1.0), sure(4.0, 0.5)).value == 6.0


def test_the_correlation_of_short_series_is_not_underestimated():
    """The lag-one correlation of 15 values comes out 0.2 too low if nothing is done (Marriott and Pope 1954)."""
    rng = np.random.default_rng(4)
    worth = np.array([interval.effective_n(wander(rng, 15, -1 / np.log(0.5), 1.0)) for _ in range(2000)])
    assert np.mean((15 - worth) / (15 + worth)) == pytest.approx(0.5, abs=0.1)


def test_a_slow_drift_under_fast_noise_counts_though_neighbours_hardly_agree():
    rng = np.random.default_rng(5)
    values = rng.normal(0, 1, 4000) + wander(rng, 4000, 100.0, 1.0)
    assert interval.effective_n(values) < 4000 / 20


def test_a_weighted_mean_is_as_sure_as_its_weights_let_it_be():
    values, weights = np.array([1.0, 2.0, 4.0, 7.0]), np.array([0.4, 0.3, 0.2, 0.1])
    mean = float(weights @ values)
    variance = float(np.sum((weights / (1 - weights) * (values - mean)) ** 2)) * 3 / 4
    free = 1 / 0.3 - 1  # Kish's effective number of values, less one
    half = stats.t.ppf(0.975, free) * np.sqrt(variance)
    assert interval.mean_estimate(values, weights).half_width == pytest.approx(half, rel=1e-6)


@pytest.mark.parametrize(
    ("weights", "low", "high"),
    [(np.append(5.0, np.ones(19)), 0.935, 0.965), (np.append(20.0, np.ones(19)), 0.935, 1.0)],
)
def test_a_heavy_value_does_not_hide_the_scatter(weights, low, high):
    """With squared residuals alone, 0.925 and 0.727 of the intervals hold the mean."""
    rng = np.random.default_rng(7)
    means = [interval.mean_estimate(rng.normal(size=20), weights) for _ in range(2000)]
    assert low <= np.mean([one.low <= 0 <= one.high for one in means]) <= high


def test_values_without_a_weight_are_left_out():
    assert interval.mean_estimate([1.0, 2.0, 9.0], [1, 1, 0]) == interval.mean_estimate([1.0, 2.0])
    assert interval.mean_estimate([1.0, 5.0], [1, 0]).reason == "too_few_values"


def few(value, sd, n):
    """An estimate with this standard error, of n windows."""
    half = stats.t.ppf(0.975, n - 1) * sd
    return Estimate(value, value - half, value + half, n)


def test_freedom_of_a_ratio_is_that_of_its_relative_variances():
    """Satterthwaite's: with relative standard errors of 3 and 4 %, of 5 and 4 windows."""
    a, b = 0.03, 0.04
    free = (a**2 + b**2) ** 2 / (a**4 / 4 + b**4 / 3)
    found = interval.ratio(few(20.0, 20.0 * a, 5), few(10.0, 10.0 * b, 4))
    assert found.n == round(free) + 1 == 7
    t = stats.t.ppf(0.975, free)
    for end in (found.low, found.high):
        assert abs(20.0 - end * 10.0) == pytest.approx(t * np.hypot(20.0 * a, end * 10.0 * b), rel=1e-6)


def test_freedom_of_a_difference_is_welchs():
    free = (0.6**2 + 0.4**2) ** 2 / (0.6**4 / 4 + 0.4**4 / 3)
    found = interval.difference(few(20.0, 0.6, 5), few(10.0, 0.4, 4))
    assert found.n == round(free) + 1 == 8
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, free) * np.hypot(0.6, 0.4))


def test_a_ratio_of_what_is_known_exactly_has_no_width():
    found = interval.ratio(Estimate(20.0, 20.0, 20.0, 5), Estimate(10.0, 10.0, 10.0, 4))
    assert (found.low, found.value, found.high, found.n) == (2.0, 2.0, 2.0, 4)


def test_the_worth_of_a_short_series_is_that_of_its_lag_one_correlation_without_its_bias():
    rho = 1 / 12  # of neighbours six agree and five don't
    rho += (1 + 4 * rho) / 12
    assert interval.effective_n([1.0, 1.0, -1.0, -1.0] * 3) == pytest.approx(12 * (1 - rho) / (1 + rho))
    assert interval.effective_n(np.tile([1.0, -1.0], 6)) == 12  # negative correlation is not believed
    assert interval.effective_n([1.0, 5.0]) == 2


def test_a_trend_is_worth_one_value_and_its_mean_has_one_degree_of_freedom():
    trend = np.arange(10.0)
    assert interval.effective_n(trend) == 1.0
    found = interval.mean_estimate(trend, correlated=True)
    # of 1.5 values, fewer than which no variance can be computed from
    variance = np.sum((trend - 4.5) ** 2) / 10 / (1.5 - 1)
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, 1) * np.sqrt(variance))


def test_the_worth_of_a_series_does_not_depend_on_its_unit():
    values = wander(np.random.default_rng(6), 50, 5.0, 1.0)
    assert interval.effective_n(1e-6 * values) == pytest.approx(interval.effective_n(values))
    assert interval.effective_n(values) < 25


@pytest.mark.parametrize("n", [20, 21, 39])
def test_from_20_values_on_correlation_beyond_neighbours_counts(n):
    """Every other value has one of two levels, those between are in the middle: the value before the last agrees."""
    place = np.arange(n)
    values = np.where(place % 2 == 0, np.where(place < n / 2, 1.0, -1.0), 0.0)
    assert interval.effective_n(values) < n / 2
    assert interval.effective_n(values[:19]) > 15


def test_a_ratio_of_nothing_is_zero_and_one_to_nothing_is_none():
    none, some = Estimate(0.0, -1e-3, 1e-3, 9), Estimate(10.0, 9.0, 11.0, 9)
    found = interval.ratio(none, some)
    assert found.value == 0.0
    assert found.low == pytest.approx(-1e-4, rel=0.1)
    assert interval.ratio(some, none).reason == "denominator_near_zero"


@pytest.mark.parametrize(
    ("n", "free", "errors"), [(0, np.inf, 1.959964), (1, np.inf, 1.959964), (2, 1, 12.7062), (3, 2, 4.302653)]
)
def test_the_standard_error_behind_an_interval_is_that_of_students_t(n, free, errors):
    """Of two windows it has one degree of freedom; where no windows are stated it is taken as known."""
    assert interval.standard_error(Estimate(10.0, 9.0, 11.0, n)) == (pytest.approx(1 / errors, rel=1e-5), free)


@pytest.mark.parametrize(("n", "worth"), [(3, 1.5), (4, 1.0), (5, 1.0), (40, 1.0)])
def test_a_trend_of_a_few_or_of_many_values_is_worth_one_or_little_more(n, worth):
    """Of three the lag-one correlation is 0, and a third without its bias."""
    assert interval.effective_n(np.arange(float(n))) == pytest.approx(worth)


def test_correlation_counts_up_to_half_of_the_length_in_pairs_of_lags():
    """Two levels, one in each half, under an alternation of twice their size: all products are known.

    At lag k the levels leave 48 - 3k, the alternation ±4 (48 - k), and both together 4 where k is odd; of the lags 2j
    and 2j + 1 the sum is 101 - 12j, which is positive up to j = 8.
    """
    values = np.repeat([1.0, -1.0], 24) + 2.0 * np.tile([1.0, -1.0], 24)
    total = 2 * sum(101 - 12 * j for j in range(9)) / (48 * 5) - 1
    assert interval.effective_n(values) == pytest.approx(48 / total)


def test_values_without_weight_do_not_count_and_some_must_have_one():
    assert interval.mean_estimate([1.0, 3.0, 100.0], [1.0, 1.0, 0.0]).value == 2.0
    with pytest.raises(BadInputError, match="all zero"):
        interval.mean_estimate([1.0, 3.0], [0.0, 0.0])


def test_a_sum_of_nothing_and_with_nothing():
    assert (interval.total([]).value, interval.total([]).n) == (0, 0)
    assert interval.difference(sure(0.0, 1.0), sure(4.0, 0.5)).value == -4.0


def test_of_two_windows_a_sum_and_a_ratio_have_one_degree_of_freedom():
    t = stats.t.ppf(0.975, 1)
    found = interval.total([few(100.0, 1.0, 2), Estimate(5.0, 5.0, 5.0, 9)])
    assert (found.half_width, found.n) == (pytest.approx(t), 2)
    found = interval.ratio(few(100.0, 1.0, 2), Estimate(10.0, 10.0, 10.0, 9))
    assert (found.high - found.value, found.n) == (pytest.approx(t / 10), 2)


def test_a_denominator_whose_interval_touches_zero_has_no_ratio():
    assert interval.ratio(sure(20.0, 0.0), Estimate(10.0, 0.0, 20.0, 2)).reason == "denominator_near_zero"


@pytest.mark.thorough
@pytest.mark.parametrize("limits", [[], [0.0], [5.0], [5.0, 1e-3], [5.0, 1.0], [5.0, 3.0], [5.0, 5.0], [5.0, 4.0, 4.0]])
@pytest.mark.parametrize("sd", [1e-9, 0.1, 1.0, 3.0, 20.0, 1e4])
def test_normal_and_rectangular_errors_are_expanded_to_what_holds_95_percent(sd, limits):
    """By 10⁶ draws, of which 95.00 ± 0.09 % (4 standard deviations) are within."""
    rng = np.random.default_rng(5)
    half = interval.expanded(interval.Z95 * sd, limits)
    errors = sd * rng.standard_normal(10**6) + sum(one * rng.uniform(-1, 1, 10**6) for one in limits)
    assert np.mean(abs(errors) <= half) == pytest.approx(0.95, abs=9e-4)


def test_an_expanded_rectangular_error_stays_within_its_limit():
    assert interval.expanded(0.0, [5.0]) == pytest.approx(4.75)
    assert interval.expanded(0.0, [5.0, 1.0]) < 6
    assert interval.expanded(3.0, []) == pytest.approx(3.0)
    assert interval.expanded(0.0, []) == 0.0
