"""Many hypotheses at once."""

import pytest

from jouletrace.stats import holm


def test_holm_goes_on_until_the_first_that_is_not_rejected():
    found = holm([0.04, 0.001, 0.03, 0.012], 0.05)
    assert [rejected for rejected, _ in found] == [False, True, False, True]
    assert [level for _, level in found] == pytest.approx([0.025, 0.0125, 0.025, 0.05 / 3])


def test_probabilities_that_only_rounding_distinguishes_are_tested_at_one_level():
    """Energy per token and per request of equal loads: which of the two is the smaller depends on the processor."""
    a, b = 0.02, 0.02 * (1 + 1e-13)
    assert holm([a, b, 0.9], 0.09) == holm([b, a, 0.9], 0.09) == [(True, 0.03), (True, 0.03), (False, 0.09)]
