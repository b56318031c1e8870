"""Ours may be killed: the program goes on, and the recorder says where its Run is."""

import signal

from commands import PATIENCE_S, command, only_run, start, wait_for

KILLS = (
    "import os, signal, time\ntime.sleep(1)\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(1)\nopen('on', 'w')\n"
)


def test_the_place_of_the_run_is_reported_when_we_are_killed(workspace, capsys):
    (workspace / "kills.py").write_text(KILLS)
    with (workspace / "errors").open("w") as errors:
        process = start("run", "-d", "sim:h100?realtime=1", "kills.py", cwd=workspace, stderr=errors)
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
    said = workspace / "errors"
    wait_for(lambda: "jouletrace show" in said.read_text())
    wait_for((workspace / "on").exists)
    place = only_run(workspace)
    lines = said.read_text().splitlines()
    assert lines[-1] == (
        f"jouletrace: process {process.pid} was killed; what it had recorded: "
        f"jouletrace show {place.relative_to(workspace)}"
    )
    assert command(capsys, "show", str(place)).code == 0


def test_a_program_that_ends_by_itself_has_no_such_line(workspace):
    (workspace / "ends.py").write_text("import time\ntime.sleep(1)\n")
    with (workspace / "errors").open("w") as errors:
        process = start("run", "-d", "sim:h100?realtime=1", "ends.py", cwd=workspace, stderr=errors)
        assert process.wait(PATIENCE_S) == 0
    assert "was killed" not in (workspace / "errors").read_text()
