"""The host's clock is set during a recording: times go on by one that never steps, and a remark says so."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from jouletrace import load
from traced import FAKES

DEVICE = "sim:h100?load=1:300"
RECORDS = f"""
import json, os, time
import jouletrace as jt
with jt.record(device={DEVICE + "&realtime=1"!r}) as recording:
    time.sleep(2.0)
    open(os.environ["SET_FILE"], "w").close()
    with jt.range("after"):
        time.sleep(2.0)
run = recording.run
after = next(row for row in run.spans.to_pylist() if row["name"] == "after")
seconds = (after["end_ns"] - after["start_ns"]) / 1e9
energy = run.result("energy_total_j")
print(json.dumps([run.result("time_s").value, energy.value, seconds, [one.message for one in run.warnings]]))
"""
PROGRAM = "import os, time\nopen(os.environ['SET_FILE'], 'w').close()\ntime.sleep(0.5)\n"

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """A library that sets the clock by SET_S once SET_FILE is there."""
    library = tmp_path_factory.mktemp("shim") / "set.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, FAKES / "clock_set.c", "-ldl"], check=True)
    return library


@pytest.fixture
def by(shim, workspace):
    """Run a command of Python whose clock is set by so many seconds."""

    def by(seconds, *words):
        given = {"LD_PRELOAD": str(shim), "SET_FILE": str(workspace / "set"), "SET_S": str(seconds)}
        command = [sys.executable, *words]
        return subprocess.run(command, env=os.environ | given, capture_output=True, text=True, check=False)

    return by


@pytest.mark.thorough
@pytest.mark.parametrize("seconds", [3600, -3600, 2 * 10**9])
def test_a_recording_goes_on_as_if_the_clock_had_not_been_set(by, seconds):
    done = by(seconds, "-c", RECORDS)
    assert done.returncode == 0, done.stderr
    whole_s, energy_j, after_s, warnings = json.loads(done.stdout)
    assert 0.5 < whole_s < 600  # by a clock that was set: an hour more or less, or decades
    assert 2.0 <= after_s < 600
    assert energy_j / whole_s == pytest.approx(300.0, rel=0.05)
    assert f"the host's clock was set by {seconds:+d}.00 s while recording" in warnings


@pytest.mark.thorough
@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_program_that_sets_the_clock_is_recorded_to_its_end(by, workspace, seconds):
    (workspace / "program.py").write_text(PROGRAM)
    done = by(seconds, "-m", "jouletrace", "run", "--device", DEVICE, "-o", "run", "program.py")
    assert done.returncode == 0, done.stderr
    assert f"the host's clock was set by {seconds:+d}.00 s while recording" in done.stdout
    run = load("run")
    (program,) = [row for row in run.spans.to_pylist() if row["name"] == "program"]
    assert 0.5e9 <= program["end_ns"] - program["start_ns"] < 600e9
