"""The recording process, for real: killed, left alone, interrupted."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from commands import FOREVER_S, PATIENCE_S, gone, wait_for
from fake_devices import FACTORY
from jouletrace.devices import CpuHost
from jouletrace.errors import RecorderDiedError
from jouletrace.recording import ProcessRecorder, open_recorder
from jouletrace.run import SAMPLES, read_spool
from pace import loop_s
from places import SUPPORT

TESTS = str(SUPPORT)

pytestmark = pytest.mark.usefixtures("started_by_python")


@pytest.fixture
def record(tmp_path):
    """Starts recorders of fake devices and sees to their end."""
    recorders = []

    def start(*specs, spool=tmp_path / "spool"):
        recorder = ProcessRecorder(specs or ["board?full=1"], spool, FACTORY)
        recorders.append(recorder)
        recorder.start()
        return recorder

    yield start
    for recorder in recorders:
        with contextlib.suppress(RecorderDiedError):
            recorder.stop()


def stamps_of(table, channel="power_w", device="board"):
    rows = table.to_pylist()
    return np.array([r["time_ns"] for r in rows if r["channel"] == channel and r["device"] == device])


def run_script(tmp_path, text, **kwargs):
    script = tmp_path / "script.py"
    script.write_text(text)
    return subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([TESTS, *sys.path])},
        **kwargs,
    )


RECORDING_SCRIPT = """
import os, sys, time
from pathlib import Path
from jouletrace.recording import open_recorder
from jouletrace.recording.process import ProcessRecorder
with open({marker!r}, "a") as file:
    file.write("imported\\n")
recorder = ProcessRecorder(["board?full=1"], Path({spool!r}), {factory!r})
recorder.start()
{extra}
print(recorder.pid, os.getpid(), flush=True)
try:
    time.sleep({forever})
except KeyboardInterrupt:
    cost = recorder.stop()
    print("kept", cost.samples, len(recorder.samples()), flush=True)
"""


def recording_script(tmp_path, extra=""):
    text = RECORDING_SCRIPT.format(
        marker=str(tmp_path / "marker"),
        spool=str(tmp_path / "spool"),
        factory=FACTORY,
        extra=extra,
        forever=FOREVER_S,
    )
    process = run_script(tmp_path, text, start_new_session=True)
    worker, parent = map(int, process.stdout.readline().split())
    assert parent == process.pid
    return process, worker


@pytest.mark.thorough
def test_the_record_reaches_from_the_start_past_the_end_without_holes(record):
    before = time.time_ns()
    recorder = record()
    started = time.time_ns()
    wait_for(lambda: len(stamps_of(recorder.samples(), "state_5")) >= 10)
    recorder.check()
    end = time.time_ns()
    cost = recorder.stop()
    stopped = time.time_ns()
    table = recorder.samples()
    assert table.schema.equals(SAMPLES)
    stamps = stamps_of(table)
    assert np.all(np.diff(stamps) == 20_000_000)
    assert before < stamps[0] < started
    assert stamps[-1] >= end  # though the sensor hands its readings out 0.1 s late
    state = stamps_of(table, "state_5")
    assert np.median(np.diff(state)) > 0.9e8  # ten times per second, or as often as a busy machine can
    asked_at_end = [t for t in stamps_of(table, "energy_counter_j") if t >= end]
    assert len(asked_at_end) >= 5  # a source at rest is asked as closely as at the start
    assert cost.samples == len(table)
    assert (end - started) / 1e9 < cost.wall_s < (stopped - before) / 1e9
    assert 0 < cost.cpu_s < cost.wall_s
    assert recorder.stop() == cost


@pytest.mark.thorough
def test_what_is_recorded_can_be_read_while_it_grows(record):
    recorder = record()
    assert {c.name for c in recorder.channels} >= {"power_w", "state_0"}
    first = recorder.samples()
    assert "state_0" in set(first["channel"].to_pylist())  # the first poll is on disk
    wait_for(lambda: len(recorder.samples()) > len(first))


@pytest.mark.thorough
def test_waiting_asks_the_sensor_at_once_instead_of_at_its_pace(record):
    recorder = record(f"board?interval={FOREVER_S}")
    wanted = time.time_ns()
    assert recorder.wait_until(wanted, timeout_s=PATIENCE_S)
    assert stamps_of(recorder.samples())[-1] >= wanted
    assert not recorder.wait_until(time.time_ns() + 10**12, timeout_s=0.2)


@pytest.mark.thorough
def test_waiting_for_a_power_record_that_nothing_gives_is_over_at_once(record):
    recorder = record("board?no_power=1")
    assert recorder.channels == []
    assert len(recorder.samples()) == 0
    assert not recorder.wait_until(time.time_ns(), timeout_s=FOREVER_S)
    assert recorder.stop().samples == 0


@pytest.mark.thorough
def test_a_recorder_killed_by_sigkill_is_loud_and_its_data_is_kept(record, tmp_path):
    recorder = record()
    wait_for(lambda: len(stamps_of(recorder.samples())) > 20)
    os.kill(recorder.pid, signal.SIGKILL)
    wait_for(lambda: bool(failure(recorder)))
    with pytest.raises(RecorderDiedError, match=r"killed by signal 9.*kept in .*spool"):
        recorder.check()
    with pytest.raises(RecorderDiedError):
        recorder.wait_until(time.time_ns() + 10**10)
    with pytest.raises(RecorderDiedError):
        recorder.stop()
    kept = recorder.samples()
    assert len(stamps_of(kept)) > 20
    assert len(read_spool(tmp_path / "spool", "samples")) == len(kept)
    assert recorder.stop().samples == 0  # no one was left to count


@pytest.mark.thorough
def test_a_recorder_that_is_asked_to_terminate_ends_well_but_is_missed(record):
    recorder = record()
    os.kill(recorder.pid, signal.SIGTERM)
    sent = time.time_ns()
    wait_for(lambda: gone(recorder.pid))
    assert stamps_of(recorder.samples())[-1] >= sent
    with pytest.raises(RecorderDiedError, match="ended before the recording did"):
        recorder.stop()


@pytest.mark.thorough
def test_an_interrupt_does_not_end_the_recorder(record):
    recorder = record()
    os.kill(recorder.pid, signal.SIGINT)
    sent = time.time_ns()
    assert recorder.wait_until(sent + 10**8, timeout_s=PATIENCE_S)
    recorder.check()
    recorder.stop()


@pytest.mark.thorough
def test_a_workload_that_is_killed_loses_nothing(tmp_path):
    process, worker = recording_script(tmp_path)
    time.sleep(1.0)
    killed = time.time_ns()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: gone(worker))
    stamps = stamps_of(read_spool(tmp_path / "spool", "samples"))
    assert np.all(np.diff(stamps) == 20_000_000)
    assert stamps[-1] >= killed


@pytest.mark.thorough
def test_a_child_that_outlives_the_workload_does_not_keep_the_recorder(tmp_path):
    fork = f"pid = os.fork()\nif pid == 0:\n    time.sleep({FOREVER_S})\n    os._exit(0)"
    process, worker = recording_script(tmp_path, fork)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: gone(worker))
    process.stdout.close()
    os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.thorough
def test_ctrl_c_reaches_the_workload_which_ends_the_recorder_in_order(tmp_path):
    process, worker = recording_script(tmp_path)
    time.sleep(0.3)
    interrupted = time.time_ns()
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_S)
    word, counted, read = output.split()
    assert process.returncode == 0
    assert word == "kept"
    assert counted == read
    assert gone(worker)
    assert stamps_of(read_spool(tmp_path / "spool", "samples"))[-1] >= interrupted


@pytest.mark.thorough
def test_the_users_main_is_never_imported_again(tmp_path):
    process, _ = recording_script(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert (tmp_path / "marker").read_text() == "imported\n"


@pytest.mark.thorough
def test_a_module_in_the_working_folder_does_not_get_in_the_way(tmp_path, record, monkeypatch):
    (tmp_path / "json.py").write_text("raise RuntimeError('not the json you want')\n")
    monkeypatch.chdir(tmp_path)
    record().check()


@pytest.mark.thorough
def test_a_sensor_that_fails_is_reported_and_the_others_go_on(record):
    recorder = record("board?full=1&fail=0.7")
    wait_for(lambda: bool(failure(recorder)))
    failed = time.time_ns()
    assert "recording of power_w of board ended: the GPU is lost" in failure(recorder)
    with pytest.raises(RecorderDiedError, match="GPU is lost"):
        recorder.stop()
    assert recorder.stop().samples == len(recorder.samples())
    assert stamps_of(recorder.samples(), "state_0")[-1] >= failed


def failure(recorder):
    try:
        recorder.check()
    except RecorderDiedError as error:
        return str(error)
    return ""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("spec", "message"),
    [("missing-board", "there is no missing-board"), ("crash", "RuntimeError: a bug in the driver's binding")],
)
def test_a_recorder_that_can_not_start_says_why(tmp_path, spec, message):
    recorder = ProcessRecorder([spec], tmp_path / "spool", FACTORY)
    with pytest.raises(RecorderDiedError, match=message):
        recorder.start()
    assert recorder.stop().samples == 0
    with pytest.raises(RecorderDiedError, match="not started"):
        recorder.samples()


def test_a_spool_that_can_not_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecorderDiedError, match="can't be started"):
        ProcessRecorder(["board"], tmp_path / "file" / "spool", FACTORY).start()


@pytest.mark.thorough
def test_several_devices_are_recorded_by_one_process(record):
    recorder = record("one", "two")
    assert recorder.wait_until(time.time_ns(), timeout_s=PATIENCE_S)
    recorder.stop()
    table = recorder.samples()
    assert len(stamps_of(table, device="one")) > 3
    assert len(stamps_of(table, device="two")) > 3


@pytest.mark.thorough
def test_recording_takes_little_of_a_core(record):
    """Idle waiting, not spinning, which would take about 70 loops, or what a busy machine gives it of them."""
    recorder = record("board?full=1&interval=1.0")
    time.sleep(2.0)
    assert recorder.stop().cpu_s < 8 * loop_s()


@pytest.mark.thorough
def test_pyarrow_alone_does_without_pandas():
    pytest.importorskip("pandas")
    script = (
        "import sys\n"
        "from jouletrace.without_pandas import hide_pandas_from_pyarrow\n"
        "hide_pandas_from_pyarrow()\n"
        "import pyarrow as pa\n"
        "pa.array([1])\n"
        "assert 'pandas' not in sys.modules\n"
        "import pandas\n"
        "print(pa.table({'a': [1, 2]}).to_pandas().a.sum())\n"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "3\n"


@pytest.mark.thorough
def test_the_worker_does_without_pandas():
    pytest.importorskip("pandas")
    code = (
        "import sys, pyarrow; from jouletrace.recording import worker; sys.argv = ['worker', '{}']\n"
        "try: worker.main()\nexcept TypeError: pass\n"  # an empty configuration, after which nothing is recorded
        "pyarrow.array([1.0]); print('pandas' in sys.modules)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout == "False\n"


def test_devices_with_nothing_to_read_take_no_process(tmp_path, no_rapl):
    recorder = open_recorder([CpuHost()], tmp_path / "spool")
    assert not isinstance(recorder, ProcessRecorder)
    with pytest.raises(RecorderDiedError, match="was not started"):
        recorder.samples()
    recorder.start()
    recorder.check()
    assert (recorder.channels, recorder.wait_until(0)) == ([], False)
    assert len(recorder.samples()) == len(recorder.follow().table()) == 0
    assert recorder.samples().schema == SAMPLES
    cost = recorder.stop()
    assert (cost.cpu_s, cost.samples) == (0.0, 0)
    assert recorder.stop() is cost
    assert len(read_spool(tmp_path / "spool", "samples")) == 0
