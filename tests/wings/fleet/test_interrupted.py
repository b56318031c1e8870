"""A fleet that is interrupted says where its results are and how to go on."""

import pytest

from commands import command
from fleet_data import gpus, run_of
from jouletrace.campaign.loop import PointOutcome
from jouletrace.errors import BadInputError
from jouletrace.wings.fleet import engine
from jouletrace.wings.fleet.engine import FleetHost
from jouletrace.wings.fleet.plan import Task


@pytest.fixture(params=[KeyboardInterrupt(), BadInputError("cannot write fleet/failed: No space left on device")])
def broken_off(monkeypatch, request):
    """A host that has one result of two when Ctrl-C comes, or the disk is full; how the command ends."""

    class Breaks(FleetHost):
        def at_once(self, group, note, hear):
            task = Task(self._gpus[0], 0)
            self._store.add(task, run_of(task))
            note(PointOutcome(task))
            raise request.param

    monkeypatch.setattr(engine, "FleetHost", Breaks)
    monkeypatch.setattr(engine, "find_gpus", lambda *asked: (gpus(1, 2), []))
    monkeypatch.setattr(engine, "busy", lambda boards: {})
    return getattr(request.param, "exit_code", 130), str(request.param) or "interrupted"


def test_what_was_measured_is_kept_and_the_way_on_is_reported(broken_off, capsys, workspace):
    said = command(capsys, "fleet", "run", "gemm", "--repeats", "1", "-o", "fleet")
    code, complaint = broken_off
    assert said.code == code
    assert said.err.splitlines()[-1] == f"jouletrace: {complaint}"
    assert "1 of 2 results are measured; the same command with -o fleet goes on" in said.err
    assert "GPU 0" in said.out
