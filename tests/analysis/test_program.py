"""Programs under ``run`` on H200s, from their recordings."""

import numpy as np
import pytest

from jouletrace.analysis import analyse
from jouletrace.report import render
from jouletrace.run import SAMPLE_RATE, Parts, load, tables
from jouletrace.run.metrics import PROGRAM_TIME
from jouletrace.run.recording_names import BEFORE, WAITING
from places import REPOSITORY

RUNS, DATA = REPOSITORY / "docs" / "results" / "runs", REPOSITORY / "tests" / "data"
CUPY = DATA / "runs" / "cupy-run-h200.zip"


def analysed(place):
    run = load(place)
    run.stored[SAMPLE_RATE] = {
        run.devices[0].id: {"value": run.result(SAMPLE_RATE).value}
    }  # looked for near what it was
    return analyse(run)


@pytest.fixture(scope="module")
def cupy():
    return analysed(CUPY)


def unit(run, level, name):
    return next(row["id"] for row in run.units.to_pylist() if row["level"] == level and row["name"] == name)


@pytest.mark.thorough
def test_a_cupy_program_by_kernel_and_idle(cupy):
    run = cupy
    closure = run.result("closure_kernels")
    assert closure.value == pytest.approx(1.0009, abs=0.002)
    assert closure.low < 1 < closure.high
    whole = run.result("energy_total_j").value
    assert whole == pytest.approx(3742, rel=0.002)
    before, idle = (run.result("energy_total_j", unit(run, "op", name)).value for name in (BEFORE, "idle"))
    busy = run.result("energy_total_j", unit(run, "layer", "(outside of modules)")).value
    assert before == pytest.approx(71, abs=5)
    assert before + idle + busy == pytest.approx(whole, rel=0.005)


@pytest.mark.thorough
@pytest.mark.parametrize("calls", [1, 40])
def test_a_program_states_the_energy_of_a_step(calls):
    run = load(CUPY)
    run.workload = {"name": "train.py", "steps": {"module": "Net", "calls": calls}}
    analyse(run)
    each, whole = run.result("energy_per_step_j"), run.result("energy_total_j")
    said = render([run]).replace("\u00a0", " ")
    if calls == 1:  # which the whole is
        assert each.value is None
        assert "steps of" not in said
        return
    assert (each.value, each.half_width) == pytest.approx((whole.value / 40, whole.half_width / 40))
    assert "\n40 steps of Net, 93.5" in said
    assert " J each\n" in said


@pytest.mark.slow  # another recording for the same analysis
def test_a_training_by_range_and_module():
    run = analysed(RUNS / "resnet50-run-h200.zip")
    assert run.result("closure_kernels").value == pytest.approx(0.999, abs=0.004)
    for name, joules in (("forward", 2335), ("backward", 4250)):
        energy = run.result("energy_total_j", unit(run, "layer", name))
        assert energy.value == pytest.approx(joules, rel=0.01)
        assert energy.half_width < 0.01 * energy.value
    for number in (1, 2, 3, 4):
        layer = run.result("energy_total_j", unit(run, "layer", f"forward.layer{number}"))
        assert layer.half_width < 0.08 * layer.value


@pytest.mark.thorough
@pytest.mark.parametrize(
    "path", sorted([*RUNS.glob("*-run-*.zip"), *(DATA / "runs").glob("*-run-*.zip")]), ids=lambda path: path.stem
)
def test_the_time_of_a_stored_program_is_that_from_its_start_to_its_end(path):
    run = load(path)
    span = next(row for row in run.spans.to_pylist() if row["kind"] == "phase" and row["name"] == "program")
    assert Parts(run).time.value == pytest.approx((span["end_ns"] - span["start_ns"]) / 1e9)
    assert run.result("time_s").value == run.result(PROGRAM_TIME).value == Parts(run).time.value


@pytest.mark.thorough
def test_kernels_that_ran_outside_of_the_analysed_part_have_their_time_and_are_not_idle(cupy):
    run = load(CUPY)
    run.stored[SAMPLE_RATE] = {run.devices[0].id: {"value": run.result(SAMPLE_RATE).value}}
    rows = run.units.to_pylist()
    like = next(row for row in rows if row["level"] == "kernel" and row["op"] is None)
    new = max(row["id"] for row in rows) + 1
    run.units = tables.from_rows([*rows, {**like, "id": new, "name": "evaluation"}], "units")
    run.workload["recordings"][0]["seconds"].append([new, -1, 0.5])
    analyse(run)
    assert run.result("time_s", new).value == 0.5
    assert run.result("energy_total_j", new).reason == "not_resolved"
    idle = [one.result("time_s", unit(one, "op", "idle")).value for one in (cupy, run)]
    assert idle[0] - idle[1] == pytest.approx(0.5, rel=0.1)


def test_ranks_of_a_training_on_two_gpus():
    run = load(RUNS / "ddp-run-h200.zip")
    analyse(run)
    closure = run.result("closure_kernels")
    assert closure.value == pytest.approx(1.0037, abs=0.0005)
    assert closure.low < 1 < closure.high
    ranks = {gpu["name"]: gpu for gpu in run.workload["recordings"]}
    assert ranks["rank-1"]["last"] / ranks["rank-1"]["collectives"] == pytest.approx(0.64, abs=0.01)
    waited = run.result("energy_total_j", unit(run, "phase", WAITING))  # of the first rank
    assert waited.value == pytest.approx(212, abs=2)
    for device in run.devices:
        time, joules = run.series(device.id, "energy_counter_j")
        steps = np.flatnonzero(np.diff(joules) > 0) + 1
        first, last = steps[0], steps[-1]
        stamps, watts = run.series(device.id, "power_w")
        within = np.interp(np.linspace(time[first], time[last], 100_000), stamps, watts).mean()
        record = within * (time[last] - time[first]) / 1e9
        assert record == pytest.approx(joules[last] - joules[first], rel=0.001)
