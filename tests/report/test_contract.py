"""The JSON object: it validates for every Run, and everything in it is described."""

import json
import math

import pytest
from jsonschema import Draft202012Validator

from compare_runs import side
from jouletrace import compare
from jouletrace.report import json_schema, to_json_object
from jouletrace.run import Estimate, Run, load, save, tables
from jouletrace.stats import expanded
from make_runs import ODD, all_runs, cpu_run, monitor_run, profile_run, result
from places import REPOSITORY
from shown import name_of, rows

SCHEMA = json.loads(json_schema())
VALIDATOR = Draft202012Validator(SCHEMA)
RUNS = all_runs()
LAYERS = REPOSITORY / "src" / "jouletrace" / "bundled" / "deit-b-64-layers-h200.zip"


def errors(found):
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(found)]


def test_the_schema_is_one():
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", RUNS)
def test_every_run_validates(name):
    assert errors(json.loads(json.dumps(to_json_object(RUNS[name]), allow_nan=False))) == []


@pytest.mark.parametrize("name", RUNS)
def test_a_loaded_run_gives_the_same_object(name, tmp_path):
    run = RUNS[name]
    before = to_json_object(run)
    after = to_json_object(load(save(run, tmp_path / "run")))
    if not run.complete:  # what is on disk says in other words that the end is missing
        assert [[warning["code"] for warning in found["warnings"]] for found in (after, before)] == 2 * [["incomplete"]]
        after["warnings"] = before["warnings"]
    assert after == before


def test_the_object_is_that_of_the_design():
    found = to_json_object(profile_run(kernels=2))
    assert list(found["model"]["latency_ms"]) >= ["median"]
    figure = {"value", "low", "high", "reason", "of", "budget"}
    model = found["model"]
    assert set(model["latency_ms"]) == {
        *("median", "p25", "p75", "iqr", "mean", "std", "min", "max", "p90", "p95", "p99", "n", "reason"),
        "percentiles",
    }
    stated = {"value": 4.652, "low": 4.652 - 0.021, "high": 4.652 + 0.021, "reason": None}
    assert model["energy_j"]["total"] == {**stated, "of": "run", "budget": None}
    for figures in (model["energy_j"], model["baseline_w"], found["checks"]):
        assert all(set(estimate) == figure for estimate in figures.values())
    assert set(model["energy_j"]) == {"total", "active_over_context_idle", "active_over_deep_idle"}
    assert set(model["baseline_w"]) == {"context_idle", "deep_idle"}
    assert set(model["power_w"]) == set(model["other"]["perturbation"]) == figure
    assert model["throughput_per_s"] == pytest.approx(64 / 0.006712)
    kernel, other = rows(found, "code", "kernel")[:2]
    named = ["path", "count", "time_s", "power_w", "energy_j", "energy_active_j", "share", "flags", "other"]
    assert list(kernel) == named
    assert name_of(kernel, "op") == "aten::addmm"
    assert kernel["share"]["value"] == pytest.approx(0.375)
    assert other["flags"] == ["split"]
    assert {"name", "period_ms", "window_ms", "lag_ms", "gapless", "gain_pct"} <= set(found["sensors"][0])
    assert found["sensors"][0]["period_ms"] == 20
    assert set(found["conditions"]) == {"clocks_mhz", "temperature_c", "throttle_reasons", "power_limit_w"}


def test_the_headline_is_the_energy_that_the_verdict_states_with_its_absolute_uncertainty():
    first = to_json_object(profile_run(kernels=2))["headline"]
    assert (first["metric"], first["path"], first["figure"]["value"]) == ("energy_total_j", [], 4.652)
    gain_j, offset_j = 0.05 * 4.652 / math.sqrt(3), 3 * 6.712e-3 / math.sqrt(3)
    assert first["absolute"] == pytest.approx(expanded(0.021, [math.sqrt(3) * u for u in (gain_j, offset_j)]), rel=1e-3)
    watched = to_json_object(monitor_run())["headline"]
    assert watched["absolute"] > 0.95 * 0.05 * watched["figure"]["value"]
    assert to_json_object(cpu_run())["headline"] is None


def test_an_interval_of_repeats_is_of_the_workload():
    run = profile_run()
    run.settings["repeats"] = 5
    model = to_json_object(run)["model"]
    assert model["energy_j"]["total"]["of"] == "workload"
    assert model["energy_j"]["active_over_deep_idle"]["of"] in ("workload", None)


def test_energies_are_in_joules_and_times_in_seconds():
    run = profile_run(kernels=2)
    layer = rows(to_json_object(run), "module")[0]
    assert layer["time_s"]["value"] == run.result("time_s", 1).value
    assert layer["time_s"]["high"] == run.result("time_s", 1).high
    assert layer["energy_j"]["value"] == run.result("energy_total_j", 1).value


def test_what_is_missing_is_null_with_its_reason_never_zero():
    found = to_json_object(cpu_run())
    assert found["model"]["energy_j"]["total"]["value"] is None
    assert found["model"]["energy_j"]["total"]["reason"] == "no_power_sensor"
    assert found["model"]["latency_ms"]["median"] == pytest.approx(6.74556)
    assert found["conditions"]["temperature_c"] is None
    empty = to_json_object(Run())
    assert empty["model"]["latency_ms"]["median"] is None
    assert empty["model"]["latency_ms"]["reason"] == "not_measured"
    assert empty["parts"]["whole"][0]["energy_j"]["reason"] == "not_measured"
    assert empty["devices"] == []


def test_a_latency_without_single_iterations_keeps_its_median():
    run = profile_run()
    run.spans = tables.empty("spans")
    latency = to_json_object(run)["model"]["latency_ms"]
    assert latency["median"] == pytest.approx(6.712)
    assert latency["p99"] is None
    assert latency["reason"] is None
    assert errors(to_json_object(run)) == []


def test_flags_of_the_model_are_kept_by_path():
    flags = to_json_object(profile_run())["model"]["flags"]
    assert flags == {"energy_j.active_over_deep_idle": ["stored"], "baseline_w.deep_idle": ["stored"]}


def test_figures_without_a_place_of_their_own_are_kept():
    run = profile_run()
    row = result(0, "latency_between_runs_s", Estimate(0.1, 0.05, 0.2, 10))
    run.results = tables.from_rows([*run.results.to_pylist(), row], "results")
    found = to_json_object(run)
    assert found["model"]["other"]["latency_between_runs_s"]["value"] == 0.1
    devices = rows(to_json_object(monitor_run()), "whole", "device")
    assert devices[1]["other"]["power_working_w"]["value"] == 400.0
    assert devices[0]["other"]["power_idle_w"]["reason"] == "always_busy"


def test_budgets_are_filled_where_the_run_has_them():
    run = profile_run(kernels=2)
    stated = [{**row, "budget": '{"drift": 0.01}'} if row["unit"] < 2 else row for row in run.results.to_pylist()]
    run.results = tables.from_rows(stated, "results")
    found = to_json_object(run)
    assert errors(found) == []
    first, second = rows(found, "module")[:2]
    for figure in (found["model"]["energy_j"]["total"], first["energy_j"], first["time_s"]):
        assert figure["budget"] == {"drift": 0.01}
    assert second["energy_j"]["budget"] is None


def test_every_stored_figure_is_somewhere_in_the_object():
    """Nothing is silently lost: each value of ``results`` is there again."""
    for run in RUNS.values():
        values = set(numbers(to_json_object(run)))
        for row in run.results.to_pylist():
            if row["value"] is not None and row["metric"] != "latency_s":
                assert row["value"] in values, row


def test_what_is_not_finite_is_null_and_says_so():
    run = Run(results=tables.from_rows([{"unit": 0, "metric": "power_w", "value": math.nan}], "results"))
    run.workload = {"name": "x", "odd": math.inf}
    found = to_json_object(run)
    assert found["model"]["power_w"]["reason"] == "not_finite"
    assert found["workload"]["odd"] is None
    assert errors(found) == []


@pytest.mark.thorough
def test_top_keeps_the_costliest_rows_and_all_that_is_idle():
    found = to_json_object(profile_run(kernels=5), top=2)
    assert [row["count"] for row in rows(found, "code", "kernel")][:2] == [5, 4]
    assert [name_of(row) for row in rows(found, "module")] == ["4", "3"]
    every, few = (to_json_object(load(LAYERS), top=top)["parts"] for top in (None, 3))
    idle = [row for row in every["code"] if row["path"][0]["kind"] == "idle"]
    assert idle
    assert [row for row in few["code"] if row["path"][0]["kind"] == "idle"] == idle
    assert len(few["code"]) == 3 + len(idle)
    assert few["whole"] == every["whole"]


def test_odd_names_are_kept_as_they_are():
    found = to_json_object(RUNS["odd_names"])
    assert found["workload"]["name"] == ODD
    assert "".join(step["name"] for step in rows(found, "code")[0]["path"] if step["kind"] == "module") == ODD


@pytest.mark.parametrize("name", RUNS)
def test_every_field_is_described_in_the_schema(name):
    undescribed = []

    def walk(value, schema, path):
        if "$ref" in schema:
            schema = {**SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]], **schema}
        for option in schema.get("anyOf", []):
            if "$ref" in option:
                schema = {**SCHEMA["$defs"][option["$ref"].rsplit("/", 1)[1]], **schema}
        if "description" not in schema:
            undescribed.append(f"{path} has no description")
        if isinstance(value, dict):
            free = schema.get("additionalProperties")
            if free is not None:  # what its container says holds for each
                free = {"description": schema["description"], **free}
            for key, inner in value.items():
                known = schema.get("properties", {}).get(key, free)
                if known is None:
                    if path not in ("$.workload", "$.devices[].details"):
                        undescribed.append(f"{path}.{key}")
                else:
                    walk(inner, known, f"{path}.{key}")
        for inner in value if isinstance(value, list) else []:
            walk(inner, {"description": schema["description"], **schema.get("items", {})}, f"{path}[]")

    found = to_json_object(RUNS[name], compared=compare(side(1.0, 1.1), side(1.2, 1.3), fail_if=["energy>5%"]))
    assert errors(found) == []
    walk(found, SCHEMA, "$")
    assert undescribed == []


def test_only_a_run_of_two_sides_has_a_comparison():
    compared = compare(side(1.0), side(1.2))
    assert "comparison" not in to_json_object(profile_run())
    assert to_json_object(profile_run(), compared=compared)["comparison"]["rows"][0]["verdict"] == "inconclusive"


def test_the_schema_refuses_a_figure_without_value_and_reason():
    found = to_json_object(profile_run())
    figure = found["model"]["power_w"]
    for value, reason in ((None, None), (1.0, "too_short")):
        found["model"]["power_w"] = {**figure, "value": value, "low": None, "high": None, "reason": reason}
        assert len(errors(found)) == 1


def numbers(value):
    if isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner)
    elif isinstance(value, float):
        yield value
