"""Ours may be killed: the program goes on, the recorder says where its Run is, and the Run has figures until then."""

import json
import os
import signal
import sys

import pytest

from commands import PATIENCE_S, command, start, wait_for
from places import SUPPORT

KILLS = """
import os, signal
from row_kernels import launch
for _ in range(100): launch("gemm", 0.01)
os.kill(os.getppid(), signal.SIGKILL)
for _ in range(200): launch("gemm", 0.01)
open("on", "w")
"""


@pytest.fixture
def killed(workspace):
    """Runs a script that kills us, to the end of the recorder; returns our process id and what stderr got."""

    def run(text):
        (workspace / "kills.py").write_text(text)
        said = workspace / "errors"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path])}
        words = ("run", "-d", "sim:h100?realtime=1&load=1:300", "-o", "kept", "kills.py")
        with said.open("w") as errors:
            process = start(*words, cwd=workspace, stderr=errors, env=environment)
            assert process.wait(PATIENCE_S) == -signal.SIGKILL
        wait_for(lambda: "jouletrace show" in said.read_text())
        return process.pid, said.read_text()

    return run


@pytest.mark.thorough
def test_a_run_has_figures_until_we_were_killed(killed, workspace, capsys):
    pid, said = killed(KILLS)
    line = f"jouletrace: process {pid} was killed; what it had recorded: jouletrace show kept"
    assert said.splitlines()[-1] == line
    wait_for((workspace / "on").exists)
    shown = command(capsys, "show", "kept", "--json")
    assert shown.code == 0, shown.err
    found = json.loads(shown.out)
    seconds = found["model"]["other"]["iteration_time_s"]["value"]
    assert found["model"]["energy_j"]["total"]["value"] == pytest.approx(300 * seconds, rel=0.02)
    (kernel,) = [row for row in found["parts"]["code"] if row["path"][0]["name"] == "gemm"]
    assert 50 <= kernel["count"] < 300, "all but the last half second before we were killed"


@pytest.mark.thorough
def test_what_is_missing_of_a_killed_recording_is_reported(killed, workspace, capsys):
    killed("import row_kernels\nrow_kernels.writer().warn('profiler_inside', 'a gap')\n" + KILLS)
    wait_for((workspace / "on").exists)
    shown = json.loads(command(capsys, "show", "kept", "--json").out)
    assert "a gap" in [warning["message"] for warning in shown["warnings"] if warning["code"] == "profiler_inside"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "said"),
    [("rows-17", ""), ("rows-later-x", ""), ("rows-17-x", "is larger than any recording: refused")],
)
def test_files_of_the_tracer_in_a_run_of_others_are_harmless(killed, workspace, capsys, name, said):
    wait = "import os, signal, time\nwhile not os.path.exists('kept/spool/samples.0000.arrows'): time.sleep(0.01)\n"
    killed(wait + "os.kill(os.getppid(), signal.SIGKILL)\n")
    (rows,) = (workspace / "kept").glob("rows-*")
    process = rows.rename(workspace / "kept" / name) / "7-1"
    process.mkdir()
    os.mkfifo(process / "text")
    with (process / "rows").open("wb") as file:
        file.truncate(1 << 40 if said else 5)
    shown = command(capsys, "show", "kept")
    assert (shown.code, said in shown.err) == (2 if said else 0, True), shown.err


@pytest.mark.thorough
def test_a_program_that_ends_by_itself_has_no_such_line(workspace):
    (workspace / "ends.py").write_text("import time\ntime.sleep(1)\n")
    with (workspace / "errors").open("w") as errors:
        process = start("run", "-d", "sim:h100?realtime=1", "ends.py", cwd=workspace, stderr=errors)
        assert process.wait(PATIENCE_S) == 0
    assert "was killed" not in (workspace / "errors").read_text()


def test_a_run_killed_at_the_first_line_of_its_program_can_be_read(workspace, capsys):
    (workspace / "kills.py").write_text("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n")
    process = start("run", "-d", "sim:h100?realtime=1", "-o", "kept", "kills.py", cwd=workspace)
    process.communicate(timeout=PATIENCE_S)
    shown = command(capsys, "show", "kept")
    assert (process.returncode, shown.code) == (-signal.SIGKILL, 0), shown.err
