"""GPUs that are divided: one process at a time, and put back however that one dies."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from commands import children_of, command, gone, wait_for
from jouletrace.devices import open_device
from jouletrace.errors import BadInputError
from jouletrace.processes import hold
from jouletrace.profiler import GpuSettings
from jouletrace.run import PREFIX
from jouletrace.wings.mig import Layout, layout_of, open_backend, written_down
from scripts import HANGUPS, check_that_it_ends, hanging_sweep, run_script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="locks and signals as Linux has them")

MIG = "sim:a100-40"
SWEEP = ("mig", "sweep", "--profiles", "1g.5gb", "--models", "toy.py:hangs", "-d", MIG, "-o", "s")


def test_one_lock_is_for_divisions_and_power_limits_alike(capsys, workspace):
    """The id of a simulated GPU is the same for both."""
    with hold(open_device(MIG).info, "changing the power limit of"):
        said = command(capsys, "mig", "apply", "3g.20gb", "-d", MIG, "--yes")
    assert said.code == 3
    assert "is changing the power limit of SIM-a100-40-0" in said.complaint


def test_a_slice_has_no_clock_of_its_own():
    with pytest.raises(BadInputError, match="only a whole GPU"):
        GpuSettings("sim:h100?mig=1g.10gb", {"clock": [1200.0]})


DIVIDES = """
import os
from jouletrace.wings.mig.apply import apply
from jouletrace.wings.mig.apply import open_backend
from jouletrace.wings.mig.plan import make_plan
backend = open_backend("sim:a100-40")
def die(text):
    if "creating a compute" in text:
        os.kill(os.getpid(), 9)
apply(make_plan(["3g.20gb", "2g.10gb"], backend), backend, "sim:a100-40", die)
"""


@pytest.mark.thorough
def test_a_division_that_is_killed_half_way_is_taken_back(tmp_path):
    process = run_script(DIVIDES, tmp_path, stderr=subprocess.PIPE)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert "back: it is divided as before again (MIG off)" in err
    backend = open_backend(MIG)
    assert layout_of(backend) == Layout(False)
    assert written_down(backend.info) is None


def test_a_division_that_is_done_stays_and_its_watcher_ends(capsys, workspace):
    before = children_of(os.getpid())
    assert command(capsys, "mig", "apply", "3g.20gb", "-d", MIG, "--yes").code == 0
    assert children_of(os.getpid()) == before
    assert str(layout_of(open_backend(MIG))) == "3g.20gb at 4:4"
    assert written_down(open_backend(MIG).info) == Layout(False)


def divided():
    with suppress(BadInputError):  # the state is being written
        return layout_of(open_backend(MIG)) != Layout(False)


@pytest.mark.thorough
@pytest.mark.parametrize("numbers", HANGUPS)
def test_a_dropped_connection_ends_a_sweep_as_ctrl_c_does(workspace, numbers):
    with hanging_sweep(workspace, SWEEP, divided) as process:
        check_that_it_ends(process, numbers)
        assert not divided()
        assert written_down(open_backend(MIG).info) is None


@pytest.mark.thorough
def test_a_sweep_that_is_killed_leaves_the_gpu_as_it_was_and_no_temporary_folder(workspace, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    with hanging_sweep(workspace, SWEEP, divided) as process:
        wait_for(lambda: list(scratch.glob(f"{PREFIX}*")))
        process.kill()
        process.wait()
        wait_for(lambda: not divided())
        assert "ended without putting" in process.communicate(timeout=60)[1]
        assert list(scratch.glob(f"{PREFIX}*")) == []


@pytest.mark.thorough
def test_a_second_process_cannot_sweep_over_a_gpu_that_is_swept_over(workspace, capsys, monkeypatch):
    with hanging_sweep(workspace, SWEEP, divided) as process:
        monkeypatch.setenv("JOULETRACE_CACHE", "another")
        said = command(capsys, "mig", "apply", "7g.40gb", "-d", MIG, "--yes")
        assert said.code == 3
        assert f"another jouletrace (pid {process.pid}) is sweeping over slices of SIM-a100-40-0" in said.complaint
        assert not gone(process.pid)
