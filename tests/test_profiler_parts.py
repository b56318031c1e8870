"""``profile --detail kernel`` as a whole, on a simulated board whose every operator's cost is known."""

import json
from dataclasses import replace

import numpy as np
import pytest

from jouletrace import analysis
from jouletrace.errors import BadInputError
from jouletrace.profiler.profile import profile_workload
from jouletrace.profiler.progress import Silent
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.report.contract import to_json_object
from jouletrace.report.csv import render as render_csv
from jouletrace.report.results import Results
from jouletrace.report.table import render
from jouletrace.run import MODEL_UNIT, load, tables

pytestmark = pytest.mark.thorough

pytest.importorskip("transformers")

TINY = {"num_hidden_layers": "2"}


def settings(**changes):
    given = {"device": "sim:h100?cap=off&seed=3", "batch": 64, "mode": "graph", "config": TINY, "warmup_s": 3.0}
    return ProfileSettings(**{**given, "detail": "kernel", "detail_time_s": 110.0, **changes})


@pytest.fixture(scope="module")
def graph_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts") / "run"
    profile_workload("deit-t", settings(), folder=folder)
    return load(folder)


@pytest.fixture(scope="module")
def eager_run():
    return profile_workload("deit-t", settings(mode="eager", batch=1, detail_time_s=10.0))


def leaves(run):
    return Results(run).units("kernel")


def test_parts_and_gaps_make_the_whole_and_each_joule_is_listed_once(graph_run):
    closure = graph_run.result("closure_kernels")
    assert 0.98 < closure.value < 1.02
    assert closure.low <= 1 <= closure.high
    whole = graph_run.result("energy_total_j").value
    listed = sum(graph_run.result("energy_total_j", unit["id"]).value for unit in leaves(graph_run))
    # the whole has a pass of its own, on a die that is a few degrees cooler
    assert listed / whole == pytest.approx(closure.value, abs=0.02)
    shares = [graph_run.result("share", unit["id"]).value for unit in leaves(graph_run)]
    assert sum(shares) == pytest.approx(closure.value, abs=0.01)


def test_checks_of_the_experiment_are_stated(graph_run):
    for metric in ("perturbation", "null_experiment", "closure_kernels_time"):
        assert graph_run.result(metric).value == pytest.approx(1, abs=0.02)
    checks = to_json_object(graph_run)["checks"]
    assert checks["spike_recovered"]
    assert checks["additivity_residual"]
    assert checks["energy_resolvable_j"]["value"] > 0
    text = render(graph_run, detail="kernel", width=100)
    assert "Closure: parts and gaps / whole" in text
    assert "Spikes recovered" in text


def test_kernels_are_traced_and_belong_to_operators(graph_run):
    kernels = [unit for unit in graph_run.units.to_pylist() if unit["level"] == "kernel"]
    spans = graph_run.spans.to_pandas()
    traced = spans[spans["kind"] == "kernel"]
    assert set(traced["unit"]) == {unit["id"] for unit in kernels}
    assert all(unit["op"].startswith("aten.") for unit in kernels)
    iterations = spans[(spans["kind"] == "iteration") & (spans["lane"] == "tracing")]
    per_iteration = sum(unit["count"] for unit in kernels)
    assert len(traced) == per_iteration * len(iterations)
    for unit in kernels:
        own, op = (graph_run.result("time_traced_s", id).value for id in (unit["id"], unit["parent"]))
        assert 0 < own <= op


def test_figures_come_out_alike_when_computed_afresh(graph_run):
    before = graph_run.results.to_pylist()
    again = analysis.analyse(graph_run).results.to_pylist()
    assert [(row["unit"], row["metric"]) for row in again] == [(row["unit"], row["metric"]) for row in before]
    for one, other in zip(before, again, strict=True):
        assert (one["value"] is None) == (other["value"] is None)
        if one["value"] is not None:
            assert other["value"] == pytest.approx(one["value"], rel=1e-9)


def test_eager_mode_has_the_graphs_kernels_and_what_the_host_costs(eager_run):
    (host,) = [unit for unit in eager_run.units.to_pylist() if unit["name"] == "host gaps"]
    time = eager_run.result("time_s", host["id"])
    busy = sum(eager_run.result("time_traced_s", unit["id"]).value or 0 for unit in leaves(eager_run))
    assert time.value > busy  # at batch 1 the board waits for the host
    whole = eager_run.result("energy_total_j").value
    listed = [eager_run.result("energy_total_j", unit["id"]).value for unit in leaves(eager_run)]
    assert sum(value for value in listed if value is not None) == pytest.approx(whole, rel=0.05)


@pytest.mark.parametrize(
    ("name", "reason"), [("other operators (1)", "below_resolution"), ("operators of forward (1)", "measured_together")]
)
def test_a_member_of_a_pool_is_null_with_the_reason_and_the_smallest_energy_that_could_be_told(graph_run, name, reason):
    rows = graph_run.units.to_pylist()
    pool = next(row for row in rows if row["level"] == "op")
    pool["name"] = name
    member = {**pool, "id": 999, "parent": pool["id"], "name": "aten.tiny"}
    run = replace(graph_run, units=tables.from_rows([*rows, member], "units"))
    analysis.analyse(run)
    assert run.result("energy_total_j", 999).reason == reason
    small = run.result("energy_resolvable_j", 999).value
    assert small > 0 if reason == "below_resolution" else small is None
    assert 999 not in {unit["id"] for unit in leaves(run)}
    assert run.result("energy_total_j", pool["id"]) == graph_run.result("energy_total_j", pool["id"])


def test_all_formats_list_operators(graph_run):
    found = json.loads(json.dumps(to_json_object(graph_run)))
    assert {part["op"] for part in found["kernels"]} >= {"aten.addmm", "aten.gelu"}
    assert len(found["operators"]) >= 8
    rows = render_csv(graph_run, detail="kernel").splitlines()
    assert len(rows) == 2 + len(leaves(graph_run))


def test_idle_power_is_taken_off_for_the_active_energy(graph_run):
    idle = graph_run.result("baseline_context_idle_w").value
    for unit in leaves(graph_run)[:5]:
        total, active, time = (
            graph_run.result(name, unit["id"]).value for name in ("energy_total_j", "energy_active_j", "time_s")
        )
        assert active == pytest.approx(total - idle * time, rel=1e-6)


def test_a_workload_without_operators_is_named_where_its_parts_were_asked_for(tmp_path):
    told = []

    class Told(Silent):
        def begin(self, what, seconds):
            told.append(what)

    (tmp_path / "empty.py").write_text(
        "import torch\ndef nothing():\n    return torch.nn.Identity(), (torch.ones(1),)\n", encoding="utf-8"
    )
    name = f"{tmp_path / 'empty.py'}:nothing"
    settings = ProfileSettings(device="cpu", detail="kernel", detail_time_s=1.0, warmup_s=0.3, latency_s=0.1)
    with pytest.raises(
        BadInputError, match=r"empty\.py:nothing: --detail kernel: it calls no operator of torch on cpu"
    ):
        profile_workload(name, settings, progress=Told())
    assert told[-1] == "building the workload", "nothing was measured in vain"


def test_a_cpu_is_told_apart_by_time_where_it_has_no_power_sensor(tmp_path):
    torch = pytest.importorskip("torch")
    from jouletrace.workloads import ObjectWorkload

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.GELU())
    small = ObjectWorkload(model, (torch.randn(256, 64),), None)
    run = profile_workload(
        small, ProfileSettings(device="cpu", detail="kernel", detail_time_s=2.0, warmup_s=0.3, latency_s=0.2)
    )
    parts = leaves(run)
    assert sorted(unit["op"] for unit in parts if unit["op"]) == ["aten.addmm", "aten.gelu"]
    assert all(np.isfinite(run.result("time_s", unit["id"]).value) for unit in parts)
    assert not [unit for unit in parts if unit["name"] == "host gaps"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"l2": "cold"}, "--l2 cold"),
        ({"mode": "compile", "detail": "layer"}, "--detail layer with --mode compile"),
        ({"mode": "compile", "task": "train"}, "--task train with --mode compile"),
    ],
)
def test_what_does_not_go_with_parts_is_refused(changes, words):
    with pytest.raises(BadInputError, match=words):
        settings(**changes)


def test_the_models_figures_are_those_of_a_profile_without_detail(graph_run):
    plain = profile_workload("deit-t", settings(detail="model"))
    for metric in ("latency_s", "energy_total_j", "baseline_context_idle_w"):
        assert graph_run.result(metric, MODEL_UNIT).value == pytest.approx(plain.result(metric).value, rel=0.02)
