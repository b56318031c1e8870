"""Many hypotheses at once."""

import numpy as np
import pytest
from scipy import stats

from jouletrace.stats import holm
from jouletrace.stats.several import moderated, spreads_differ


def test_holm_goes_on_until_the_first_that_is_not_rejected():
    found = holm([0.04, 0.001, 0.03, 0.012], 0.05)
    assert [rejected for rejected, _ in found] == [False, True, False, True]
    assert [level for _, level in found] == pytest.approx([0.025, 0.0125, 0.025, 0.05 / 3])


def test_probabilities_that_only_rounding_distinguishes_are_tested_at_one_level():
    """Energy per token and per request of equal loads: which of the two is the smaller depends on the processor."""
    a, b = 0.02, 0.02 * (1 + 1e-13)
    assert holm([a, b, 0.9], 0.09) == holm([b, a, 0.9], 0.09) == [(True, 0.03), (True, 0.03), (False, 0.09)]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_spreads_differ_by_an_f_test_in_any_unit(scale):
    rng = np.random.default_rng(5)
    one, other = rng.normal(10.0, 0.1, 12), rng.normal(20.0, 0.2, 9)
    ratio = (np.std(one, ddof=1) / one.mean()) ** 2 / (np.std(other, ddof=1) / other.mean()) ** 2
    p = 2 * min(stats.f(11, 8).cdf(ratio), stats.f(11, 8).sf(ratio))
    for alpha in (0.9 * p, 1.1 * p):
        assert spreads_differ(scale * one, scale * other, alpha) == (p < alpha)
    assert spreads_differ(scale * one, scale * (other + 3 * (other - other.mean())), 0.01)


@pytest.mark.parametrize("variance", [[2.0, 3.0], [1.0, 1.01, 0.99, 1.0]])
def test_variances_that_no_prior_distinguishes_are_pooled_with_the_degrees_of_all(variance):
    found, df = moderated(np.array(variance), 4.0)
    assert found.tolist() == pytest.approx([np.mean(variance)] * len(variance))
    assert df == 4.0 * len(variance)
