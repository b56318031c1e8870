"""Calibration end to end on simulated GPUs whose sensors are hidden, and where its result goes."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from jouletrace import NotPossibleError, load
from jouletrace.analysis import calibration
from jouletrace.analysis.calibration import fit_channel, pulse_edges
from jouletrace.execution.steps.rates import best_rates
from jouletrace.profiler import ProfileSettings, profile_workload
from jouletrace.profiler.calibrate import LONGEST_S, SHORTEST_S, calibrate, pulse_train
from jouletrace.recording import board_store, calibrations
from jouletrace.recording.collector import Collector
from jouletrace.run import POWER
from jouletrace.simulator.boards import SimulatedGpu

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    """An H100 calibrated once: the Run, its folder and its cache."""
    folder = tmp_path_factory.mktemp("calibrated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOULETRACE_CACHE", str(folder / "cache"))
        run = calibrate("sim:h100?seed=2", seconds=30.0, folder=folder / "run", command="jouletrace calibrate")
    return run, folder


@pytest.fixture
def cache(calibrated, monkeypatch):
    monkeypatch.setenv("JOULETRACE_CACHE", str(calibrated[1] / "cache"))


def test_every_power_sensor_is_described_as_measured(calibrated):
    run, _ = calibrated
    device = SimulatedGpu("sim:h100?seed=2")
    hidden = device.truth.parameters()
    assert set(run.calibration[device.info.id]["channels"]) == {POWER, "power_instant_w", "power_average_w"}
    record = run.channel(device.info.id, POWER)
    assert record.origin == "calibrated"
    assert record.gapless is True
    assert record.period_s == pytest.approx(hidden.record_period_s, rel=0.01)
    # what counts is the mean delay of a reading: the middle of its window and what it trails by
    true_delay = hidden.record_lag_s + hidden.record_window_s / 2 + hidden.record_rise_s
    board_delay = hidden.slow_share * hidden.slow_s + (1 - hidden.slow_share) * hidden.fast_s
    assert true_delay - 0.001 <= record.delay_s <= true_delay + board_delay + 0.003
    average = run.channel(device.info.id, "power_average_w")
    assert average.window_s == pytest.approx(hidden.average_window_s, rel=0.02)
    # polled fast enough, the instant reading is determined as well as the record
    instant = run.calibration[device.info.id]["channels"]["power_instant_w"]
    assert instant["window_s"] == pytest.approx(hidden.instant_window_s, abs=0.005)
    assert instant["flags"] == []


def test_the_best_rates_are_those_of_the_gpu_and_are_stored_with_its_name(calibrated, cache):
    run, _ = calibrated
    device = SimulatedGpu("sim:h100?seed=2")
    hidden, peaks = device.truth.parameters(), {"fp32": 67e12, "tf32": 495e12, "fp8": 1979e12}
    rates = calibrations.stored_calibration(device)["rates"]
    assert rates == run.calibration[device.info.id]["rates"]
    assert (rates["device"], rates["name"]) == (device.info.id, device.info.name)
    assert rates["flops_per_s"].keys() == {"fp32", "tf32", "fp16", "bf16", "fp8"}
    assert rates["bytes_per_s"] == pytest.approx(3.35e12 * hidden.memory_efficiency, rel=0.05)
    for name, peak in peaks.items():  # a power cap may slow products by a third
        reached = rates["flops_per_s"][name] / (peak * hidden.pipe_efficiency)
        assert 0.6 < reached < 1.01, name


def test_a_gpu_without_pipes_of_a_format_has_no_best_rate_of_it():
    assert best_rates(SimulatedGpu("sim:v100"), None)["flops_per_s"].keys() == {"fp32", "tf32", "fp16", "bf16"}


@pytest.mark.parametrize("channel", [POWER, "power_instant_w"])
def test_only_the_record_that_energy_is_computed_from_warns_that_it_fits_no_model(calibrated, channel, monkeypatch):
    monkeypatch.setattr(calibration, "CHANNELS", (channel,))
    run, _ = calibrated
    there = np.array(run.samples["channel"].to_pylist()) == channel
    # of a polled channel each reading was seen several times
    reading = np.cumsum(np.diff(run.samples["value"].to_numpy()[there], prepend=0.0) != 0)
    kept = ~there
    kept[there] = np.random.default_rng(1).random(reading[-1] + 1)[reading] > 0.15
    dropping = replace(run, warnings=[], samples=run.samples.filter(pa.array(kept)))
    found = calibration.calibration_of(dropping, run.devices[0].id)
    assert "drops_samples" in found["channels"][channel]["flags"]
    assert [w.where for w in dropping.warnings if w.code == "unmodelled"] == [POWER] * (channel == POWER)


@pytest.mark.parametrize(("board", "record_s"), [("h100", 1.0), ("a100", 0.002)])
def test_readings_that_stand_still_are_asked_for_often(board, record_s, tmp_path):
    collector = Collector([SimulatedGpu(f"sim:{board}")], tmp_path, "0000", 0.002)
    asked = {channel.name: source.interval_s for source in collector.sources for channel in source.channels}
    assert asked[POWER] == record_s
    assert asked.get("power_instant_w", 0.002) == asked.get("power_average_w", 0.002) == 0.002


def test_the_run_is_saved_and_says_what_it_was(calibrated):
    run, folder = calibrated
    saved = load(folder / "run")
    assert saved.complete
    assert (saved.kind, saved.command) == ("calibrate", "jouletrace calibrate")
    assert saved.calibration == run.calibration
    assert len(pulse_edges(saved)) == 2 * len(pulse_train(30.0, 0))


def test_the_same_pulses_give_the_same_calibration_again(calibrated):
    run, _ = calibrated
    device = run.devices[0].id
    again = fit_channel(run, device, POWER)
    assert again.delay_s == run.calibration[device]["channels"][POWER]["delay_s"]
    assert fit_channel(run, device, "power_memory_w") is None


def test_later_runs_on_the_board_use_it(calibrated, cache):
    pytest.importorskip("torch")
    from boards import QUICK, mlp
    from jouletrace.workloads import ObjectWorkload

    settings = ProfileSettings(device="sim:h100?seed=2&run=9", **{**QUICK, "calibrated": True})
    run = profile_workload(ObjectWorkload(*mlp()), settings)
    assert "nominal_response" not in run.result("energy_total_j").flags
    assert run.channel(run.devices[0].id, POWER).origin == "calibrated"


@pytest.mark.slow  # that later runs use a calibration is tested above and below
def test_kernels_of_a_calibrated_gpu_have_their_energies(calibrated, cache):
    torch = pytest.importorskip("torch")
    from jouletrace.workloads import ObjectWorkload

    model = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 4096))
    workload = ObjectWorkload(model, (torch.randn(512, 4096),))
    board = "sim:h100?seed=2&cap=off&run=3"
    settings = ProfileSettings(device=board, detail="kernel", max_time_s=1.0, warmup_s=0.5, idle_s=0.6, latency_s=0.1)
    run = profile_workload(workload, settings)
    assert run.channel(run.devices[0].id, POWER).origin == "calibrated"
    assert "not_attributed" not in {warning.code for warning in run.warnings}
    assert run.result("closure_kernels").value == pytest.approx(1, abs=0.05)


def test_a_gpu_whose_sensor_is_another_has_another_calibration(calibrated, cache):
    assert calibrations.stored_calibration(SimulatedGpu("sim:h100?seed=2&run=5")) is not None
    assert calibrations.stored_calibration(SimulatedGpu("sim:h100?seed=2&sensor=sampled")) is None
    assert calibrations.stored_calibration(SimulatedGpu("sim:h100?seed=1")) is None


def test_another_driver_makes_a_calibration_void(calibrated, cache):
    device = SimulatedGpu("sim:h100?seed=2")
    device.info.driver = "another"
    assert calibrations.stored_calibration(device) is None


def test_a_device_without_power_cannot_be_calibrated(no_rapl):
    with pytest.raises(NotPossibleError, match="it can't be calibrated"):
        calibrate("cpu", seconds=10)


def test_pulses_are_irregular_and_of_all_lengths():
    train = pulse_train(45.0, 0)
    assert train.shape[1] == 2
    assert SHORTEST_S <= train.min() < 0.06
    assert 0.5 < train.max() <= LONGEST_S
    assert 45.0 <= train.sum() < 45.0 + 2 * LONGEST_S
    assert np.array_equal(train, pulse_train(45.0, 0))
    assert not np.array_equal(train[:5], pulse_train(45.0, 1)[:5])


def test_what_is_stored_of_a_gpu_adds_up():
    assert board_store.recall("GPU-1") == {}
    assert board_store.remember("GPU-1", deep_idle={"value": 70.0})
    assert board_store.remember("GPU-1", calibration={"driver": "1"})
    assert board_store.remember("GPU-1", calibration={"driver": "2"})
    assert board_store.recall("GPU-1") == {"deep_idle": {"value": 70.0}, "calibration": {"driver": "2"}}
    assert board_store.recall("GPU-2") == {}


def test_a_damaged_store_is_an_empty_one(own_cache):
    board_store.remember("GPU-1", a=1)
    (file,) = own_cache.iterdir()
    for text in ("{", "[1]", "\x00"):
        file.write_text(text)
        assert board_store.recall("GPU-1") == {}
    assert board_store.remember("GPU-1", b=2)
    assert board_store.recall("GPU-1") == {"b": 2}


def test_a_store_that_cannot_be_written_says_so(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JOULETRACE_CACHE", str(tmp_path / "file" / "cache"))
    assert not board_store.remember("GPU-1", a=1)


def test_where_the_store_is(monkeypatch, tmp_path):
    monkeypatch.delenv("JOULETRACE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert board_store.cache_folder() == tmp_path / "jouletrace"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert board_store.cache_folder() == tmp_path / ".cache" / "jouletrace"
