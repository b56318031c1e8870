"""GPUs that are changed: one process at a time, whoever runs it, and put back however that one dies."""

import json
import os
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from commands import children_of, command, wait_for
from jouletrace.cli import main
from jouletrace.devices import open_device
from jouletrace.errors import BadInputError, NotPossibleError, TerminatedError
from jouletrace.processes import alone_at, hold, journal_of, locks, shared_folder, termination
from jouletrace.processes.locks import alone_in, noted, started
from jouletrace.run import PREFIX, DeviceInfo
from scripts import HANGUPS, check_that_it_ends, hanging_sweep, run_script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="locks and signals as Linux has them")

GPU = DeviceInfo("GPU-11111111-2222-3333-4444-555555555555", "a GPU")
SIM = "sim:h100"

# --- one process at a time ----------------------------------------------------------------------------

HOLDER = """
import sys, time
from jouletrace.processes.locks import hold
from jouletrace.run import DeviceInfo
with hold(DeviceInfo("GPU-11111111-2222-3333-4444-555555555555", "a GPU"), "dividing"):
    open("held", "w").close()
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path, monkeypatch):
    """Another process that holds the GPU, with a cache folder of its own, as another user has."""
    with monkeypatch.context() as patch:
        patch.setenv("JOULETRACE_CACHE", str(tmp_path / "another-cache"))
        process = run_script(HOLDER, tmp_path, stderr=subprocess.PIPE)
    wait_for((tmp_path / "held").exists)
    yield process
    process.kill()
    process.communicate()


def test_two_processes_cannot_hold_one_gpu_and_the_second_learns_who_has_it(holder):
    says = rf"another jouletrace \(pid {holder.pid}\) is dividing {GPU.id}: wait for it to end"
    with pytest.raises(NotPossibleError, match=says), hold(GPU, "changing"):
        pass
    with hold(DeviceInfo("GPU-2", "another GPU"), "changing"):
        pass


def test_a_gpu_is_free_again_when_its_holder_is_killed(holder):
    holder.kill()
    holder.wait()
    with hold(GPU, "changing"):
        assert json.loads((shared_folder() / f"jouletrace-{GPU.id}.lock").read_text())["pid"] == os.getpid()


@pytest.mark.thorough
def test_restore_waits_for_the_lock(capsys, workspace):
    """A second process must not take back a limit under a sweep that runs."""
    limiter = open_device(SIM)
    with hold(limiter.info, "changing the power limit of") as held:
        held.note("power_limit", {"before_w": 700.0})
        limiter.set_limit(300.0)
        said = command(capsys, "sweep", "--restore", "-d", SIM)
        assert said.code == 3
        assert f"another jouletrace (pid {os.getpid()}) is changing the power limit" in said.complaint
        assert limiter.limit_w() == 300.0
        assert noted(limiter.info, "power_limit")["before_w"] == 700.0


def test_a_lock_left_by_a_process_whose_number_is_taken_again_is_stale():
    path = shared_folder() / f"jouletrace-{GPU.id}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"pid": os.getpid(), "started": started(os.getpid()) - 1, "doing": "dividing"}))
    with hold(GPU, "changing"):
        assert json.loads(path.read_text())["doing"] == f"changing {GPU.id}"
    assert path.read_text() == "", "no one has it any more"


FORKED = """
import json, os, time
from jouletrace.processes import locks
from jouletrace.run import DeviceInfo
gpu = DeviceInfo("GPU-11111111-2222-3333-4444-555555555555", "a GPU")
with locks.hold(gpu, "dividing") as held:
    if os.fork() == 0:
        time.sleep(600)
    open("held", "w").close()
    {ends}
"""


def test_a_fork_that_outlives_its_holder_is_not_taken_for_the_holder(tmp_path):
    """The number of the holder has been taken by an innocent process: no one is asked to wait for that one."""
    process = run_script(
        FORKED.format(ends="os.kill(os.getpid(), 9)"), tmp_path, start_new_session=True, stderr=subprocess.PIPE
    )
    try:
        process.wait()
        path = shared_folder() / f"jouletrace-{GPU.id}.lock"
        record = json.loads(path.read_text())
        assert record["pid"] == process.pid
        path.write_text(json.dumps({**record, "pid": os.getpid()}))
        with pytest.raises(NotPossibleError, match=r"has ended .* a process that it left behind"), hold(GPU, "x"):
            pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_holder_that_ends_in_order_frees_the_gpu_though_a_fork_of_it_lives(tmp_path):
    process = run_script(FORKED.format(ends="pass"), tmp_path, start_new_session=True, stderr=subprocess.PIPE)
    try:
        process.wait()
        with hold(GPU, "changing"):
            pass
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


# --- in a folder that users share ---------------------------------------------------------------------


def test_locks_and_journals_are_for_all_users_of_the_host(monkeypatch):
    before = os.umask(0o077)
    try:
        with hold(GPU, "changing") as held:
            held.note("mig", {"before": 1})
            lock = shared_folder() / f"jouletrace-{GPU.id}.lock"
            assert stat.S_IMODE(lock.stat().st_mode) == 0o1666
            assert stat.S_IMODE(journal_of(GPU).stat().st_mode) == 0o1644
            assert journal_of(GPU).parent == lock.parent
            held.forget("mig")
            assert not journal_of(GPU).exists()
    finally:
        os.umask(before)
    monkeypatch.delenv("JOULETRACE_LOCKS")
    for variable in ("JOULETRACE_CACHE", "XDG_CACHE_HOME", "HOME", "TMPDIR"):
        monkeypatch.setenv(variable, "/home/somebody")
    assert shared_folder() in (Path("/var/tmp"), Path("/tmp"))


def test_changes_of_one_kind_leave_what_was_written_down_of_another():
    with hold(GPU, "changing") as held:
        held.note("mig", {"before": 1})
        held.note("power_limit", {"before_w": 2})
        held.forget("mig")
        assert held.noted("mig") is None
        assert held.noted("power_limit")["before_w"] == 2


def test_a_journal_of_another_user_is_not_believed(monkeypatch):
    """Anybody may write into the folder: what is in there must not decide what root does to a GPU."""
    with hold(GPU, "changing") as held:
        held.note("power_limit", {"before_w": 200})
    owner = os.geteuid() or 4711
    if os.geteuid() == 0:
        os.chown(journal_of(GPU), owner, -1)
    monkeypatch.setattr(locks.os, "geteuid", lambda: 0 if owner == 4711 else 4711)
    with pytest.raises(BadInputError, match=f"was written by user {owner}"):
        noted(GPU, "power_limit")


def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path = shared_folder() / f"jouletrace-{GPU.id}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(victim)
    with pytest.raises(NotPossibleError, match="can't be created"), hold(GPU, "changing"):
        pass
    assert victim.read_text() == "precious"


def test_a_folder_of_results_has_one_writer_a_host(tmp_path):
    with (
        alone_in(tmp_path / "f", "running a fleet"),
        pytest.raises(NotPossibleError, match=rf"\(pid {os.getpid()}\) is running a fleet into .*f: wait"),
        alone_in(tmp_path / "f", "running a fleet"),
    ):
        pass
    assert list((tmp_path / "f").iterdir()) == []


# --- put back -----------------------------------------------------------------------------------------

CHANGES = """
import os, time
from jouletrace.profiler.gpu_settings import GpuSettings
settings = GpuSettings("sim:h100", dict(power_limit=[300.0], clock=[1200.0]))
with settings.changing():
    settings.set(dict(power_limit=300.0, clock=1200.0))
    open("changed", "w").close()
    {then}
    time.sleep(600)
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, signal.SIGTERM]
    + [pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT)],
)
def test_a_power_limit_and_a_clock_come_back_whatever_signal_ends_their_holder(tmp_path, number):
    """In a program of its own, which handles none of them."""
    process = run_script(CHANGES.format(then=""), tmp_path, stderr=subprocess.PIPE)
    wait_for((tmp_path / "changed").exists)
    limiter = open_device(SIM)
    assert (limiter.limit_w(), limiter.clock_mhz()) == (300.0, 1200.0)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)  # the watcher has the same stderr
    assert process.returncode == -number
    assert (limiter.limit_w(), limiter.clock_mhz()) == (700.0, 345.0)
    assert not journal_of(limiter.info).exists()
    said = "putting SIM-h100-80-0 back: its power limit is 700 W again and its SM clock is unlocked again"
    assert f"process {process.pid} ended without {said}" in err
    with hold(limiter.info, "changing"):
        pass


@pytest.mark.thorough
def test_a_gpu_stays_locked_until_the_watcher_has_put_it_back(tmp_path):
    """A watcher that is stopped has not begun: no other process may see the GPU half put back."""
    process = run_script(CHANGES.format(then=""), tmp_path, stderr=subprocess.PIPE)
    wait_for((tmp_path / "changed").exists)
    (watcher,) = children_of(process.pid)
    os.kill(watcher, signal.SIGSTOP)
    process.kill()
    process.wait()
    limiter = open_device(SIM)
    try:
        with pytest.raises(NotPossibleError, match="has ended"), hold(limiter.info, "changing"):
            pass
        assert limiter.limit_w() == 300.0
    finally:
        os.kill(watcher, signal.SIGCONT)
    process.communicate(timeout=60)
    assert limiter.limit_w() == 700.0


@pytest.mark.thorough
def test_a_watcher_notices_the_end_of_its_holder_though_a_fork_keeps_the_pipe(tmp_path):
    forks = "if os.fork() == 0: time.sleep(600)"
    process = run_script(CHANGES.format(then=forks), tmp_path, start_new_session=True, stderr=subprocess.PIPE)
    try:
        wait_for(lambda: (tmp_path / "changed").exists() and len(children_of(process.pid)) == 2)
        process.kill()
        process.wait()
        wait_for(lambda: open_device(SIM).limit_w() == 700.0)
        wait_for(lambda: not journal_of(open_device(SIM).info).exists())
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.thorough
def test_a_watcher_that_cannot_put_a_gpu_back_says_what_to_do(tmp_path):
    """The journal is damaged meanwhile."""
    process = run_script(CHANGES.format(then=""), tmp_path, stderr=subprocess.PIPE)
    wait_for((tmp_path / "changed").exists)
    journal_of(open_device(SIM).info).write_text("{")
    process.kill()
    _, err = process.communicate(timeout=60)
    assert "can't be read" in err
    assert err.rstrip().endswith("run jouletrace sweep --restore --device sim:h100")


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """Where temporary folders are made."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


SWEEP = ("sweep", "toy.py:hangs", "-d", SIM, "--power-limit", "300", "--yes", "-o", "s")


def limited():
    return open_device(SIM).limit_w() == 300.0


@pytest.mark.thorough
@pytest.mark.parametrize("numbers", HANGUPS)
def test_a_dropped_connection_ends_a_sweep_as_ctrl_c_does(workspace, scratch, numbers):
    with hanging_sweep(workspace, SWEEP, limited) as process:
        check_that_it_ends(process, numbers)
        assert open_device(SIM).limit_w() == 700.0
        assert not journal_of(open_device(SIM).info).exists()


@pytest.mark.thorough
def test_a_sweep_that_is_killed_leaves_the_gpu_as_it_was_and_no_temporary_folder(workspace, scratch):
    with hanging_sweep(workspace, SWEEP, limited) as process:
        process.kill()
        process.wait()
        wait_for(lambda: open_device(SIM).limit_w() == 700.0)
        assert "ended without putting" in process.communicate(timeout=60)[1]
        assert list(scratch.glob(f"{PREFIX}*")) == []


def test_a_sweep_in_a_session_of_its_own_ignores_a_hangup_that_it_was_asked_to_ignore(monkeypatch):
    """As under nohup."""
    raised = []

    def run(arguments):
        if signal.getsignal(signal.SIGHUP) == termination.terminated:
            try:
                os.kill(os.getpid(), signal.SIGHUP)
            except TerminatedError:
                termination.taken()
                raised.append(True)
        return 0

    monkeypatch.setattr(main, "run", run)
    was = {name: signal.getsignal(name) for name in (signal.SIGHUP, signal.SIGTERM)}
    try:
        for handler, expected in ((signal.SIG_IGN, signal.SIG_IGN), (signal.SIG_DFL, termination.terminated)):
            signal.signal(signal.SIGHUP, handler)
            with pytest.raises(SystemExit):
                main.main()
            assert signal.getsignal(signal.SIGHUP) == expected
        assert raised == [True]
    finally:
        for name, handler in was.items():
            signal.signal(name, handler)


def test_of_two_that_write_one_file_the_second_is_refused(tmp_path):
    place = tmp_path / "run.zip"
    with alone_at(place, "recording into"):
        with pytest.raises(
            BadInputError, match=rf"another jouletrace \(pid {os.getpid()}\) is recording into .*run.zip"
        ):
            alone_at(place, "recording into").__enter__()
        with alone_at(tmp_path / "other.zip", "recording into"):
            pass
    with alone_at(place, "recording into"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_the_program_has_closed_leads_to_no_file_of_its_own(tmp_path):
    """Its number may belong to a file of the program by then."""
    with alone_at(tmp_path / "run.zip", "recording into"):
        (handle,) = [
            int(one.name)
            for one in Path("/proc/self/fd").iterdir()
            if one.is_symlink() and os.readlink(one).endswith(".run.zip.lock")
        ]
        os.close(handle)
        (tmp_path / "mine").write_text("data")
        assert os.open(tmp_path / "mine", os.O_RDWR) == handle
    assert (tmp_path / "mine").read_text() == "data"
    assert os.read(handle, 4) == b"data"
    os.close(handle)
