"""The page of a fleet goes over no other file."""

import pytest

from commands import command
from fleet_data import stored
from jouletrace.run import save
from make_runs import profile_run


@pytest.fixture
def there(workspace):
    """A fleet, a Run and a page of another kind, whose bytes must stay as they are."""
    save(profile_run(), workspace / "R")
    stored(workspace / "F", [1.0, 1.01])
    (workspace / "thesis.html").write_text("<!DOCTYPE html><title>My thesis</title>")
    return workspace


@pytest.mark.thorough
@pytest.mark.parametrize("place", ["R/run.json", "F/fleet.json", "thesis.html"])
def test_a_report_goes_over_no_other_file(there, capsys, place):
    pytest.importorskip("plotly")
    before = {path: path.read_bytes() for path in there.rglob("*") if path.is_file()}
    said = command(capsys, "fleet", "report", "F", "-o", place)
    assert said.code == 2
    complaint = f"jouletrace: {place} exists and is not a report of jouletrace: only such a file is replaced"
    assert said.err.splitlines()[-1] == complaint
    assert {path: path.read_bytes() for path in there.rglob("*") if path.is_file()} == before


@pytest.mark.thorough
def test_what_a_report_writes_it_replaces(there, capsys):
    pytest.importorskip("plotly")
    for _ in range(2):
        assert command(capsys, "fleet", "report", "F", "-o", "f.html").code == 0
