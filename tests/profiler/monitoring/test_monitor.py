"""Recording whatever runs: until a time, until a command ends, until Ctrl-C."""

import sys
import time

import numpy as np
import pytest

from jouletrace.errors import BadInputError, RecorderDiedError
from jouletrace.profiler.calibrate import calibrate
from jouletrace.profiler.monitoring.monitor import monitor
from jouletrace.profiler.program.command import program_of
from jouletrace.profiler.program.launcher import Launcher
from jouletrace.run import load
from jouletrace.simulator.boards import SimulatedGpu

SQUARE = "sim:h100?load=2:120,2:600"
REAL = "sim:h100?realtime=1&load=0.5:120,0.5:600"


def watch(*specs, command=None, **options):
    """The Run, the exit code of the command, the devices."""
    devices = [SimulatedGpu(spec) for spec in specs]
    if command is None:
        return monitor(devices, **options), None, devices
    with Launcher(program_of(command, module=False)) as launcher:
        return monitor(devices, launcher=launcher, **options), launcher.code, devices


@pytest.mark.thorough
def test_levels_and_energy_are_those_of_the_gpu():
    run, _, (device,) = watch(SQUARE, duration_s=20.0)
    assert run.result("power_idle_w", 1).value == pytest.approx(120, rel=0.02)
    assert run.result("power_working_w", 1).value == pytest.approx(600, rel=0.02)
    assert run.result("power_difference_w", 1).value == pytest.approx(480, rel=0.03)
    (phase,) = run.spans.to_pylist()
    truth = device.truth.energy_j(phase["start_ns"], phase["end_ns"])
    assert run.result("energy_total_j", 1).value == pytest.approx(truth, rel=2e-3)
    assert run.result("time_s", 1).value == pytest.approx(20.0, abs=0.1)


@pytest.mark.thorough
def test_the_interval_of_a_steady_gpu_holds_the_truth():
    run, _, (device,) = watch("sim:h100?load=100:300", duration_s=20.0)
    (phase,) = run.spans.to_pylist()
    energy = run.result("energy_total_j", 1)
    assert energy.low <= device.truth.energy_j(phase["start_ns"], phase["end_ns"]) <= energy.high
    assert energy.half_width < 0.01 * energy.value


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["v100", "a100-40", "a100-80", "h200-141"])
def test_every_gpu_can_be_watched(name):
    run, _, (device,) = watch(f"sim:{name}?load=3:35,3:250", duration_s=18.0)
    (phase,) = run.spans.to_pylist()
    energy = run.result("energy_total_j", 1)
    start, seconds = phase["start_ns"], run.result("time_s", 1).value
    truth = device.truth.energy_j(start, min(start + round(seconds * 1e9), phase["end_ns"]))
    assert energy.value == pytest.approx(truth, rel=0.05)
    assert run.result("power_difference_w", 1).value == pytest.approx(215, rel=0.05)


@pytest.mark.thorough
def test_a_gpu_at_rest_without_noise_has_an_energy_too():
    run, _, _ = watch("sim:a100?noise=0", duration_s=10.0)
    assert run.result("energy_total_j", 1).value == pytest.approx(10 * run.result("power_w", 1).value, rel=0.05)


@pytest.mark.thorough
def test_ticks_come_at_their_interval_with_the_latest_readings():
    ticks = []
    watch(SQUARE, duration_s=8.0, interval_s=1.0, displays=[lambda readings, _: ticks.append(readings[0])])
    assert len(ticks) == 8
    assert {"power_w", "utilization_gpu_pct", "clock_sm_mhz", "temperature_c", "memory_used_bytes"} <= set(
        ticks[-1].values
    )
    powers = np.array([tick.values["power_w"] for tick in ticks])  # later ticks leave them as they were
    assert powers.min() < 200
    assert powers.max() > 500


def test_fast_ticks_show_fresh_readings():
    """Four lines a second: the recorder is asked, since by itself it looks once per second."""
    ages = []
    device = SimulatedGpu(SQUARE)

    def look(found, _):
        ages.append((device.clock.time_ns() - found[0].time_ns) / 1e9)

    monitor([device], duration_s=4.0, interval_s=0.25, displays=[look])
    assert len(ages) >= 12
    assert max(ages) < 0.15


@pytest.mark.thorough
def test_several_devices_share_a_recording():
    run, _, _ = watch("sim:h100?seed=1&realtime=1", "sim:a100?realtime=1", duration_s=0.6)
    assert [row["level"] for row in run.units.to_pylist()] == ["model", "device", "device"]
    assert run.result("power_w", 1).value == pytest.approx(74, abs=8)
    assert run.result("power_w", 2).value == pytest.approx(50, abs=10)


@pytest.mark.thorough
def test_the_run_is_saved_with_its_figures(tmp_path):
    run, _, _ = watch(SQUARE, duration_s=5.0, folder=tmp_path / "run", typed="jouletrace monitor")
    saved = load(tmp_path / "run")
    assert saved.complete
    assert (saved.kind, saved.command) == ("monitor", "jouletrace monitor")
    assert saved.results.equals(run.results)


@pytest.mark.thorough
def test_ctrl_c_is_its_ordinary_end(tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    run, _, _ = watch(SQUARE, duration_s=60.0, displays=[interrupt], folder=tmp_path / "run")
    assert load(tmp_path / "run").complete
    assert run.result("time_s", 1).value == pytest.approx(1.0, abs=0.1)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("body", "code", "warned"),
    [
        ("exit(0)", 0, []),
        ("import os; os.kill(os.getpid(), 9)", 137, ["program_failed"]),
        ("raise KeyboardInterrupt", 130, ["program_ended"]),
    ],
)
def test_a_command_is_recorded_and_its_exit_code_passed_on(body, code, warned):
    began = time.monotonic()
    run, found, _ = watch(REAL, command=[sys.executable, "-c", f"import time; time.sleep(0.3); {body}"])
    watched_s = time.monotonic() - began
    assert found == code
    (span,) = [row for row in run.spans.to_pylist() if row["kind"] == "range"]
    assert 0.3 < (span["end_ns"] - span["start_ns"]) / 1e9 < watched_s
    assert [warning.code for warning in run.warnings] == warned
    assert run.result("energy_total_j", 1).value > 0


@pytest.mark.thorough
def test_a_command_outlives_a_dead_recorder(monkeypatch, tmp_path):
    from jouletrace.recording import ProcessRecorder

    def dies(self):
        raise RecorderDiedError("killed")

    monkeypatch.setattr(ProcessRecorder, "check", dies)
    body = f"import pathlib, time; time.sleep(0.5); pathlib.Path({str(tmp_path / 'mark')!r}).touch(); exit(7)"
    run, code, _ = watch(REAL, command=[sys.executable, "-c", body], interval_s=0.1, folder=tmp_path / "run")
    assert code == 7
    assert (tmp_path / "mark").exists()
    assert [row["kind"] for row in run.spans.to_pylist()] == ["range", "phase"]


@pytest.mark.parametrize(
    ("options", "said"), [({}, "give a duration"), ({"command": ["true"], "duration_s": 1.0}, "takes real time")]
)
def test_virtual_time_without_an_end_is_refused(options, said):
    with pytest.raises(BadInputError, match=said) as caught:
        watch("sim:h100?seed=1", **options)
    assert str(caught.value).endswith("or write realtime=1")


@pytest.mark.thorough
def test_a_stored_calibration_is_used():
    board = "sim:h100?load=2:120,2:600"
    found = calibrate("sim:h100", seconds=10.0).calibration["SIM-h100-80-0"]
    run, _, _ = watch(board, duration_s=6.0)
    assert run.calibration["SIM-h100-80-0"]["channels"].keys() == found["channels"].keys()
    assert run.channel("SIM-h100-80-0", "power_w").origin == "calibrated"
    before, _, _ = watch("sim:h100?seed=1", duration_s=2.0)
    assert before.calibration == {}
