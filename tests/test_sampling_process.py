"""The recording process, for real: killed, left alone, interrupted."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fake_devices import FACTORY
from jouletrace.errors import RecorderDiedError
from jouletrace.run.spool import read_spool
from jouletrace.run.tables import SAMPLES
from jouletrace.sampling.process import ProcessRecorder

TESTS = str(Path(__file__).parent)


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


def wait_for(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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
from jouletrace.sampling.process import ProcessRecorder
with open({marker!r}, "a") as file:
    file.write("imported\\n")
recorder = ProcessRecorder(["board?full=1"], Path({spool!r}), {factory!r})
recorder.start()
{extra}
print(recorder.pid, os.getpid(), flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    cost = recorder.stop()
    print("kept", cost.samples, len(recorder.samples()), flush=True)
"""


def recording_script(tmp_path, extra=""):
    text = RECORDING_SCRIPT.format(
        marker=str(tmp_path / "marker"), spool=str(tmp_path / "spool"), factory=FACTORY, extra=extra
    )
    process = run_script(tmp_path, text, start_new_session=True)
    worker, parent = map(int, process.stdout.readline().split())
    assert parent == process.pid
    return process, worker


def test_the_record_reaches_from_the_start_past_the_end_without_holes(record):
    before = time.time_ns()
    recorder = record()
    started = time.time_ns()
    time.sleep(1.2)
    recorder.check()
    end = time.time_ns()
    cost = recorder.stop()
    table = recorder.samples()
    assert table.schema.equals(SAMPLES)
    stamps = stamps_of(table)
    assert np.all(np.diff(stamps) == 20_000_000)
    assert before < stamps[0] < started + 300_000_000
    assert stamps[-1] >= end  # though the sensor hands its readings out 0.1 s late
    state = stamps_of(table, "state_5")
    assert np.median(np.diff(state)) == pytest.approx(1e8, rel=0.1)
    asked_at_end = [t for t in stamps_of(table, "energy_counter_j") if t >= end]
    assert len(asked_at_end) >= 5  # a source at rest is asked as closely as at the start
    assert cost.samples == len(table)
    assert cost.wall_s == pytest.approx(1.5, abs=0.5)
    assert 0 < cost.cpu_s < cost.wall_s
    assert recorder.stop() == cost


def test_what_is_recorded_can_be_read_while_it_grows(record):
    recorder = record()
    assert {c.name for c in recorder.channels} >= {"power_w", "state_0"}
    first = recorder.samples()
    assert "state_0" in set(first["channel"].to_pylist())  # the first poll is on disk
    assert wait_for(lambda: len(recorder.samples()) > len(first), 3.0)


def test_waiting_asks_the_sensor_at_once_instead_of_at_its_pace(record):
    recorder = record("board?interval=30")
    wanted = time.time_ns()
    start = time.monotonic()
    assert recorder.wait_until(wanted)
    assert time.monotonic() - start < 1.5
    assert stamps_of(recorder.samples())[-1] >= wanted
    assert not recorder.wait_until(time.time_ns() + 10**12, timeout_s=0.2)


def test_waiting_for_a_power_record_that_nothing_tells_is_over_at_once(record):
    recorder = record("board?no_power=1")
    assert recorder.channels == []
    assert len(recorder.samples()) == 0
    start = time.monotonic()
    assert not recorder.wait_until(time.time_ns())
    assert time.monotonic() - start < 0.5
    assert recorder.stop().samples == 0


def test_a_recorder_killed_by_sigkill_is_loud_and_its_data_is_kept(record, tmp_path):
    recorder = record()
    time.sleep(1.2)
    os.kill(recorder.pid, signal.SIGKILL)
    assert wait_for(lambda: bool(failure(recorder)))
    with pytest.raises(RecorderDiedError, match=r"killed by signal 9.*kept in .*spool"):
        recorder.check()
    with pytest.raises(RecorderDiedError):
        recorder.wait_until(time.time_ns() + 10**10)
    with pytest.raises(RecorderDiedError):
        recorder.stop()
    kept = recorder.samples()
    assert len(stamps_of(kept)) > 20
    assert len(read_spool(tmp_path / "spool", "samples")) == len(kept)
    assert recorder.stop().samples == 0  # nobody was left to count


def test_a_recorder_that_is_told_to_terminate_ends_well_but_is_missed(record):
    recorder = record()
    os.kill(recorder.pid, signal.SIGTERM)
    sent = time.time_ns()
    assert wait_for(lambda: not alive(recorder.pid))
    assert stamps_of(recorder.samples())[-1] >= sent
    with pytest.raises(RecorderDiedError, match="ended before it was asked to"):
        recorder.stop()


def test_an_interrupt_does_not_end_the_recorder(record):
    recorder = record()
    os.kill(recorder.pid, signal.SIGINT)
    sent = time.time_ns()
    assert recorder.wait_until(sent + 10**8)
    recorder.check()
    recorder.stop()


def test_a_workload_that_is_killed_loses_nothing(tmp_path):
    process, worker = recording_script(tmp_path)
    time.sleep(1.0)
    killed = time.time_ns()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert wait_for(lambda: not alive(worker))
    stamps = stamps_of(read_spool(tmp_path / "spool", "samples"))
    assert np.all(np.diff(stamps) == 20_000_000)
    assert stamps[-1] >= killed


def test_a_child_that_outlives_the_workload_does_not_keep_the_recorder(tmp_path):
    fork = "pid = os.fork()\nif pid == 0:\n    time.sleep(8)\n    os._exit(0)"
    process, worker = recording_script(tmp_path, fork)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert wait_for(lambda: not alive(worker), 4.0)
    process.stdout.close()
    os.killpg(process.pid, signal.SIGKILL)


def test_ctrl_c_reaches_the_workload_which_ends_the_recorder_in_order(tmp_path):
    process, worker = recording_script(tmp_path)
    time.sleep(0.3)
    interrupted = time.time_ns()
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=15)
    word, counted, read = output.split()
    assert process.returncode == 0
    assert word == "kept"
    assert counted == read
    assert not alive(worker)
    assert stamps_of(read_spool(tmp_path / "spool", "samples"))[-1] >= interrupted


def test_the_users_main_is_never_imported_again(tmp_path):
    process, _ = recording_script(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=15)
    assert (tmp_path / "marker").read_text() == "imported\n"


def test_a_module_in_the_working_folder_does_not_get_in_the_way(tmp_path, record, monkeypatch):
    (tmp_path / "json.py").write_text("raise RuntimeError('not the json you want')\n")
    monkeypatch.chdir(tmp_path)
    record().check()


def test_a_sensor_that_fails_is_told_and_the_others_go_on(record):
    recorder = record("board?full=1&fail=0.7")
    assert wait_for(lambda: bool(failure(recorder)), 5.0)
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


def test_several_devices_are_recorded_by_one_process(record):
    recorder = record("one", "two")
    assert recorder.wait_until(time.time_ns())
    recorder.stop()
    table = recorder.samples()
    assert len(stamps_of(table, device="one")) > 3
    assert len(stamps_of(table, device="two")) > 3


def test_recording_takes_little_of_a_core(record):
    """Idle waiting, not spinning: the bound is wide, for slow machines; the usual is well below 2 %."""
    recorder = record("board?full=1&interval=1.0")
    time.sleep(2.0)
    cost = recorder.stop()
    assert cost.cpu_s / cost.wall_s < 0.1


def test_the_worker_does_without_pandas():
    pytest.importorskip("pandas")
    code = (
        "import sys, pyarrow; from jouletrace.sampling import worker; sys.argv = ['worker', '{}']\n"
        "try: worker.main()\nexcept TypeError: pass\n"  # an empty configuration, after which nothing is recorded
        "pyarrow.array([1.0]); print('pandas' in sys.modules)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout == "False\n"
