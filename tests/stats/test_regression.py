import numpy as np
import pytest
from scipy.signal import lfilter

from jouletrace.stats import LinearPrior, equivalent_noise
from jouletrace.stats.regression import solve


def weak(n):
    return LinearPrior.independent(np.zeros(n), np.full(n, 1e6))


def test_a_solution_is_the_truth_where_there_is_no_noise():
    rng = np.random.default_rng(0)
    design = rng.normal(size=(50, 4))
    truth = np.array([3.0, -1.0, 0.5, 10.0])
    assert solve(design, design @ truth, weak(4), 1.0) == pytest.approx(truth, rel=1e-9)


def test_a_prior_by_its_covariance_is_that_of_its_rows():
    covariance = np.array([[4.0, 1.0], [1.0, 9.0]])
    prior = LinearPrior.by(np.array([1.0, 2.0]), covariance)
    assert np.linalg.inv(prior.rows.T @ prior.rows) == pytest.approx(covariance)
    assert np.linalg.solve(prior.rows, prior.target) == pytest.approx([1.0, 2.0])


def test_priors_beside_each_other_stay_apart():
    both = LinearPrior.independent(np.array([1.0]), np.array([2.0])).beside(
        LinearPrior.independent(np.array([3.0]), np.array([4.0]))
    )
    assert both.rows == pytest.approx(np.diag([0.5, 0.25]))
    assert both.target == pytest.approx([0.5, 0.75])


def autocorrelated(rng, n, r):
    fresh = rng.normal(size=n)
    fresh[1:] *= np.sqrt(1 - r**2)
    return lfilter([1.0], [1.0, -r], fresh)


def test_equivalent_noise_grows_with_correlation():
    rng = np.random.default_rng(3)
    assert equivalent_noise(rng.normal(size=4000)) == pytest.approx(1.0, rel=0.06)
    assert equivalent_noise(autocorrelated(rng, 20000, 0.6)) == pytest.approx(2.0, rel=0.1)


def test_residuals_that_are_all_alike_leave_the_least_noise():
    assert equivalent_noise(np.zeros(9)) == 1e-6
    assert equivalent_noise(np.full(9, 3.0), least=0.5) == 0.5


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
