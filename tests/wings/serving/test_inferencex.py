"""Parts of InferenceX: of its client, with the times of a load, and aggregates without any."""

import json

import numpy as np
import pytest

from import_logs import codes
from jouletrace.analysis import analyse, budgets
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import ImportOptions, read_files, recognise
from jouletrace.report import render
from jouletrace.run import Parts, save
from jouletrace.run import load as load_run
from serving_runs import START_NS, Truth, client_object, energy_between, level_of, serving_run

TRUTH = Truth()


@pytest.fixture(scope="module")
def load():
    """A load of 60 s from second 5 of a record on: its power as CSV, its requests and the true record."""
    run, record = serving_run(TRUTH, [level_of(TRUTH, 4, 60, (50, 500), (20, 100), np.random.default_rng(1))])
    stamps, watts = run.series("GPU-served", "power_w")
    csv = "time_ns,power_w\n" + "".join(f"{t},{w:.3f}\n" for t, w in zip(stamps, watts, strict=True))
    return run.requests.to_pylist(), csv, record


AGGREGATE = {
    "hw": "h100-dgxc",
    "tp": 8,
    "ep": 1,
    "dp_attention": "false",
    "conc": 64,
    "model": "org/model",
    "framework": "vllm",
    "precision": "fp8",
    "isl": 1024,
    "osl": 1024,
    "is_multinode": False,
    "tput_per_gpu": 900.0,
    "output_tput_per_gpu": 450.0,
    "input_tput_per_gpu": 450.0,
    "median_ttft": 0.12,
    "p99_tpot": 0.03,
    "median_intvty": 50.0,
    "power_valid": 1,
    "avg_power_w": 600.0,
    "avg_total_gpu_power_w": 4800.0,
    "joules_per_output_token": 1.3333,
    "joules_per_total_token": 0.6667,
}


def imported(tmp_path, found, csv=None, options=None):
    (tmp_path / "result.json").write_text(json.dumps(found))
    files = [tmp_path / "result.json"]
    if csv is not None:
        (tmp_path / "power.csv").write_text(csv)
        files.append(tmp_path / "power.csv")
    return analyse(read_files(files, options or ImportOptions()))


def loads(run):
    results = Parts(run)
    return results, [unit.id for unit in results.units("load")]


@pytest.mark.thorough
def test_a_clients_result_joins_a_power_record_by_the_times_of_its_load(tmp_path, load):
    rows, csv, record = load
    found = client_object(rows)
    run = imported(tmp_path, found, csv)
    assert recognise(tmp_path / "result.json") == "inferencex"
    results, (unit,) = loads(run)
    edges = (found[f"benchmark_{edge}_time_unix"] - START_NS / 1e9 for edge in ("start", "end"))
    true_j = energy_between(record, *edges)
    assert results[unit].get("energy_total_j").value == pytest.approx(true_j, rel=2e-3)
    per_token = results[unit].get("energy_per_output_token_j")
    assert per_token.value == pytest.approx(true_j / found["total_output_tokens"], rel=2e-3)
    assert per_token.low < per_token.value < per_token.high
    assert results[unit].get("energy_per_request_j").value == pytest.approx(true_j / len(rows), rel=2e-3)
    assert results[unit].get("power_w").value == pytest.approx(true_j / found["duration"], rel=2e-3)
    assert results[unit].get("ttft_p99_s").value == 0.48
    assert results[unit].get("e2e_p99_s").value == 2.5
    assert results[unit].get("ttft_p50_s").method == "stated"
    assert results[unit].get("requests_per_s").value == pytest.approx(found["request_throughput"])
    assert unit in [one.unit for one in budgets(run)]


@pytest.mark.thorough
def test_it_says_what_the_file_lacks_and_what_the_window_is(tmp_path, load):
    rows, csv, _ = load
    run = imported(tmp_path, client_object(rows), csv)
    (said,) = [one.message for one in run.warnings if one.code == "no_single_requests"]
    assert said == "totals without single requests: energy is that of the whole load with its ramps; no bills"
    text = render([run])
    assert "64 at once" in text
    assert said in " ".join(text.split())


def test_figures_are_the_same_when_computed_again(tmp_path, load):
    rows, csv, _ = load
    run = imported(tmp_path, [client_object(rows), AGGREGATE], csv)
    results, units = run.results, run.units
    assert analyse(run).results.equals(results)
    assert run.units.equals(units)


@pytest.mark.thorough
def test_an_offset_moves_the_load(tmp_path, load):
    rows, csv, record = load
    found = client_object(rows)
    for edge in ("start", "end"):
        found[f"benchmark_{edge}_time_unix"] -= 3600.0
    apart = imported(tmp_path, found, csv)
    assert "no_common_time" in {one.code for one in apart.warnings}
    results, (unit,) = loads(apart)
    assert results[unit].get("energy_total_j").value is None
    joined = imported(tmp_path, found, csv, ImportOptions(offsets_s={"result.json": 3600.0}))
    results, (unit,) = loads(joined)
    edges = (found[f"benchmark_{edge}_time_unix"] + 3600 - START_NS / 1e9 for edge in ("start", "end"))
    assert results[unit].get("energy_total_j").value == pytest.approx(energy_between(record, *edges), rel=2e-3)


def test_an_aggregate_has_what_it_states_and_joins_no_record(tmp_path, load):
    _, csv, _ = load
    other = {**AGGREGATE, "conc": 128, "median_ttft": 0.3}
    run = imported(tmp_path, [AGGREGATE, other, AGGREGATE], csv)
    assert recognise(tmp_path / "result.json") == "inferencex"
    results, units = loads(run)
    names = [unit.name for unit in results.units("load")]
    common = "h100-dgxc, vllm, fp8, 1024/1024 tokens"
    assert names == [f"{common}, 64 at once", f"{common}, 128 at once", f"{common}, 64 at once (2)"]
    first = units[0]
    assert results[first].get("energy_per_output_token_j").value == 1.3333
    assert results[first].get("energy_per_output_token_j").low is None
    assert results[first].get("power_w").value == 4800.0
    assert results[first].get("tokens_per_s").value == 3600.0
    assert (results[first].get("ttft_p50_s").value, results[first].get("tpot_p99_s").value) == (0.12, 0.03)
    codes = {one.code: one.message for one in run.warnings}
    assert codes["no_load_times"].startswith("no times: a power record can't be joined")


def test_power_that_inferencex_calls_invalid_is_left_out(tmp_path):
    run = imported(tmp_path, {**AGGREGATE, "power_valid": 0})
    results, (unit,) = loads(run)
    assert results[unit].get("energy_per_output_token_j").value is None
    assert results[unit].get("ttft_p50_s").value == 0.12
    assert "power_not_valid" in {one.code for one in run.warnings}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"tput_per_gpu": 1, "conc": ', "not JSON"),
        ('[{"tput_per_gpu": 1, "conc": 4}, 5', "not JSON"),
        ('[1, {"x": "tput_per_gpu"}, {"conc": "conc"}]', "no result of InferenceX"),
    ],
)
def test_damaged_results_are_refused_in_one_line(tmp_path, text, said):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(BadInputError, match=said) as caught:
        read_files([tmp_path / "r.json"], ImportOptions(format="inferencex"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"benchmark_start_time_unix": "now"},
        {"benchmark_end_time_unix": 1.0},
        {"completed": None},
        {"total_output_tokens": -1},
    ],
)
def test_a_load_without_sound_times_or_totals_has_no_energy(tmp_path, load, changes):
    rows, csv, _ = load
    run = imported(tmp_path, client_object(rows, **changes), csv)
    results, (unit,) = loads(run)
    assert results[unit].get("energy_total_j").value is None
    assert "no_load_times" in {one.code for one in run.warnings}


def test_a_load_without_tokens_has_no_energy_per_token(tmp_path, load):
    rows, csv, _ = load
    run = imported(tmp_path, client_object(rows, total_output_tokens=0), csv)
    results, (unit,) = loads(run)
    assert results[unit].get("energy_total_j").value > 0
    assert results[unit].get("energy_per_output_token_j").reason == "no_requests"


HUGE = 10**400
"""An integer that no float holds."""


def kind(value):
    """A short name of a wrong value."""
    return f"{type(value).__name__}-{str(value)[:5]}"


@pytest.mark.thorough
@pytest.mark.parametrize("key", sorted({*AGGREGATE, "pp", "pcp"}))
@pytest.mark.parametrize("value", [HUGE, -HUGE, {"a": 1}, [1], True, "x", -4, 0.5, None], ids=kind)
def test_a_value_of_any_type_in_any_place_ends_in_a_run_or_one_line(tmp_path, key, value):
    text = json.dumps({**AGGREGATE, key: value})
    (tmp_path / "result.json").write_text(text)
    run = analyse(read_files([tmp_path / "result.json"]))
    for row in Parts(run).units("load"):
        assert len(row.name) < 120
        assert "True" not in row.name
        assert "{" not in row.name


@pytest.mark.parametrize(
    "changes",
    [
        {key: value}
        for key in ("benchmark_start_time_unix", "completed", "max_concurrency", "median_ttft_ms", "request_rate")
        for value in (HUGE, -HUGE, {"a": 1}, True)
    ],
)
def test_a_value_of_any_type_in_a_clients_file_ends_in_a_run(tmp_path, load, changes):
    rows, _, _ = load
    run = imported(tmp_path, client_object(rows, **changes))
    (name,) = [unit.name for unit in Parts(run).units("load")]
    assert name in ("64 at once", "load 1")
    assert ("no_concurrency" in codes(run)) == ("max_concurrency" in changes)


@pytest.mark.parametrize("count", [-4, 0, "8", HUGE, True, 2.0, {}], ids=kind)
@pytest.mark.parametrize("key", ["tp", "pp", "pcp"])
def test_without_a_number_of_gpus_there_is_no_rate_of_all(tmp_path, key, count):
    run = imported(tmp_path, {**AGGREGATE, key: count})
    results, (unit,) = loads(run)
    found = results[unit].get("tokens_per_s")
    assert found is None or found.value is None
    assert "no_gpu_count" in codes(run)


@pytest.mark.parametrize("flag", [True, "true", "True", 1])
def test_several_nodes_have_no_rate_of_all(tmp_path, flag):
    results, (unit,) = loads(imported(tmp_path, {**AGGREGATE, "is_multinode": flag}))
    found = results[unit].get("tokens_per_s")
    assert found is None or found.value is None


def test_one_node_may_be_stated_as_text(tmp_path):
    results, (unit,) = loads(imported(tmp_path, {**AGGREGATE, "is_multinode": "false"}))
    assert results[unit].get("tokens_per_s").value == 3600.0


@pytest.mark.parametrize("conc", [True, -4, 0, HUGE, "64", {"a": 1}], ids=kind)
def test_a_concurrency_that_is_none_is_not_printed(tmp_path, conc):
    run = imported(tmp_path, {**AGGREGATE, "conc": conc})
    (name,) = [unit.name for unit in Parts(run).units("load")]
    assert name.endswith(", load 1")
    assert "concurrency" not in run.workload["serving"]["levels"][0]
    assert "no_concurrency" in codes(run)


def test_names_are_cut(tmp_path):
    run = imported(tmp_path, {**AGGREGATE, "hw": "h" * 3_000, "model": "m" * 3_000})
    (name,) = [unit.name for unit in Parts(run).units("load")]
    assert len(name) < 120
    assert name.endswith("…, 64 at once")
    assert len(run.workload["serving"]["model"]) == 80


@pytest.mark.parametrize("found", [{"request_throughput": None}, {"request_throughput": "fast"}])
def test_a_result_without_a_figure_is_none(tmp_path, found):
    (tmp_path / "r.json").write_text(json.dumps({**found, "benchmark_start_time_unix": None}))
    with pytest.raises(BadInputError, match="no result of InferenceX"):
        read_files([tmp_path / "r.json"], ImportOptions(format="inferencex"))


@pytest.mark.parametrize("flag", ["0", "false", "False", False, 0, 0.0, "no", 2])
def test_power_is_valid_only_if_the_file_says_so(tmp_path, flag):
    run = imported(tmp_path, {**AGGREGATE, "power_valid": flag})
    results, (unit,) = loads(run)
    assert results[unit].get("energy_per_output_token_j").value is None
    assert "power_not_valid" in codes(run)


@pytest.mark.parametrize("flag", ["1", "true", True, 1.0])
def test_power_that_is_valid_in_any_spelling_is_kept(tmp_path, flag):
    results, (unit,) = loads(imported(tmp_path, {**AGGREGATE, "power_valid": flag}))
    assert results[unit].get("energy_per_output_token_j").value == 1.3333


def test_a_name_that_utf_8_cannot_hold_is_escaped_before_the_analysis(tmp_path):
    (tmp_path / "result.json").write_text(json.dumps({**AGGREGATE, "hw": "a\ud800b"}))
    run = analyse(read_files([tmp_path / "result.json"]))
    first = render([run])
    assert "no request was answered" not in first
    save(run, tmp_path / "run")
    assert render([load_run(tmp_path / "run")]) == first
    assert "a\\ud800b" in first


def test_zero_watts_of_inferencex_are_not_measured(tmp_path):
    result = {"tput_per_gpu": 100.0, "conc": 8, "output_tput_per_gpu": 50.0, "tp": 4, "median_ttft": 0.1}
    zeros = {"avg_total_gpu_power_w": 0.0, "total_gpu_energy_j": 0, "joules_per_output_token": 0.0}
    (tmp_path / "r.json").write_text(json.dumps(result | zeros))
    run = read_files([tmp_path / "r.json"])
    assert "not_measured" in codes(run)
    stated = run.workload["serving"]["levels"][0]["stated"]
    assert not [name for name in stated if name.startswith(("energy", "power"))]
