"""``import`` refuses command lines that it can't read."""

import pytest

from jouletrace.cli.import_ import _seconds
from jouletrace.errors import BadInputError


def test_a_latency_has_its_unit():
    assert _seconds("4.37ms") == pytest.approx(4.37e-3)
    assert _seconds("2 s") == 2.0


@pytest.mark.parametrize("text", ["4.37", "ms", "-1ms", "0s", "5 W", "nan s", ""])
def test_a_latency_that_is_no_time_is_refused(text):
    with pytest.raises(BadInputError, match=r"more than 0 s with its unit, such as 4\.37ms"):
        _seconds(text)
