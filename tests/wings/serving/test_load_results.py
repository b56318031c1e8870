"""Parts of other load generators, joined with a power record by time."""

import json

import numpy as np
import pytest

from commands import command
from jouletrace.analysis import analyse
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import ImportOptions, read_files, recognise
from jouletrace.report import render
from jouletrace.run import Parts
from scheduled_runs import Law, drawn, scheduled_level, scheduled_run, streams_of
from serving_runs import START_NS, Truth, aiperf_line, client_object, level_of, serving_run, vllm_object
from shown import rows as table_rows

TRUTH = Truth()


@pytest.fixture(scope="module")
def load():
    """Requests of a load that begins 5 s after the record, and its power as CSV."""
    level = level_of(TRUTH, 4, 60, (50, 500), (20, 100), np.random.default_rng(1))
    run, _ = serving_run(TRUTH, [level])
    return run.requests.to_pylist(), power_csv(run)


def power_csv(run):
    stamps, watts = run.series("GPU-served", "power_w")
    return "time_ns,power_w\n" + "".join(f"{t},{w:.3f}\n" for t, w in zip(stamps, watts, strict=True))


def true_j(rows):
    """Of a request in its steady state, by the formula with the idle and busy power of the load's own."""
    run, _ = serving_run(TRUTH, [level_of(TRUTH, 4, 60, (50, 500), (20, 100), np.random.default_rng(1))])
    return Parts(analyse(run))[1].get("energy_per_request_j").value


@pytest.mark.thorough
def test_aiperf_s_requests_join_a_power_record_by_time(tmp_path, load):
    rows, csv = load
    (tmp_path / "profile_export.jsonl").write_text("\n".join(map(aiperf_line, rows)) + "\n")
    (tmp_path / "power.csv").write_text(csv)
    assert recognise(tmp_path / "profile_export.jsonl") == "aiperf"
    run = analyse(read_files([tmp_path / "profile_export.jsonl", tmp_path / "power.csv"]))
    results = Parts(run)
    (unit,) = results.units("load")
    assert results[unit.id].get("energy_per_request_j").value == pytest.approx(true_j(rows), rel=0.01)
    assert results.get("energy_output_token_j").value == pytest.approx(TRUTH.output_j, rel=0.05)
    assert len(run.requests) == len(rows)
    assert "Loads, in their steady state" in render([run])


def test_aiperf_s_warm_up_failures_and_damaged_lines_are_reported(tmp_path, load):
    rows, _ = load
    lines = [aiperf_line(row, phase="warmup" if n < 3 else "profiling") for n, row in enumerate(rows)]
    failed = json.loads(lines[10])
    failed.update(error={"code": 503, "message": "overloaded", "type": "HTTPError"}, metrics={})
    lines[10] = json.dumps(failed)
    lines[11] = lines[11][:50]
    (tmp_path / "p.jsonl").write_text("\n".join(lines) + "\n")
    run = read_files([tmp_path / "p.jsonl"])
    codes = {one.code: one.message for one in run.warnings}
    assert codes["warm_up"].startswith("3 requests of the warm-up")
    assert codes["no_record"] == "1 line is no record of a request, at line 12"
    assert len(run.requests) == len(rows) - 4
    (bad,) = [row for row in run.requests.to_pylist() if row["status"] == "failed"]
    assert (bad["error"], bad["first_ns"]) == ("overloaded", None)


def test_time_per_output_token_is_that_between_tokens(tmp_path, load, capsys):
    """The first token is what the time to the first token is of: n tokens have n - 1 times between them."""
    rows, _ = load
    paced = [
        {**row, "output_tokens": 3 + k % 2, "last_ns": row["first_ns"] + (2 + k % 2) * 25_000_000}
        for k, row in enumerate(rows)
    ]
    (tmp_path / "p.jsonl").write_text("\n".join(map(aiperf_line, paced)) + "\n")
    assert command(capsys, "import", str(tmp_path / "p.jsonl"), "-o", str(tmp_path / "run")).code == 0
    shown = json.loads(command(capsys, "show", str(tmp_path / "run"), "--json").out)
    (one,) = table_rows(shown, "request")
    assert [one["other"][f"tpot_{p}_s"]["value"] for p in ("p50", "p95")] == pytest.approx([0.025, 0.025])


@pytest.mark.thorough
def test_vllm_s_requests_are_placed_by_their_date(tmp_path, load):
    rows, csv = load
    (tmp_path / "result.json").write_text(json.dumps(vllm_object(rows)))
    (tmp_path / "power.csv").write_text(csv)
    assert recognise(tmp_path / "result.json") == "vllm_bench"
    run = analyse(read_files([tmp_path / "result.json", tmp_path / "power.csv"], ImportOptions(time_zone="UTC")))
    codes = {one.code for one in run.warnings}
    assert "clock_assumed" in codes
    assert "time_zone_assumed" not in codes
    first = min(row["sent_ns"] for row in run.requests.to_pylist())
    assert abs(first - rows[0]["sent_ns"]) < 1.1e9
    results = Parts(run)
    (unit,) = results.units("load")
    assert unit.name == "4/s"
    assert results[unit.id].get("energy_per_request_j").value == pytest.approx(true_j(rows), rel=0.05)


def test_several_loads_of_vllm_and_of_several_files_are_loads_of_one_run(tmp_path, load):
    rows, _ = load
    later = [{**row, **{k: row[k] + 100_000_000_000 for k in ("sent_ns", "first_ns", "last_ns")}} for row in rows]
    second = vllm_object(later, request_rate="inf", max_concurrency=8)
    (tmp_path / "both.json").write_text(json.dumps(vllm_object(rows)) + "\n" + json.dumps(second))
    (tmp_path / "p.jsonl").write_text("\n".join(map(aiperf_line, rows)) + "\n")
    run = analyse(read_files([tmp_path / "both.json", tmp_path / "p.jsonl"]))
    assert [one["name"] for one in run.workload["serving"]["levels"]] == ["4/s", "8 at once", "p"]
    assert [unit.name for unit in Parts(run).units("load")] == ["4/s", "8 at once", "p"]
    assert len(run.requests) == 3 * len(rows)


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory):
    """A Run of a scheduler with its log, its answers, and its power as CSV."""
    law = Law(most_new=4096)
    levels = [scheduled_level(law, *drawn(np.random.default_rng(1), 4, 30, (50, 400), (20, 100)))]
    run, *_ = scheduled_run(law, levels)
    place = tmp_path_factory.mktemp("power") / "power.csv"
    place.write_text(power_csv(run))
    return run, [np.diff(one.chunks_ns) for one in streams_of(levels)], place


def aiperf_of(run, intervals_ns, unit="ms"):
    scale = {"ms": 1e6, "us": 1e3}[unit]
    return "\n".join(
        aiperf_line(row, metrics={"inter_chunk_latency": {"value": list(one / scale), "unit": unit}})
        for row, one in zip(run.requests.to_pylist(), intervals_ns, strict=True)
    )


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["aiperf", "vllm"])
def test_times_of_chunks_show_the_steps(tmp_path, scheduled, form):
    run, intervals_ns, power = scheduled
    path = tmp_path / f"{form}.json"
    if form == "aiperf":
        path.write_text(aiperf_of(run, intervals_ns, "us"))
    else:
        itls = [list(one / 1e9) for one in intervals_ns]
        path.write_text(json.dumps(vllm_object(run.requests.to_pylist(), itls=itls)))
    alone = read_files([path], ImportOptions(time_zone="UTC"))
    late_s = (run.requests["sent_ns"][0].as_py() - alone.requests["sent_ns"][0].as_py()) / 1e9  # by vLLM's date
    found = analyse(read_files([path, power], ImportOptions(time_zone="UTC", offsets_s={str(path): late_s})))
    assert found.steps["new_tokens"].to_pylist() == run.steps["new_tokens"].to_pylist()
    results, true = Parts(found), Parts(analyse(run))
    assert results.get("energy_new_token_j").method == "streamed steps"
    for metric in ("energy_new_token_j", "energy_sequence_j"):
        # a record of other tools may be late by as much as a step takes
        late = results.get(metric)
        assert late.value == pytest.approx(true.get(metric).value, abs=1.5 * late.half_width)
        assert late.half_width < 0.7 * late.value  # its lag is unknown by more than a spacing


def test_steps_of_two_files_are_those_of_one_run_unless_they_overlap(tmp_path, scheduled):
    run, intervals_ns, _ = scheduled
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path in paths:
        path.write_text(aiperf_of(run, intervals_ns))
    one = len(read_files(paths[:1]).steps)
    assert one == len(run.steps)
    assert len(read_files(paths, ImportOptions(offset_s=100.0)).steps) == 2 * one
    assert len(read_files(paths, ImportOptions(offset_s=1.0)).steps) == 0


@pytest.mark.parametrize("value", [[-1.0], [float("nan")], [1e300], [1e308], "x", ["x"], [None], {"a": 1}, 5])
def test_impossible_times_of_chunks_show_no_steps(tmp_path, scheduled, value):
    run, intervals_ns, _ = scheduled
    lines = aiperf_of(run, intervals_ns).splitlines()
    record = json.loads(lines[0])
    record["metrics"]["inter_chunk_latency"]["value"] = value
    (tmp_path / "p.jsonl").write_text("\n".join([json.dumps(record), *lines[1:]]))
    found = read_files([tmp_path / "p.jsonl"])
    assert len(found.requests) == len(run.requests)
    assert len(found.steps) == 0


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_marks_of_an_encoding_change_nothing(tmp_path, load, encoding):
    rows, _ = load
    lines, result = "".join(f"{aiperf_line(row)}\n" for row in rows), json.dumps(vllm_object(rows))
    total = json.dumps(client_object(rows))
    for form, text in (("aiperf", lines), ("vllm_bench", result), ("inferencex", total)):
        (tmp_path / form).write_text(text, encoding=encoding)
        assert recognise(tmp_path / form) == form
        assert read_files([tmp_path / form]).workload["serving"]["levels"]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_handful_of_requests_is_a_load_that_no_one_trusts(tmp_path, load, capsys, count):
    (tmp_path / "p.jsonl").write_text("".join(f"{aiperf_line(row)}\n" for row in load[0][:count]))
    assert command(capsys, "import", str(tmp_path / "p.jsonl"), "-o", str(tmp_path / "run")).code == 0
    shown = command(capsys, "show", str(tmp_path / "run"))
    assert (shown.code, shown.err) == (0, "")
    assert "trust: no" in shown.out


def test_an_offset_places_requests(tmp_path, load):
    rows, _ = load
    (tmp_path / "p.jsonl").write_text("\n".join(map(aiperf_line, rows)) + "\n")
    run = read_files([tmp_path / "p.jsonl"], ImportOptions(offset_s=2.5))
    assert run.requests["sent_ns"][0].as_py() == rows[0]["sent_ns"] + 2_500_000_000
    assert rows[0]["sent_ns"] > START_NS


NONE = dict.fromkeys(("ttfts", "itls", "input_lens", "output_lens", "errors"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"start_times": None}, "run vllm bench serve with --save-detailed"),
        ({"ttfts": [1.0]}, "its lists of requests differ in length"),
        ({"date": "today"}, "its date 'today' is not of the form"),
        ({**NONE, "start_times": ["x"] * 3}, "no request with times"),
    ],
)
def test_damaged_results_of_vllm_are_refused_in_one_line(tmp_path, load, changes, said):
    rows, _ = load
    (tmp_path / "r.json").write_text(json.dumps(vllm_object(rows, **changes)))
    with pytest.raises(BadInputError, match=said) as caught:
        read_files([tmp_path / "r.json"], ImportOptions(format="vllm_bench"))
    assert "\n" not in str(caught.value)


def test_results_without_requests_are_refused(tmp_path, load):
    (tmp_path / "p.jsonl").write_text(aiperf_line(load[0][0], phase="warmup") + "\n")
    with pytest.raises(BadInputError, match="no request with times"):
        read_files([tmp_path / "p.jsonl"])


@pytest.mark.parametrize(
    "value", [10**400, float("nan"), float("inf"), -4, "x", {"a": 1}, True], ids=lambda value: str(value)[:5]
)
@pytest.mark.parametrize("key", ["max_concurrency", "duration", "request_rate"])
def test_a_value_of_any_type_in_vllm_s_file_ends_in_a_run(tmp_path, load, key, value):
    rows, _ = load
    (tmp_path / "result.json").write_text(json.dumps(vllm_object(rows, max_concurrency=8) | {key: value}))
    run = read_files([tmp_path / "result.json"])
    (found,) = run.workload["serving"]["levels"]
    assert "True" not in found["name"]
    assert ("concurrency" in found) == (key != "max_concurrency")


@pytest.mark.parametrize("value", [10**400, float("nan"), float("inf")], ids=lambda value: str(value)[:5])
def test_requests_without_finite_times_are_left_out(tmp_path, load, value):
    rows, _ = load
    found = vllm_object(rows)
    found["ttfts"][0] = value
    (tmp_path / "result.json").write_text(json.dumps(found))
    assert len(read_files([tmp_path / "result.json"]).requests) == len(rows) - 1
    lines = [aiperf_line(row) for row in rows]
    first = json.loads(lines[0])
    first["metrics"]["request_latency"] = {"value": value, "unit": "ms"}
    (tmp_path / "p.jsonl").write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    assert len(read_files([tmp_path / "p.jsonl"]).requests) == len(rows) - 1
