"""Options that the release before still had are refused by one line that names what takes their place."""

import pytest

from commands import command
from jouletrace.option import GONE
from places import REPOSITORY

RUN = REPOSITORY / "docs" / "results" / "runs" / "deit-run-h100.zip"
GIVEN = {"--schema": ("show", str(RUN), "--json", "--schema", "2")}


@pytest.mark.parametrize("option", GONE)
def test_an_option_that_is_gone_names_what_takes_its_place(option, capsys):
    said = command(capsys, *GIVEN[option])
    assert said.code == 2
    assert said.complaint.strip() == f"jouletrace: {option} is gone: {GONE[option]}"
