"""Intervals of a single profile are of the workload: they hold the scatter between runs, as stored."""

import sys

import numpy as np
import pytest

from covering import fewest
from jouletrace.analysis import analyse, budgets
from jouletrace.analysis.between_runs import OF_WINDOWS
from jouletrace.attribution import Prior
from jouletrace.campaign import merge
from jouletrace.devices import open_device
from jouletrace.recording import SCATTER
from jouletrace.recording.calibrations import SIMULATED_SCATTER, state_scatter
from jouletrace.report import to_json_object
from jouletrace.run import STORED_SCATTER, Parts, load, tables
from jouletrace.stats import student
from late_hosts import late_host, stepped
from places import REPOSITORY
from records import iterations, make_run, phases, readings
from shown import methods_of

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import judging
import measurands
import stated

BUNDLED = REPOSITORY / "src" / "jouletrace" / "bundled"
WIDENED = (
    "energy_total_j",
    "power_w",
    "iteration_time_s",
    "throughput_per_s",
    "energy_active_over_context_idle_j",
    "energy_active_over_deep_idle_j",
)


def of_workload(name="deit-b-64-graph-h100.zip", scatter=SCATTER):
    """A recorded Run, analysed with a stored scatter between runs."""
    run = load(BUNDLED / name)
    run.stored["between_runs"] = scatter
    return analyse(run)


@pytest.fixture(scope="module")
def alone():
    return analyse(load(BUNDLED / "deit-b-64-graph-h100.zip"))


def test_intervals_of_the_whole_hold_the_stored_scatter_and_those_within_the_run_do_not(alone):
    run = of_workload()
    joules = 0.002 * alone.result("energy_total_j").value
    for name in WIDENED:
        one, other = alone.result(name), run.result(name)
        u = joules if "energy" in name else 0.002 * one.value
        assert other.value == one.value
        assert other.half_width == pytest.approx(np.hypot(one.half_width, student(0.975, 9) * u), rel=0.01), name
        assert STORED_SCATTER in Parts(run).get(name).flags
    for row in alone.results.to_pylist():
        if row["metric"] not in WIDENED:
            assert run.result(row["metric"], row["unit"]) == alone.result(row["metric"], row["unit"])


def test_the_budget_and_the_object_state_the_measurand(alone):
    run = of_workload()
    found = {one.metric: one for one in budgets(run)}
    assert len(found) == 4
    for one in found.values():
        (term,) = (term for term in one.terms if "between runs" in term.source)
        assert term.stated
        assert term.source.endswith("stored from 10 others")
        whole = found["power_w" if one.metric == "power_w" else "energy_total_j"].figure.value
        assert term.u == pytest.approx(0.002 * whole)  # above idle it is the same in J
    assert not any("between runs" in term.source for term in budgets(alone)[0].terms)
    model = to_json_object(run)["model"]
    assert model["energy_j"]["total"]["of"] == model["power_w"]["of"] == "workload"
    assert model["other"]["iteration_time_s"]["of"] == "workload"
    assert model["baseline_w"]["context_idle"]["of"] == model["counter_ratio"]["of"] == "run"
    assert to_json_object(alone)["model"]["energy_j"]["total"]["of"] == "run"
    assert "10 runs of DeiT-B, batch 1" in methods_of(run)
    assert "between runs" not in methods_of(alone)


@pytest.mark.thorough
def test_repeated_runs_show_their_scatter_themselves(alone):
    later = load(BUNDLED / "deit-b-64-graph-h100.zip")
    columns = {"samples": ["time_ns"], "spans": ["start_ns", "end_ns"], "windows": ["start_ns", "end_ns"]}
    for name, some in columns.items():
        table = later.table(name)
        for column in some:
            table = tables.changed(table, column, (table[column].to_numpy() + 10**12).tolist())
        setattr(later, name, table)
    both = merge([load(BUNDLED / "deit-b-64-graph-h100.zip"), later])
    both.stored["between_runs"] = SCATTER
    analyse(both)
    assert both.result("energy_total_j").method == "runs"
    assert not any(STORED_SCATTER in Parts(both).get(name).flags for name in WIDENED)


@pytest.mark.thorough
def test_a_load_whose_windows_scatter_has_runs_that_do(alone, monkeypatch):
    within = alone.result("energy_total_spread_within_pct").value
    calm = of_workload().result("energy_total_j").half_width
    monkeypatch.setattr("jouletrace.analysis.between_runs.STEADY", 0.006 * within)
    found = of_workload().result("energy_total_j")
    share = np.hypot(0.002, OF_WINDOWS * 0.8 * within / 100)  # 0.6 of the scatter is a steady host's
    expected = np.hypot(alone.result("energy_total_j").half_width, student(0.975, 9) * share * found.value)
    assert found.half_width == pytest.approx(expected) != pytest.approx(calm)
    monkeypatch.setattr("jouletrace.analysis.between_runs.STEADY", 0.0101 * within)
    assert of_workload().result("energy_total_j").half_width == pytest.approx(calm)


@pytest.mark.thorough
def test_a_late_host_makes_time_and_total_uncertain_and_active_energy_not():
    run, watts = late_host()
    active, total = (run.result(f"energy_{name}_j") for name in ("active_over_context_idle", "total"))
    assert active.low < 0.8 < active.high
    # but for what idle power has more between iterations of 13 ms
    assert active.half_width == pytest.approx(1.96 * Prior.excess_w * run.result("iteration_time_s").value, abs=0.01)
    assert active.half_width < 0.25 * total.half_width
    assert total.half_width > 0.1
    power, time = run.result("power_w"), run.result("iteration_time_s")
    scatter = student(0.975, 9) * OF_WINDOWS * watts.std(ddof=1)
    assert scatter < power.half_width < 1.5 * scatter
    assert time.half_width / time.value > 2 * power.half_width / power.value


def relative(run, metric):
    found = run.result(metric)
    return found.half_width / found.value


@pytest.mark.thorough
@pytest.mark.parametrize("share", [0.012, 0.018])
def test_power_is_known_no_worse_than_energy_and_time_together(share):
    """At a power cap the clock moves time and energy of windows against each other: power moves by twice as much."""
    moves = share * np.array([-1.6, 0.4, 1.3, -0.7, 0.9, -0.2, -1.1, 1.0])
    run = stepped(5.0 + np.append(0.0, np.cumsum(0.5 * (1 + moves))), 600.0 * (1 - 2 * moves))
    power, energy, time = (relative(run, name) for name in ("power_w", "energy_total_j", "iteration_time_s"))
    assert time < power < energy + time
    stated = run.result("energy_total_j").value / run.result("iteration_time_s").value
    assert run.result("power_w").value == pytest.approx(stated, rel=1e-12)


@pytest.mark.thorough
def test_active_energy_of_a_constant_time_is_as_uncertain_as_the_total():
    """Idle energy of a constant time is constant: beside the idle level's own error, nothing differs."""
    run = stepped(np.arange(5.0, 9.1, 0.5), [400, 420, 390, 410, 430, 405, 415, 395], noise=0.01)
    active, total = (run.result(f"energy_{name}_j") for name in ("active_over_context_idle", "total"))
    assert active.half_width == pytest.approx(total.half_width, rel=0.01)
    assert total.half_width > 0.05 * total.value


def test_a_throughput_that_no_window_shows_has_the_stored_scatter():
    run = make_run(
        readings(lambda t: 300.0 + 0 * t, 6, noise=0.3),
        spans=phases(("latency", 1.0, 3.0)) + iterations(100, 0.01, 1.0),
    )
    run.workload["items"] = 8
    plain = analyse(run).result("throughput_per_s")
    run.stored["between_runs"] = SCATTER
    found = analyse(run).result("throughput_per_s")
    assert found.half_width == pytest.approx(
        np.hypot(plain.half_width, student(0.975, 9) * 0.002 * found.value), rel=0.02
    )


@pytest.mark.thorough
def test_what_is_not_known_of_idle_power_is_in_active_energy_over_the_whole_time():
    run, _ = late_host(idle_after=126.0)
    level, time = run.result("baseline_context_idle_w"), run.result("iteration_time_s")
    expected = np.hypot(
        late_host()[0].result("energy_active_over_context_idle_j").half_width, level.half_width * time.value
    )
    assert run.result("energy_active_over_context_idle_j").half_width == pytest.approx(expected, rel=0.05)
    assert level.half_width > 2.0


@pytest.mark.thorough
def test_parts_are_compared_with_the_whole_of_their_run():
    run = of_workload("deit-b-64-layers-h200.zip", {**SCATTER, "sd_pct": 5.0})
    assert run.result("energy_total_j").half_width > 0.1 * run.result("energy_total_j").value
    assert run.result("closure_kernels").half_width < 0.03  # 5 % of scatter would make it 0.1


def test_a_gpu_has_a_stored_scatter_and_a_processor_none(alone):
    for name, expected in (("sim:h100", SIMULATED_SCATTER), ("cpu", None)):
        device = open_device(name)
        run = load(BUNDLED / "deit-b-64-graph-h100.zip")
        state_scatter(run, device)
        device.close()
        assert run.stored.get("between_runs") == expected
    energies = np.array(stated.TEN_RUNS[1].split(), float)
    assert SCATTER["sd_pct"] == pytest.approx(100 * energies.std(ddof=1) / energies.mean(), abs=0.005)
    assert SCATTER["runs"] == len(energies)


@pytest.mark.slow
def test_intervals_hold_the_mean_over_runs_of_simulated_gpus():
    """Figures of 200 GPUs: docs/results/accuracy-spans.md."""
    cases = [measurands.of_gpu("h100", seed) for seed in range(1, 17)]
    hits = {name: judging.judged(case[name] for case in cases).held.sum() for name in cases[0]}
    assert hits["this run"] >= fewest(len(cases))
    assert hits["this workload, stored figure"] >= fewest(len(cases))
    assert hits["this workload, without the term"] < fewest(len(cases)), "the term isn't needed"


@pytest.mark.thorough
def test_figures_of_a_token_are_as_uncertain_as_those_of_the_whole():
    run = load(REPOSITORY / "docs" / "results" / "runs" / "llama-generate-h200.zip")
    run.stored["between_runs"] = SCATTER
    analyse(run)
    for whole, part in (("energy_total_j", "energy_per_token_j"), ("iteration_time_s", "tokens_per_s")):
        relative = [run.result(metric).half_width / run.result(metric).value for metric in (whole, part)]
        assert relative[1] == pytest.approx(relative[0], rel=0.02)
        assert STORED_SCATTER in run.result(part).flags
