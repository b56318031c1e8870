"""Campaigns take the options of the profiles that they are of."""

import re

import pytest

from commands import done


def options(*command):
    return set(re.findall(r"--[a-z0-9][a-z0-9-]*", done(*command, "--help").out))


@pytest.mark.parametrize(
    ("campaign", "own"),
    [
        (("sweep",), {"--repeats", "--top", "--verbose", "--advice"}),
        (
            ("fleet", "run"),
            {"--target-ci", "--max-time", "--backend", "--threads", "--streams", "--hint", "--format", "--advice"},
        ),
    ],
)
def test_a_campaign_takes_the_options_of_profile(campaign, own):
    missing = options("profile") - options(*campaign)
    assert {"--config", "--detail", "--l2"} <= options(*campaign)
    assert missing <= own, missing
