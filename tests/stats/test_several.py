"""Many hypotheses at once."""

import pytest

from jouletrace.stats.several import holm


def test_holm_goes_on_until_the_first_that_is_not_rejected():
    found = holm([0.04, 0.001, 0.03, 0.012], 0.05)
    assert [rejected for rejected, _ in found] == [False, True, False, True]
    assert [level for _, level in found] == pytest.approx([0.025, 0.0125, 0.025, 0.05 / 3])
