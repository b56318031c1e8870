import numpy as np
import pytest
from scipy.signal import lfilter

from jouletrace.stats.regression import Prior, equivalent_noise, posterior, quantile95, sandwich, solve


def weak(n):
    return Prior.of(np.zeros(n), np.full(n, 1e6))


def test_a_solution_is_the_truth_where_there_is_no_noise():
    rng = np.random.default_rng(0)
    design = rng.normal(size=(50, 4))
    truth = np.array([3.0, -1.0, 0.5, 10.0])
    assert solve(design, design @ truth, weak(4), 1.0) == pytest.approx(truth, rel=1e-9)


def test_what_the_design_does_not_see_comes_from_the_prior():
    design = np.column_stack([np.ones(20), np.zeros(20)])
    prior = Prior.of(np.array([0.0, 7.0]), np.array([1e6, 2.0]))
    assert solve(design, np.full(20, 5.0), prior, 1.0) == pytest.approx([5.0, 7.0], abs=1e-6)
    assert np.sqrt(posterior(design, prior, 1.0)[1, 1]) == pytest.approx(2.0)


def test_a_prior_by_its_covariance_is_that_of_its_rows():
    covariance = np.array([[4.0, 1.0], [1.0, 9.0]])
    prior = Prior.by(np.array([1.0, 2.0]), covariance)
    assert np.linalg.inv(prior.rows.T @ prior.rows) == pytest.approx(covariance)
    assert np.linalg.solve(prior.rows, prior.target) == pytest.approx([1.0, 2.0])


def test_priors_beside_each_other_stay_apart():
    both = Prior.of(np.array([1.0]), np.array([2.0])).beside(Prior.of(np.array([3.0]), np.array([4.0])))
    assert both.rows == pytest.approx(np.diag([0.5, 0.25]))
    assert both.target == pytest.approx([0.5, 0.75])


def autocorrelated(rng, n, r):
    fresh = rng.normal(size=n)
    fresh[1:] *= np.sqrt(1 - r**2)
    return lfilter([1.0], [1.0, -r], fresh)


def coverage(r, lags, trials=250, n=1200, scale=None):
    """How often the interval of a mean (and a slow trend) holds."""
    rng = np.random.default_rng(1)
    held = 0
    design = np.column_stack([np.ones(n), np.linspace(-1, 1, n)])
    for _ in range(trials):
        noise = autocorrelated(rng, n, r) * (1 if scale is None else scale)
        x = solve(design, noise, weak(2), 1.0)
        left = noise - design @ x
        held += abs(x[0]) < 1.96 * np.sqrt(sandwich(design, left, weak(2), 1.0, lags)[0, 0])
    return held / trials


# The share of 250 trials that hold has a standard deviation of 0.0138: 0.910 lies 2.9 of them below 0.95
def test_intervals_hold_with_correlated_noise_and_not_without_its_lags():
    assert coverage(0.6, 25) > 0.90
    assert coverage(0.6, 0) < 0.80


def test_intervals_hold_with_independent_noise():
    assert coverage(0.0, 5) > 0.910


def test_intervals_hold_where_noise_is_larger_at_times():
    scale = np.where(np.arange(1200) % 100 < 20, 5.0, 0.5)
    assert coverage(0.0, 3, scale=scale) > 0.90


def test_leverage_widens_what_few_readings_decide():
    rng = np.random.default_rng(2)
    design = np.column_stack([np.ones(60), np.r_[np.zeros(56), np.ones(4)]])
    held = 0
    for _ in range(400):
        noise = rng.normal(size=60)
        x = solve(design, noise, weak(2), 1.0)
        held += abs(x[1]) < 1.96 * np.sqrt(sandwich(design, noise - design @ x, weak(2), 1.0, 0)[1, 1])
    assert held / 400 > 0.85  # plain residuals give 0.80


def test_the_priors_share_is_in_the_covariance():
    design = np.column_stack([np.ones(20), np.zeros(20)])
    prior = Prior.of(np.array([0.0, 7.0]), np.array([1e6, 2.0]))
    assert np.sqrt(sandwich(design, np.zeros(20), prior, 1.0, 2)[1, 1]) == pytest.approx(2.0)


def test_equivalent_noise_grows_with_correlation():
    rng = np.random.default_rng(3)
    assert equivalent_noise(rng.normal(size=4000)) == pytest.approx(1.0, rel=0.06)
    assert equivalent_noise(autocorrelated(rng, 20000, 0.6)) == pytest.approx(2.0, rel=0.1)


def test_the_limit_that_a_design_sets_shrinks_with_its_readings_and_grows_with_noise():
    design = np.ones((20, 1))
    prior = Prior.of(np.array([0.0]), np.array([2.0]))
    assert posterior(design, prior, 3.0)[0, 0] == pytest.approx(1 / (20 / 3.0**2 + 1 / 2.0**2))


@pytest.mark.parametrize(("share", "errors"), [(0.0, 1.96), (0.1, 2.2605676), (0.5, 3.48215), (1.0, 4.813)])
def test_a_covariance_from_many_lags_needs_wider_intervals(share, errors):
    """The polynomial of Kiefer and Vogelsang (2005) for Bartlett's kernel, at 97.5 %."""
    assert quantile95(share) == pytest.approx(errors)


def test_residuals_that_are_all_alike_leave_the_least_noise():
    assert equivalent_noise(np.zeros(9)) == 1e-6
    assert equivalent_noise(np.full(9, 3.0), least=0.5) == 0.5


@pytest.mark.parametrize("lags", [0, 3])
def test_a_covariance_is_the_sum_over_pairs_of_scores_and_the_priors_own(lags):
    """Pairs count the less the farther they are apart, residuals the more the more of a reading its fit takes up."""
    rng = np.random.default_rng(8)
    design = np.column_stack([np.ones(12), rng.normal(size=12), 50.0 * (np.arange(12) == 7)])
    residuals, noise = rng.normal(size=12), 0.7
    prior = Prior.of(np.array([1.0, 2.0, 3.0]), np.array([2.0, 0.5, 4.0]))
    information = np.diag(1 / np.array([2.0, 0.5, 4.0]) ** 2)
    bread = np.linalg.inv(design.T @ design + noise**2 * information)
    meat = noise**4 * information
    taken = [min(row @ bread @ row, 0.9) for row in design]  # nine tenths at most
    scores = [row * left / np.sqrt(1 - h) for row, left, h in zip(design, residuals, taken, strict=True)]
    for i in range(12):
        for j in range(12):
            meat = meat + max(1 - abs(i - j) / (lags + 1), 0) * np.outer(scores[i], scores[j])
    assert max(taken) == 0.9
    assert sandwich(design, residuals, prior, noise, lags) == pytest.approx(bread @ meat @ bread)


@pytest.mark.parametrize(
    ("residuals", "r"),
    [
        (np.tile([1.0, -1.0], 20), 0.0),  # neighbours that disagree are not believed
        (np.arange(40.0), 0.9),  # nor those that agree wholly
        (np.tile([1.0, 1.0, 1.0, -1.0, -1.0, -1.0], 8), None),
    ],
    ids=["alternating", "trend", "waves"],
)
def test_noise_is_that_of_a_first_order_process_with_the_same_neighbours(residuals, r):
    r = np.corrcoef(residuals[:-1], residuals[1:])[0, 1] if r is None else r
    assert equivalent_noise(residuals) == pytest.approx(np.std(residuals) * np.sqrt((1 + r) / (1 - r)))
