"""Profiles by layer and kernel on simulated GPUs whose sensors sample, against what each kernel drew."""

import numpy as np
import pytest

from jouletrace.analysis import analyse
from jouletrace.analysis.divided import divided
from jouletrace.devices import open_device
from jouletrace.profiler import ProfileSettings, profile_workload
from jouletrace.profiler import profile as profiling
from jouletrace.report.by import render
from jouletrace.run import load
from step_truth import mean_step

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("known_rates", "known_average")]

QUICK = {"warmup_s": 2.0, "latency_s": 0.1, "idle_s": 1.0, "detail": "kernel", "detail_time_s": 8.0}


@pytest.fixture(scope="module")
def profiled(tmp_path_factory, known_rates, known_average):
    """A Run, and the GPU that it was recorded on."""
    boards = []

    def opened(spec):
        boards.append(open_device(spec))
        return boards[-1]

    folder = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profiling, "open_device", opened)
        settings = ProfileSettings(device="sim:h100?seed=3", mode="graph", batch=32, **QUICK)
        run = profile_workload("deit-t", settings, folder=folder)
    return run, boards[0], folder


def rows(run, level):
    return [unit for unit in run.units.to_pylist() if unit["level"] == level]


def drawn(run, board):
    """Energy of each kernel in an iteration by name and shapes: what the GPU drew beside the recording."""
    from jouletrace.execution.steps import simulate_workload
    from jouletrace.workloads import WorkloadOptions, resolve

    _, step = simulate_workload(resolve("deit-t"), WorkloadOptions(batch=32), open_device("sim:h100?seed=3"), "graph")
    window = next(row for row in run.windows.to_pylist() if row["variant"] == "untouched")
    truth = mean_step(board, step.schedule, window["start_ns"], window["end_ns"])
    found = {}
    for kernel, joules, seconds in zip(step.schedule.kernels, truth.kernel_j, truth.kernel_s, strict=True):
        before = found.get((kernel.name, kernel.shapes), (0.0, 0.0))
        found[kernel.name, kernel.shapes] = before[0] + joules, before[1] + seconds
    return found


def test_kernels_hold_the_energy_that_they_drew(profiled):
    run, board, _ = profiled
    truth = drawn(run, board)
    energy, low, high = dict.fromkeys(truth, 0.0), dict.fromkeys(truth, 0.0), dict.fromkeys(truth, 0.0)
    for unit in rows(run, "kernel"):
        found = run.result("energy_total_j", unit["id"])
        if found.value is None:
            continue
        key = unit["name"], unit["shapes"]
        energy[key], low[key], high[key] = energy[key] + found.value, low[key] + found.low, high[key] + found.high
    known = [key for key, value in energy.items() if value]
    share = sum(truth[key][0] for key in known) / sum(joules for joules, _ in truth.values())
    assert share > 0.9
    errors = [energy[key] / truth[key][0] - 1 for key in known if truth[key][0] > 0.05 * sum(energy.values())]
    assert np.abs(errors).max() < 0.04
    held = [low[key] * 0.99 <= truth[key][0] <= high[key] * 1.01 for key in known]
    assert np.mean(held) >= 0.75  # 95 % of those within a run's scatter of 1 %, of some ten rows


def test_times_are_those_of_an_untouched_iteration(profiled):
    run, board, _ = profiled
    truth = drawn(run, board)
    seconds = dict.fromkeys(truth, 0.0)
    for unit in rows(run, "kernel"):
        seconds[unit["name"], unit["shapes"]] += run.result("time_s", unit["id"]).value
    assert seconds == pytest.approx({key: time for key, (_, time) in truth.items()}, rel=0.01)


def test_the_parts_make_the_whole(profiled):
    run, _, _ = profiled
    closure = run.result("closure_layers")
    assert closure.value == pytest.approx(1, abs=0.02)
    assert closure.low <= 1 <= closure.high
    top = [unit["id"] for unit in rows(run, "layer") if unit["parent"] == 0]
    idle = next(unit["id"] for unit in rows(run, "op") if unit["name"] == "idle")
    whole = run.result("energy_total_j").value
    known = [run.result("energy_total_j", id).value or 0.0 for id in (*top, idle)]  # the classifier takes 0.4 %
    assert sum(known) == pytest.approx(whole, rel=0.03)
    times = sum(run.result("time_s", id).value for id in (*top, idle))
    assert times == pytest.approx(run.result("iteration_time_s").value, rel=1e-6)


def test_operators_of_equal_layers_are_one_row_and_layers_are_known_each(profiled):
    run, _, _ = profiled
    modules = {unit["module"] for unit in rows(run, "op") if unit["op"]}
    assert "deit.layers.*.mlp.fc1" in modules
    layers = {unit["name"]: unit["id"] for unit in rows(run, "layer")}
    blocks = [run.result("energy_total_j", layers[f"deit.layers.{i}"]) for i in range(12)]
    assert all(block.value is not None and block.half_width < 0.1 * block.value for block in blocks)
    inside = sum(block.value for block in blocks)
    assert run.result("energy_total_j", layers["deit.layers"]).value == pytest.approx(inside, rel=1e-9)


def test_operators_state_their_counted_work_and_their_energy_by_it(profiled):
    """DeiT-T: 12 layers of width 192 and 768 in the MLP, 198 tokens, batch 32, half precision."""
    run, _, _ = profiled
    fc1 = next(unit for unit in rows(run, "op") if unit["module"].endswith("mlp.fc1"))
    flops, moved, energy = (run.result(name, fc1["id"]) for name in ("flops", "bytes_moved", "energy_total_j"))
    tokens = 32 * 198
    assert flops.value == 12 * 2 * tokens * 192 * 768
    assert moved.value == 12 * 2 * (tokens * 192 + tokens * 768 + 192 * 768 + 768)
    for metric, amount in (("energy_per_flop_j", flops.value), ("energy_per_byte_j", moved.value)):
        each = run.result(metric, fc1["id"])
        found, expected = ((one.value, one.low, one.high) for one in (each, energy.scaled(1 / amount)))
        assert found == pytest.approx(expected, rel=1e-9)
    gelu = next(unit for unit in rows(run, "op") if unit["op"] == "aten.gelu")
    assert run.result("flops", gelu["id"]).reason == "no_formula"
    assert run.result("bytes_moved", gelu["id"]).value == 12 * 2 * 2 * tokens * 768
    kernel = next(unit for unit in rows(run, "kernel") if unit["parent"] == fc1["id"])
    assert run.result("flops", kernel["id"]).value == flops.value


def test_a_division_by_operator_sums_their_work(profiled, monkeypatch):
    run, _, _ = profiled
    by_op = {one.path[0].name: one for one in divided(run, ["op"])}
    ops = [unit for unit in rows(run, "op") if unit["op"] == "aten.addmm"]
    flops = by_op["addmm"].get("flops").value
    assert flops == sum(run.result("flops", unit["id"]).value for unit in ops)
    assert by_op["addmm"].get("energy_per_flop_j").value == pytest.approx(
        by_op["addmm"].get("energy_total_j").value / flops
    )
    assert "flops" not in by_op["idle"].figures
    assert not any("flops" in one.figures for one in divided(run, ["kernel"]))
    assert render(run, divided(run, ["op"]), ["op"], "csv").startswith("op,time_s,")
    monkeypatch.setenv("COLUMNS", "120")
    assert "pJ/FLOP" in render(run, divided(run, ["op"]), ["op"], "table")


def test_a_saved_run_gives_the_same_figures_again(profiled):
    run, _, folder = profiled
    again = analyse(load(folder))
    assert again.results.equals(run.results)
    assert again.units.equals(run.units)
    assert len(run.waveform) >= 50
    assert again.waveform.equals(run.waveform)


def test_without_a_power_sensor_there_are_times():
    settings = ProfileSettings(device="cpu", batch=1, **{**QUICK, "warmup_s": 0.2, "detail_time_s": 0.3})
    run = profile_workload("deit-t", settings)
    ops = {unit["op"]: unit["id"] for unit in rows(run, "op")}
    assert run.result("time_s", ops["aten.addmm"]).value > 0
    assert run.result("energy_total_j", ops["aten.addmm"]).value is None or run.devices[0].kind == "cpu"
    assert any(unit["name"] == "deit.layers.0" for unit in rows(run, "layer"))


@pytest.mark.slow  # that sensor is tested in attribution/test_averaging, a profile above
def test_a_sensor_that_sees_a_quarter_of_the_time_resolves_large_operators():
    settings = ProfileSettings(device="sim:a100?seed=2", mode="graph", batch=16, **{**QUICK, "detail_time_s": 16.0})
    run = profile_workload("deit-b", settings)
    assert run.result("closure_kernels").value == pytest.approx(1, abs=0.03)
    whole = run.result("energy_total_j").value
    large = [found for unit in rows(run, "op") if (found := run.result("energy_total_j", unit["id"])).value]
    fine = [one.value for one in large if one.half_width < 0.15 * one.value]
    assert sum(fine) > 0.6 * whole
