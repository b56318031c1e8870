"""Options that the release before still had are refused by one line that names what takes their place."""

import pytest

import jouletrace
from commands import command
from jouletrace.errors import BadInputError
from jouletrace.option import GONE
from places import REPOSITORY
from shipped import is_known

RUN = REPOSITORY / "tests" / "data" / "runs" / "deit-run-h100.zip"
GIVEN = {
    "--schema": ("show", str(RUN), "--json", "--schema", "2"),
    "mig bench": ("mig", "bench", "gpt2", "--slices", "3g"),
    "--context": ("profile", "llama-tiny", "--task", "generate", "--context", "512,2048"),
}


@pytest.mark.parametrize("option", GONE)
def test_an_option_that_is_gone_names_what_takes_its_place(option, capsys):
    if not is_known(GIVEN[option]):
        pytest.skip("of a wing that isn't here")
    said = command(capsys, *GIVEN[option])
    assert said.code == 2
    assert said.complaint.strip() == f"jouletrace: {option} is gone: {GONE[option]}"


def test_python_names_it_too():
    with pytest.raises(BadInputError, match=r"context is gone: profile with --prompt-len"):
        jouletrace.profile("llama-tiny", task="generate", context=(512, 2048))
