"""Files changed in one way each, as one was in the wild: import, show, verify and load of each.

A change without a meaning leaves all figures as they are. Any other ends in a Run that opens or in one line, and no
wrong figure passes all checks.
"""

import pytest

from judged import Judge
from mutable import samples
from mutations import drawn, fitting
from thinned import thinned


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    return Judge(tmp_path_factory.mktemp("changed"))


CASES = [(form, family, first) for form in samples() for family in fitting(form) for first in (0, 2)]


@pytest.mark.thorough
@pytest.mark.parametrize(("form", "family", "first"), thinned(CASES, 6))
def test_a_changed_file_is_read_as_it_should_be(judge, form, family, first):
    changes = [drawn(form, family, number) for number in range(first, first + 2)]
    found = [(one.said, judge.fault(one)[1]) for one in changes]
    assert [one for one in found if one[1]] == []
