"""Whole profiles on simulated GPUs, compared with the truth, and on this machine's CPU."""

import itertools
import math
import time

import pytest

from boards import QUICK, mlp, profiled, true_energy_j, true_level_w
from covering import fewest
from jouletrace import NotPossibleError, load
from jouletrace.analysis.conditions import conditions
from jouletrace.devices import open_device
from jouletrace.errors import BadInputError, BrokenOffError, RecorderDiedError
from jouletrace.profiler import ProfileSettings, profile_workload
from jouletrace.profiler import profile as profiler
from jouletrace.profiler.prepare import check, prepare
from jouletrace.recording import board_store
from jouletrace.simulator.boards import PRESETS
from jouletrace.workloads import ObjectWorkload

pytest.importorskip("torch")

ENERGIES = (
    "energy_total_j",
    "energy_active_over_context_idle_j",
    "energy_active_over_deep_idle_j",
    "baseline_context_idle_w",
    "baseline_deep_idle_w",
    "power_w",
)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",  # the others have the sensors of one of these
    [pytest.param(name, marks=pytest.mark.slow) if name in ("a100-80", "h200-141") else name for name in PRESETS],
)
def test_every_energy_is_filled_and_its_interval_holds_the_truth(monkeypatch, name):
    run, device = profiled(monkeypatch, f"sim:{name}?seed=3")
    assert run.complete
    assert all(run.result(metric).value is not None for metric in ENERGIES)
    truth = true_energy_j(run, device)
    total = run.result("energy_total_j")
    assert total.low <= truth <= total.high
    assert total.half_width < 0.015 * truth
    time_s = run.result("iteration_time_s").value
    for kind, phase in (("context_idle", "context idle"), ("deep_idle", "deep idle")):
        level, true_w = run.result(f"baseline_{kind}_w"), true_level_w(run, device, phase)
        active = run.result(f"energy_active_over_{kind}_j")
        assert level.low <= true_w <= level.high
        assert active.low <= truth - true_w * time_s <= active.high
    ratio = run.result("counter_ratio")
    assert ratio.low <= 1.0 <= ratio.high


@pytest.mark.thorough
def test_without_noise_the_energy_is_right_to_a_tenth_of_a_percent(monkeypatch):
    run, device = profiled(monkeypatch, "sim:h100?noise=0")
    assert run.result("energy_total_j").value == pytest.approx(true_energy_j(run, device), rel=1e-3)


@pytest.mark.thorough
def test_under_a_power_cap_the_figures_are_those_of_the_capped_gpu(monkeypatch):
    run, device = profiled(monkeypatch, "sim:h100?cap=300")
    truth, total = true_energy_j(run, device), run.result("energy_total_j")
    assert total.low <= truth <= total.high
    assert run.result("power_w").value == pytest.approx(300, rel=0.05)
    assert conditions(run)["throttle_reasons"]["sw_power_cap"] > 0.9


@pytest.mark.thorough
def test_passes_come_in_order_and_do_not_overlap(monkeypatch):
    run, _ = profiled(monkeypatch, "sim:h100?run=4")
    phases = [row for row in run.spans.to_pylist() if row["kind"] == "phase"]
    apart = [row for row in phases if row["name"] != "latency"]
    assert [row["name"] for row in apart] == ["deep idle", "warm-up", "energy", "context idle after"]
    assert all(one["end_ns"] <= other["start_ns"] for one, other in itertools.pairwise(apart))
    (timed,) = (row for row in phases if row["name"] == "latency")
    assert apart[1]["start_ns"] < timed["start_ns"] < timed["end_ns"] <= apart[1]["end_ns"]
    energy = apart[2]
    for row in run.windows.to_pylist():
        assert energy["start_ns"] <= row["start_ns"] < row["end_ns"] <= energy["end_ns"]


@pytest.mark.thorough
def test_what_was_run_is_in_the_run(monkeypatch):
    run, _ = profiled(monkeypatch, "sim:h100", mode="graph", target_ci=0.02)
    assert run.workload["name"] == "mlp"
    assert run.workload["mode"] == "graph"
    assert run.workload["items"] == run.workload["batch"] == 4096
    assert run.settings["target_ci"] == 0.02
    assert run.settings["first_stage"] == 8
    assert run.workload["warm_up"]["latency_settled"] is True
    assert run.simulated


@pytest.mark.thorough
def test_a_deep_idle_that_was_seen_is_kept_for_later_runs(monkeypatch):
    run, device = profiled(monkeypatch, "sim:h100?seed=4")
    stored = board_store.recall(device.info.id)["deep_idle"]
    assert stored["value"] == run.result("baseline_deep_idle_w").value
    assert stored["time_ns"] == run.created_ns


@pytest.mark.thorough
def test_other_processes_on_the_device_are_named(monkeypatch):
    from jouletrace.devices import Process
    from jouletrace.simulator.boards import SimulatedGpu

    monkeypatch.setattr(SimulatedGpu, "processes", lambda self: [Process(4711, "python3"), Process(4712)])
    run, _ = profiled(monkeypatch, "sim:h100")
    (warning,) = [w for w in run.warnings if w.code == "other_processes"]
    assert "python3 (pid 4711), a process whose name can't be read;" in warning.message
    assert run.result("baseline_deep_idle_w").reason == "other_processes"
    assert run.result("energy_active_over_deep_idle_j").reason == "other_processes"


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_intervals_cover_the_truth_over_many_gpus(monkeypatch, name):
    covered = []
    for seed in range(40):
        run, device = profiled(monkeypatch, f"sim:{name}?seed={seed}&run={seed}")
        total = run.result("energy_total_j")
        covered.append(total.low <= true_energy_j(run, device) <= total.high)
    assert sum(covered) >= fewest(len(covered))


def cpu_profile(folder=None, target=None, **options):
    workload = ObjectWorkload(*(target or mlp(32, 4)), name="toy")
    settings = {"warmup_s": 0.3, "latency_s": 0.2, "dtype": "fp32", **options}
    return profile_workload(workload, ProfileSettings(device="cpu", **settings), folder=folder)


@pytest.mark.thorough
def test_on_a_cpu_without_power_latency_is_real_and_energy_has_a_reason(no_rapl):
    pause = 0.004
    began = time.monotonic()
    run = cpu_profile(target=(lambda x: time.sleep(pause), (1,)), dtype=None)
    latency = run.result("latency_s")
    assert pause < latency.value < (time.monotonic() - began) / latency.n * 2
    assert {run.result(metric).reason for metric in ENERGIES} == {"rapl_absent"}
    assert not run.simulated


@pytest.mark.thorough
def test_a_profile_with_a_folder_is_saved_with_its_figures(tmp_path):
    run = cpu_profile(tmp_path / "run")
    saved = load(tmp_path / "run")
    assert saved.complete
    assert saved.results.equals(run.results)
    assert len(saved.results) > 0


@pytest.mark.parametrize(
    ("device", "options", "said"),
    [
        ("cpu", {"mode": "graph"}, "--mode graph on cpu"),
        ("cpu", {"l2": "cold"}, "--l2 cold on cpu"),
        ("cpu", {"dtype": "tf32"}, "--dtype tf32 on cpu"),
        ("sim:h100", {"mode": "compile"}, "--mode compile on sim:h100"),
        ("sim:h100", {"l2": "cold"}, "--l2 cold on sim:h100: a simulated GPU has no cache to flush"),
    ],
)
def test_options_that_do_not_fit_the_device_are_refused_before_anything_runs(tmp_path, device, options, said):
    workload = ObjectWorkload(lambda: pytest.fail("it ran"), ())
    with pytest.raises(BadInputError, match=said):
        profile_workload(workload, ProfileSettings(device=device, **options), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_mode_that_needs_a_gpu_says_why_there_is_none_and_how_to_try():
    device = open_device("cpu")
    device.info.details["no_gpu"] = "the driver is not installed"
    with pytest.raises(BadInputError, match=r"^--mode graph.*; --device sim:h100 .*; no GPU: the driver is not"):
        check(device, ProfileSettings(mode="graph"))


@pytest.mark.thorough
def test_a_workload_that_runs_out_of_memory_is_not_possible_here(tmp_path):
    def hungry(x):
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0)")

    with pytest.raises(NotPossibleError, match=r"out of memory.*2\.00 GiB"):
        cpu_profile(target=(hungry, (1,)), dtype=None)


@pytest.mark.thorough
def test_a_workload_that_fails_in_the_middle_leaves_an_incomplete_run(tmp_path):
    calls = iter(range(40))

    def fails_late(x):
        if next(calls, None) is None:
            raise RuntimeError("no more")

    with pytest.raises(BrokenOffError, match="its call raised RuntimeError: no more"):
        cpu_profile(tmp_path / "run", target=(fails_late, (1,)), dtype=None)
    run = load(tmp_path / "run")
    assert not run.complete
    assert "no more" in run.warnings[-1].message
    assert run.workload["items"] == 1


@pytest.mark.thorough
def test_a_recorder_that_dies_ends_the_profile(monkeypatch, tmp_path):
    from jouletrace.recording import InProcessRecorder

    monkeypatch.setattr(InProcessRecorder, "check", lambda self: (_ for _ in ()).throw(RecorderDiedError("killed")))
    settings = ProfileSettings(device="sim:h100", **QUICK)
    with pytest.raises(RecorderDiedError):
        profiler.profile_workload(ObjectWorkload(*mlp()), settings, folder=tmp_path / "run")
    assert not load(tmp_path / "run").complete


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch": 0}, "--batch 0"),
        ({"seq_len": -1}, "--seq-len -1"),
        ({"target_ci": 0.0}, "--target-ci 0"),
        ({"target_ci": 1.5}, "--target-ci 1.5"),
        ({"target_ci": float("nan")}, "--target-ci nan"),
        ({"max_time_s": 0.0}, "--max-time 0"),
        ({"warmup_s": -1.0}, "--warmup -1"),
        ({"mode": "fast"}, "--mode fast: must be one of eager, graph, compile"),
        ({"label_smoothing": "x"}, "--label-smoothing 'x': must be a number"),
        *(
            ({"label_smoothing": s, "task": "train"}, f"--label-smoothing {s:g}: must be")
            for s in (1.0, -0.1, math.nan)
        ),
        ({"optimizer": "lion", "task": "train"}, "--optimizer lion: must be one of adamw, sgd"),
        ({"batch": "8"}, "--batch '8': must be a whole number"),
        ({"batch": 1.5}, "--batch 1.5: must be a whole number"),
        ({"seed": True}, "--seed True: must be a whole number"),
        ({"warmup_s": "5"}, "--warmup '5': must be a number"),
        ({"dtype": "int8"}, "--dtype int8"),
        ({"l2": "hot"}, "--l2 hot"),
        ({"l2": "cold", "detail": "layer"}, "--l2 cold with --detail layer"),
        ({"l2": "cold", "task": "generate"}, "--l2 cold with --task generate"),
        ({"task": "fly"}, "--task fly"),
        ({"detail": "atom"}, "--detail atom"),
        ({"first_stage": 1}, "at least 2 windows"),
        ({"max_time_s": float("inf")}, "--max-time inf"),
    ],
)
def test_settings_that_make_no_sense_name_the_option(options, said):
    with pytest.raises(BadInputError, match=said):
        ProfileSettings(**options)


def test_phases_of_an_inference_are_refused_before_a_device_is_opened(monkeypatch):
    monkeypatch.setattr(profiler, "open_device", lambda spec: pytest.fail("a device was opened"))
    with pytest.raises(BadInputError, match="deit-tiny: --detail phase: an inference has no phases"):
        profile_workload("deit-t", ProfileSettings(detail="phase"))


@pytest.mark.thorough
@pytest.mark.parametrize("device", ["cpu", "sim:h100"])
def test_a_call_of_the_users_is_refused_phases_before_its_whole_is_measured(monkeypatch, device):
    monkeypatch.setattr(profiler, "warm_up", lambda *_: pytest.fail("it was run"))
    with pytest.raises(BadInputError, match="Sequential: --detail phase: an inference has no phases"):
        profile_workload(ObjectWorkload(*mlp(64, 8)), ProfileSettings(device=device, detail="phase", idle_s=0.1))


def forces():
    """A call that computes a gradient in what is no training, and its input."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))

    def call(x):
        with torch.inference_mode(False), torch.enable_grad():
            x = x.clone().requires_grad_(True)
            return torch.autograd.grad(model(x).sum(), x)[0]

    return ObjectWorkload(call, (torch.randn(8, 32),), "forces")


@pytest.mark.thorough
def test_an_inference_that_differentiates_has_its_phases():
    run = profile_workload(forces(), ProfileSettings(device="sim:h100", detail="phase", detail_time_s=2.0, **QUICK))
    phases = [unit["name"] for unit in run.units.to_pylist() if unit["level"] == "phase"]
    assert phases[:2] == ["forward", "backward"]


def test_an_inference_that_differentiates_is_not_refused_on_a_cpu():
    device = open_device("cpu")
    try:
        prepared = prepare(forces(), device, ProfileSettings(device="cpu", detail="phase"))
        assert {call.phase for call in prepared.traceable().listing().calls} == {"forward", "backward"}
        prepared.step.close()
    finally:
        device.close()
