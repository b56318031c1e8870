"""A fleet that is interrupted says where its results are and how to go on."""

import pytest

from commands import command
from fleet_data import gpus, tables_of
from jouletrace.addons.fleet.dataset import Dataset
from jouletrace.addons.fleet.node import Outcome
from jouletrace.addons.fleet.plan import Task
from jouletrace.addons.fleet.store import open_store
from jouletrace.errors import BadInputError


@pytest.fixture(params=[KeyboardInterrupt(), BadInputError("cannot write fleet/failed: No space left on device")])
def broken_off(monkeypatch, request):
    """An engine that has one result of two when Ctrl-C comes, or the disk is full; how the command ends."""

    def local(settings, boards, others, place, command):
        def work(todo, note, hear):
            task = Task(boards[0], 0)
            Dataset(open_store(place)).put(task, tables_of(task, [1.0, 1.1]))
            note(Outcome(task))
            raise request.param

        return work

    monkeypatch.setattr("jouletrace.addons.fleet.open.local", local)
    monkeypatch.setattr("jouletrace.addons.fleet.open.find_gpus", lambda *asked: (gpus(1, 2), []))
    monkeypatch.setattr("jouletrace.addons.fleet.open.busy", lambda boards: {})
    return getattr(request.param, "exit_code", 130), str(request.param) or "interrupted"


def test_what_was_measured_is_kept_and_the_way_on_is_reported(broken_off, capsys, workspace):
    said = command(capsys, "fleet", "run", "gemm", "--repeats", "1", "-o", "fleet")
    code, complaint = broken_off
    assert said.code == code
    assert said.err.splitlines()[-1] == f"jouletrace: {complaint}"
    assert "the results so far are in fleet; repeat the command with -o fleet for the missing ones" in said.err
    report = command(capsys, "fleet", "report", "fleet")
    assert report.code == 0, report.err
    assert "GPU 0" in report.out
