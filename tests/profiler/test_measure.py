"""Energy of blocks of code, from a recorder that runs beside the process."""

import os
import subprocess
import sys
import time

import pytest

import jouletrace as jt
from commands import PATIENCE_S, gone, wait_for
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.profiler import measure as module
from jouletrace.simulator.boards import SimulatedGpu
from shown import trust_of

SQUARE = "sim:h100?realtime=1&load=0.4:120,0.4:500"
STEADY = "sim:h100?realtime=1&load=100:300"
OTHER = "sim:h100?realtime=1&seed=1&load=100:200"


@pytest.fixture(scope="module", autouse=True)
def recorders():
    """Recorders live as long as the process: here, as long as this file's tests."""
    yield
    for recording in module._recordings.values():
        recording.close()
    module._recordings.clear()


@pytest.mark.thorough
def test_a_block_of_a_steady_load():
    began = time.monotonic()
    with jt.measure("steady", device=STEADY) as m:
        time.sleep(0.5)
    assert 0.5 <= m.time_s.value <= time.monotonic() - began
    assert m.power_w.value == pytest.approx(300, rel=0.03)
    assert m.energy_j.value == pytest.approx(300 * m.time_s.value, rel=0.03)
    assert m.energy_j.low <= 300 * m.time_s.value <= m.energy_j.high * 1.01
    assert m.label == "steady"


@pytest.mark.thorough
def test_blocks_hold_what_the_gpu_drew_meanwhile():
    """The plan repeats from the Unix epoch on, so a GPU of our own lives the same life."""
    device = SimulatedGpu(SQUARE)
    with jt.measure(device=SQUARE) as m:
        time.sleep(0.9)
    energy = m.energy_j
    device.board.catch_up()
    truth = device.truth.energy_j(m.start_ns, m.end_ns)
    assert energy.value == pytest.approx(truth, rel=0.04)
    assert energy.half_width < 0.1 * truth


@pytest.mark.thorough
def test_a_block_that_is_entered_again_begins_again_and_not_within_itself():
    block = jt.measure("again", device=STEADY)
    for seconds in (0.5, 0.25):
        with block:
            assert block.energy_j.reason == "block_not_ended"
            with pytest.raises(BadInputError, match="'again' has not ended"):
                block.__enter__()
            time.sleep(seconds)
        assert block.power_w.value == pytest.approx(300, rel=0.03)
        assert block.energy_j.value == pytest.approx(300 * block.time_s.value, rel=0.03)


@pytest.mark.thorough
def test_blocks_nest_and_add_up():
    with jt.measure("outer", device=STEADY) as outer:
        with jt.measure("first", device=STEADY) as first:
            time.sleep(0.25)
        with jt.measure("second", device=STEADY) as second:
            time.sleep(0.25)
    parts = first.energy_j.value + second.energy_j.value
    between_s = outer.time_s.value - first.time_s.value - second.time_s.value
    assert outer.energy_j.value == pytest.approx(parts + 300 * between_s, rel=0.05)
    assert outer._recording is first._recording


@pytest.mark.thorough
def test_several_devices_are_summed():
    with jt.measure(device=[STEADY, OTHER]) as m:
        time.sleep(0.5)
    one, other = (m.device_energy_j(f"SIM-h100-80-{seed}") for seed in (0, 1))
    assert m.energy_j.value == pytest.approx(one.value + other.value)
    assert m.energy_j.half_width < one.half_width + other.half_width
    assert m.power_w.value == pytest.approx(500, rel=0.03)


@pytest.mark.parametrize("device", [0, "cuda:0", "SIM-h100-80-1"])
def test_a_device_that_is_not_measured_is_refused_with_those_that_are(device):
    with jt.measure(device=STEADY) as m:
        pass
    with pytest.raises(jt.BadInputError, match=f"doesn't measure {device!r}; it measures SIM-h100-80-0"):
        m.device_energy_j(device)


@pytest.mark.parametrize("metric", ["energy_j", "power_w"])
def test_a_block_too_short_for_the_sensor_is_null_never_zero(metric):
    with jt.measure(device=STEADY) as m:
        pass
    found = getattr(m, metric)
    assert found.value is None
    assert found.reason in ("sensor_too_slow", "empty_window", "block_too_short")


def test_inside_the_block_there_is_no_figure_yet():
    with jt.measure(device=STEADY) as m:
        for figure in (m.energy_j, m.time_s, m.power_w):
            assert figure.reason == "block_not_ended"
        assert "the block has not ended" in repr(m)


@pytest.mark.thorough
@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt("mine")])
def test_an_exception_goes_through_and_what_was_measured_is_kept_with_care(error):
    def fails(measurement):
        with measurement:
            time.sleep(0.3)
            raise error

    block, recording = jt.measure(device=STEADY), jt.record(device=STEADY, kernels=False)
    for measurement in (block, recording):
        with pytest.raises(type(error), match="mine"):
            fails(measurement)
    assert block.energy_j.value == pytest.approx(300 * block.time_s.value, rel=0.05)
    for said in (str(block), recording.summary()):
        assert f"INCOMPLETE: ended early by {type(error).__name__}: mine; what was recorded until then is kept" in said
        assert "trust: with care, 1 remark" in said


@pytest.mark.thorough
def test_a_figure_is_computed_once():
    with jt.measure(device=STEADY) as m:
        time.sleep(0.2)
    assert m.device_energy_j("SIM-h100-80-0") is m.device_energy_j("SIM-h100-80-0")


def test_without_power_the_reason_comes_at_once(no_rapl):
    with jt.measure(device="cpu") as m:
        time.sleep(0.05)
    assert m._recording._tail_s == 0.0
    assert m.energy_j.reason in ("rapl_absent", "rapl_unreadable")
    assert m.power_w.reason == m.energy_j.reason
    assert m.time_s.value >= 0.05


@pytest.mark.parametrize("function", [jt.measure, jt.record])
def test_a_device_in_the_place_of_the_label_is_refused(function):
    with pytest.raises(
        BadInputError, match=f"{function.__name__}: 'sim:h100' is the label here: write device='sim:h100'"
    ):
        function("sim:h100")


def test_wrong_devices_are_refused():
    with pytest.raises(NotPossibleError, match="no device was named"):
        jt.measure(device=[])
    with pytest.raises(BadInputError, match="no simulated GPU called"):
        jt.measure(device="sim:nothing")


def test_a_gpu_whose_time_stands_still_in_a_block_is_refused():
    with pytest.raises(
        BadInputError, match=r"^measure: sim:a100\?realtime=0: a block takes real time; leave out realtime=0$"
    ):
        jt.measure(device="sim:a100?realtime=0")


def test_a_simulated_gpu_runs_in_real_time_by_itself():
    with jt.measure(device="sim:a100?load=1:200") as m:
        time.sleep(0.05)
    assert m.time_s.value >= 0.05
    assert not m._recording.devices[0].clock.virtual


@pytest.mark.thorough
def test_the_energy_of_a_program_beside_an_idle_simulated_gpu_is_not_its_own():
    said = (
        "the program did not run on this simulated GPU: this is its idle power; "
        "--device 'sim:h100?load=1:300' (device= in Python) gives it a load of 300 W"
    )
    with jt.measure(device="sim:h100") as m, jt.record(device="sim:h100") as recording:
        time.sleep(0.05)
    assert str(m).endswith(said)
    assert recording.summary().endswith(said)
    assert trust_of(recording.run)["level"] == "no"
    with jt.measure(device="sim:h100?run=2&realtime=1") as m:
        pass
    assert "--device 'sim:h100?run=2&load=1:300' (" in str(m)
    with jt.measure(device=STEADY) as m, jt.record(device=STEADY) as recording:
        time.sleep(0.05)
    assert "idle power" not in str(m) + recording.summary()
    assert trust_of(recording.run)["level"] == "yes"


@pytest.mark.thorough
def test_a_device_is_a_name_or_a_list_of_names():
    with jt.measure(device=STEADY) as one, jt.measure(device=[STEADY]) as other:
        pass
    assert one._recording is other._recording
    for function in (jt.measure, jt.record):
        with pytest.raises(BadInputError, match="device=3: must be a name, or a list of names"):
            function(device=3)
    with jt.record(device="sim:h100?load=1:200") as recording:
        pass
    assert recording.run.simulated


def test_a_calibration_of_the_gpu_is_used():
    from jouletrace.recording.calibrations import store_calibration
    from jouletrace.sensor.calibration import StepResponse

    spec = "sim:h100?realtime=1&seed=5&load=100:300"
    response = StepResponse(0.02, window_s=0.023, origin="calibrated").to_dict()
    store_calibration(SimulatedGpu(spec), {"time_ns": 1, "channels": {"power_w": response}})
    with jt.measure(device=spec) as m:
        pass
    (channel,) = [c for c in m._recording.session.run.channels if c.name == "power_w"]
    assert (channel.origin, channel.window_s) == ("calibrated", 0.023)


@pytest.mark.thorough
def test_a_fork_leaves_the_parents_recorder_alone():
    with jt.measure(device=STEADY) as m:
        time.sleep(0.2)
    pid = os.fork()
    if pid == 0:  # the child ends as a program does, with its atexit handlers
        m._recording.close()
        os._exit(0 if not module._recordings else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    m._recording.session.recorder.check()
    assert m.energy_j.value > 0


SCRIPT = """
import sys, time
import jouletrace as jt
print("main runs")
with jt.measure("block", device="sim:h100?realtime=1&load=100:300") as m:
    time.sleep(0.4)
print("power", m.power_w.value)
print("recorder", m._recording.session.recorder.pid)
print("torch" in sys.modules)
"""


@pytest.mark.thorough
def test_a_script_without_a_main_guard_runs_once_and_leaves_no_recorder(workspace):
    (workspace / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    lines = done.stdout.splitlines()
    assert lines.count("main runs") == 1
    assert float(lines[1].split()[1]) == pytest.approx(300, rel=0.05)
    assert lines[3] == "False"
    pid = int(lines[2].split()[1])
    wait_for(lambda: gone(pid))
    assert done.stderr == ""
    assert sorted(path.name for path in workspace.iterdir()) == ["script.py"]
