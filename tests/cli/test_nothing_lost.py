"""Failures late in a command: one line, and what was measured until then is kept; and wrong use refused early."""

import errno
import json
import os
import shutil
import signal
import sys

import pytest

from commands import PATIENCE_S, command, start
from jouletrace import load
from jouletrace.errors import TerminatedError
from jouletrace.recording import Session
from jouletrace.run import save, store
from make_runs import monitor_run

pytestmark = pytest.mark.usefixtures("short_passes")

NOISY = """
print("read")

class Noisy:
    def __call__(self, x):
        print("ran")
        return x @ x

def make():
    import torch
    print("built")
    return Noisy(), torch.ones(8, 8)
"""
QUICK = ("-d", "sim:h100", "--warmup", "0.2", "--max-time", "1")


@pytest.fixture
def noisy(workspace):
    pytest.importorskip("torch")
    (workspace / "noisy.py").write_text(NOISY)
    return "noisy.py:make"


@pytest.fixture
def full_disk(monkeypatch):
    """A disk that takes all but tables."""
    write_whole = store.write_whole

    def write(path, data, **options):
        if path.suffix in (".parquet", ".zip"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_whole(path, data, **options)

    monkeypatch.setattr(store, "write_whole", write)


@pytest.mark.thorough
def test_a_disk_that_is_full_at_the_end_leaves_what_was_recorded(capsys, workspace, full_disk):
    said = command(capsys, "monitor", "-d", "sim:h100", "--duration", "3", "-o", "run")
    assert said.code == 2
    assert said.err.splitlines()[-2:] == [
        "the data recorded so far is in run",
        "jouletrace: cannot write run: No space left on device",
    ]
    run = load("run")
    assert len(run.samples) > 100
    assert not run.complete


@pytest.mark.thorough
def test_a_zip_that_does_not_fit_leaves_the_folder_that_it_was_to_be_made_of(capsys, workspace, monkeypatch):
    def refuse(files, sink):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store, "_zip", refuse)
    said = command(capsys, "monitor", "-d", "sim:h100", "--duration", "3", "-o", "run.zip")
    assert said.code == 2
    assert "cannot write run.zip: No space left on device" in said.err
    (folder,) = workspace.glob("*-run-recording")
    assert load(folder).complete
    assert len(load(folder).results) > 0


@pytest.mark.thorough
@pytest.mark.parametrize("arguments", [("profile", "noisy.py:make"), ("ab", "noisy.py:make", "noisy.py:make")])
def test_what_a_workload_prints_does_not_get_into_the_result(capsys, noisy, arguments):
    said = command(capsys, *arguments, *QUICK, "--json")
    assert said.code == 0
    assert json.loads(said.out)["schema"] == {"profile": 3, "ab": 1}[arguments[0]]
    assert {"read", "built", "ran"} <= set(said.err.splitlines())


@pytest.mark.thorough
def test_a_check_of_ab_that_fits_nothing_costs_no_measurement(capsys, noisy):
    said = command(capsys, "ab", noisy, noisy, *QUICK, "-o", "kept", "--fail-if", "kernel:gemm:energy>1%")
    assert said.code == 2
    assert "the data recorded so far is in kept" in said.err
    assert "A and B have no kernel" in said.err
    assert len(load("kept").windows) >= 12


def test_an_option_of_b_that_makes_no_sense_is_reported_to_be_b_s(capsys, workspace):
    said = command(capsys, "ab", "gemm", "gemm", "-d", "sim:h100", "--mode-b", "slow")
    assert (said.code, said.complaint) == (2, "jouletrace: B: --mode-b slow: must be one of eager, graph, compile")


def test_a_sweep_of_a_device_that_is_not_there_runs_nothing(capsys, workspace):
    said = command(capsys, "sweep", "gemm", "memcpy", "-d", "sim:nope", "-o", "s")
    assert said.code == 2
    assert "no simulated GPU called 'nope'" in said.complaint
    assert not (workspace / "s").exists()


def test_a_sweep_into_a_file_is_refused(capsys, workspace):
    (workspace / "taken").write_text("text")
    for place in ("taken", "taken/s"):
        said = command(capsys, "sweep", "gemm", "-d", "sim:h100", "-o", place)
        assert (said.code, said.complaint.partition(":")[2]) == (
            2,
            f" cannot write {place}: it, or a parent folder of it, is a file",
        )


@pytest.mark.parametrize("seconds", ["1e300", "inf", "-1"])
def test_a_duration_that_no_clock_can_count_is_refused(capsys, workspace, seconds):
    said = command(capsys, "monitor", "-d", "sim:h100?realtime=1", f"--duration={seconds}", "--", "true")
    assert said.code == 2
    assert f"--duration {float(seconds):g}: must be more than 0 s, and at most 1e+09" in said.complaint


def test_a_side_of_compare_that_names_nothing_is_reported(capsys, workspace):
    said = command(capsys, "compare", ",", ",")
    assert (said.code, said.complaint) == (2, "jouletrace: compare: no Run is given for one side")


# --- ab, broken off ----------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("error", [KeyboardInterrupt(), TerminatedError()])
def test_an_ab_that_is_interrupted_shows_what_was_measured_until_then(capsys, workspace, monkeypatch, error):
    add_window = Session.add_window

    def add(session, **columns):
        add_window(session, **columns)
        if len(session._rows["windows"]) == 14:
            raise error

    monkeypatch.setattr(Session, "add_window", add)
    said = command(capsys, "ab", "gemm", "gemm", "-d", "sim:h100", "--warmup", "0.2", "-o", "cut")
    assert said.code == 130
    assert "the data recorded so far is in cut" in said.err
    run = load("cut")
    assert len(run.windows) == 14
    assert [warning.code for warning in run.warnings if warning.code == "interrupted"]
    shown = command(capsys, "show", "cut", "-v")
    assert shown.code == 0
    assert "nothing was measured" not in shown.out
    assert "3 blocks of A B B A" in shown.out, "the one that was cut off is left out"
    assert f"ended early by {type(error).__name__}" in shown.out


# --- several at once into one place, and signals while saving ---------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["same", "same.zip"])
def test_of_several_that_record_into_one_place_one_wins(workspace, name):
    (workspace / "s.py").write_text("import time; time.sleep(3)\n")
    arguments = ("run", "-d", "sim:h100?realtime=1", "-o", name, "s.py")
    started = [start(*arguments, cwd=workspace) for _ in range(4)]
    ended = [(process.communicate(timeout=PATIENCE_S)[1], process.returncode) for process in started]
    assert sorted(code for _, code in ended) == [0, 2, 2, 2]
    for err, code in ended:
        assert ("saved same" in err) == (code == 0)
        assert code == 0 or len(err.splitlines()) == 1, err
    assert command_verifies(workspace / name)
    assert sorted(path.name for path in workspace.iterdir()) == sorted(["s.py", name])


def command_verifies(place):
    return load(place).complete and all(warning.code != "changed_since_saved" for warning in load(place).warnings)


OTHER = monitor_run()


def test_what_another_has_recorded_there_meanwhile_stays(capsys, workspace, monkeypatch):
    """Another takes the place after we looked whether it is free, before we write."""
    opening, others = Session.open, save(OTHER, workspace / "another's")

    def late(session):
        shutil.copytree(others, workspace / "same")
        opening(session)

    monkeypatch.setattr(Session, "open", late)
    said = command(capsys, "monitor", "-d", "sim:h100", "--duration", "1", "-o", "same")
    assert (said.code, said.complaint) == (
        2,
        "jouletrace: same/run.json exists; results are never overwritten: name another place, or remove it",
    )
    assert load("same") == OTHER


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["same", "same.zip"])
def test_a_place_that_is_lost_while_recording_loses_no_data(capsys, workspace, monkeypatch, name):
    finish = Session.finish

    def late(session, **how):
        shutil.rmtree("same", ignore_errors=True)
        save(OTHER, workspace / name)
        return finish(session, **how)

    monkeypatch.setattr(Session, "finish", late)
    said = command(capsys, "monitor", "-d", "sim:h100", "--duration", "3", "-o", name)
    assert said.code == 2
    assert load(name) == OTHER
    (kept,) = workspace.glob("*-same-recording")
    assert kept.name in said.err
    assert len(load(kept).samples) > 100


@pytest.mark.thorough
def test_a_recording_of_which_no_spool_can_be_opened_leaves_the_place_free(capsys, workspace, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Session.open.__globals__["SpooledRows"], "__init__", refuse_disk)
        assert command(capsys, "monitor", "-d", "sim:h100", "--duration", "1", "-o", "run").code != 0
    assert not (workspace / "run").exists()
    assert command(capsys, "monitor", "-d", "sim:h100", "--duration", "1", "-o", "run").code == 0


def refuse_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_saving_leaves_the_outcome_of_the_program(workspace, number):
    (workspace / "s.py").write_text("print('up')\n")
    (workspace / "sitecustomize.py").write_text(
        "import os, sys\n"
        "def hook(event, arguments):\n"
        "    if event == 'os.link' and 'run.json' not in str(arguments[1]):\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "if '-o' in sys.orig_argv: sys.addaudithook(hook)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(workspace), *sys.path])}
    process = start("run", "-d", "cpu", "-o", "kept.zip", "s.py", cwd=workspace, env=environment)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "its Run is being saved" in err
    assert "saved kept.zip" in err
    assert load(workspace / "kept.zip").complete
