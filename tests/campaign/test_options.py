"""Campaigns take the options of the profiles that they are of."""

from commands import options


def test_a_sweep_takes_the_options_of_profile():
    assert {"--config", "--detail", "--l2"} <= options("sweep")
    assert options("profile") - options("sweep") <= {"--repeats", "--top", "--verbose", "--advice", "--absolute"}
