"""A log of scheduler steps: how it is read, and joined with the Runs of a load and of the server."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest

from commands import command
from jouletrace.analysis import analyse
from jouletrace.errors import BadInputError
from jouletrace.run import Parts, load, save, tables
from jouletrace.wings.serving.analysis.streams import add_streams
from jouletrace.wings.serving.client.steps import join, read_steps
from places import REPOSITORY
from scheduled_runs import Law, drawn, log_of, rows_of, scheduled_level, scheduled_run, server_run, streams_of
from serving_runs import START_NS

LAW = Law()
FACTORS = {
    "energy_step_j": LAW.above_idle().step_j,
    "energy_new_token_j": LAW.above_idle().new_j,
    "energy_sequence_j": LAW.above_idle().sequence_j,
    "energy_context_token_j": LAW.context_j,
}
GOOD = {"start_ns": 10, "end_ns": 20, "new_tokens": 5, "decoding": 1, "context_tokens": 7}


def levels_of(rates=(2, 4), seconds=25, seed=1):
    rng = np.random.default_rng(seed)
    return [scheduled_level(LAW, *drawn(rng, rate, seconds, (50, 1500), (20, 200))) for rate in rates]


def served(seed=1, **more):
    return scheduled_run(LAW, levels_of(seed=seed), seed=seed, **more)


def test_a_log_is_read_in_order_of_time_without_empty_steps(tmp_path):
    later = {**GOOD, "start_ns": 30, "end_ns": 40, "prefilling": 1, "note": "more fields are fine"}
    nothing = {**GOOD, "start_ns": 50, "end_ns": 60, "new_tokens": 0, "decoding": 0}
    table = read_steps(log_of(tmp_path / "steps.jsonl", [later, "", GOOD, nothing]))
    assert table["start_ns"].to_pylist() == [10, 30]
    assert table["prefilling"].to_pylist() == [None, 1]


def test_a_last_line_that_is_still_being_written_is_left_out(tmp_path):
    path = log_of(tmp_path / "steps.jsonl", [GOOD, '{"start_ns": 30, "en'], end="")
    assert len(read_steps(path)) == 1


def test_a_step_begins_when_the_one_before_it_has_ended(tmp_path):
    table = read_steps(log_of(tmp_path / "steps.jsonl", [GOOD, {**GOOD, "start_ns": 18, "end_ns": 30}]))
    assert table["start_ns"].to_pylist() == [10, 20]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([GOOD, "no json"], "line 2 is no step"),
        ([{**GOOD, "decoding": -1}], "line 1 is no step: Expected `int` >= 0 - at `$.decoding`"),
        ([{**GOOD, "start_ns": "now"}], "line 1 is no step: Expected `int`, got `str`"),
        ([{"start_ns": 1, "end_ns": 2}], "missing required field `new_tokens`"),
        ([{**GOOD, "end_ns": 10}], "a step ends before it begins, at 10 ns"),
        ([GOOD, {**GOOD, "start_ns": 12, "end_ns": 22}], "steps overlap at 12 ns: each engine needs a log of its own"),
        ([{**GOOD, "new_tokens": 0, "decoding": 0}], "it has no step with a token"),
        ([], "it has no step with a token"),
        (["[" * 500_000, GOOD], "line 1 is no step: "),
        ([json.dumps(GOOD)[:-1] + ', "x": ' + "[" * 500_000, GOOD], "line 1 is no step: "),
        ([{**GOOD, "prefilling": 6}], "the step at 10 ns reads 5 new_tokens of 6 prefilling sequences"),
        ([{**GOOD, "prefilling": 2**53}], "line 1 is no step: Expected `int` <= 2147483648"),
        ([GOOD, {**GOOD, "start_ns": 30, "end_ns": 40, "prefilling": 0}], "the step at 30 ns reads 5 new_tokens of 0"),
    ],
)
def test_a_wrong_log_is_refused_in_one_line(tmp_path, rows, said):
    with pytest.raises(BadInputError) as error:
        read_steps(log_of(tmp_path / "steps.jsonl", rows))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("line", [json.dumps([GOOD]), "\r".join([json.dumps(GOOD)] * 2), "[" * 500_000, "no json"])
def test_a_log_of_one_line_without_its_end_is_refused_with_its_line(tmp_path, line):
    with pytest.raises(BadInputError, match="line 1 is no step"):
        read_steps(log_of(tmp_path / "steps.jsonl", [line], end=""))


def test_a_deeply_nested_last_line_is_left_out_as_any_that_is_being_written(tmp_path):
    assert len(read_steps(log_of(tmp_path / "steps.jsonl", [GOOD, "[" * 500_000], end=""))) == 1


def test_a_byte_order_mark_is_read_or_named(tmp_path):
    path, text = tmp_path / "steps.jsonl", json.dumps(GOOD) + "\n"
    path.write_text(text, encoding="utf-8-sig")
    assert len(read_steps(path)) == 1
    path.write_text(text, encoding="utf-16")
    with pytest.raises(BadInputError, match="its byte order mark says UTF-16: write it in UTF-8"):
        read_steps(path)


def test_prefilling_is_zero_where_no_prompt_is_read(tmp_path):
    assert len(read_steps(log_of(tmp_path / "steps.jsonl", [{**GOOD, "new_tokens": 0, "prefilling": 0}]))) == 1


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (slice(0, 0.5), r"the log of steps ends [\d.]+ s before the last answer"),
        (slice(0.5, 1), r"the log of steps begins [\d.]+ s after the first answer"),
        (slice(0, 1), None),
    ],
)
def test_a_log_of_a_part_of_the_load_is_reported(tmp_path, kept, said):
    run, *_ = served()
    rows = rows_of(run)
    log = log_of(tmp_path / "steps.jsonl", rows[round(kept.start * len(rows)) : round(kept.stop * len(rows))])
    found = [one.message for one in join(run, read_steps(log)).warnings if one.code == "steps_missing"]
    assert bool(found) == (said is not None)
    if said:
        assert re.match(said, found[0])
    join(run, read_steps(log_of(tmp_path / "whole.jsonl", rows)))
    assert "steps_missing" not in {one.code for one in run.warnings}


def test_a_log_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadInputError, match="No such file"):
        read_steps(tmp_path / "none.jsonl")


def test_steps_of_another_time_are_refused(tmp_path):
    run, *_ = served()
    with pytest.raises(BadInputError, match="1970-01-01 00:00:00 UTC, the requests of 2027-01-15 08:00:05 UTC"):
        join(run, read_steps(log_of(tmp_path / "steps.jsonl", [GOOD])))


def test_steps_on_the_clock_of_another_machine_are_moved(tmp_path):
    run, *_ = served()
    rows = [
        {**row, "start_ns": row["start_ns"] + 3_000_000_000, "end_ns": row["end_ns"] + 3_000_000_000}
        for row in rows_of(run)
    ]
    before = run.steps["start_ns"].to_pylist()
    run.devices[0].details["clock_offset_s"] = 3.0
    join(run, read_steps(log_of(tmp_path / "steps.jsonl", rows)))
    assert run.steps["start_ns"].to_pylist() == before


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A Run of a load, its steps, and the Run of its server."""
    place = tmp_path_factory.mktemp("served")
    run, _, scheduled = served()
    log_of(place / "steps.jsonl", rows_of(run))
    run.steps = run.steps.slice(0, 0)
    save(analyse(run), place / "bench")
    save(analyse(server_run(scheduled)), place / "server")
    save(analyse(server_run(scheduled, device="GPU-other")), place / "other")
    return place


def assert_traced(results, factors):
    """Factors of a step are those of the law, by the kernels, and both loads close."""
    for metric, truth in factors.items():
        found = results.get(metric)
        assert found.method == "traced steps"
        assert found.value == pytest.approx(truth, rel=0.03)
        assert found.low < truth < found.high
    for unit in (1, 2):
        assert results[unit].get("closure_steps").value == pytest.approx(1, abs=0.01)


def test_traced_kernels_give_the_energy_of_steps(places):
    run = join(load(places / "bench"), read_steps(places / "steps.jsonl"), places / "server")
    for row in run.steps.to_pylist()[::50]:
        truth = LAW.energy(row["new_tokens"], row["decoding"], row["context_tokens"])
        assert row["traced_j"] == pytest.approx(truth, rel=0.02)
    results = Parts(analyse(run))
    assert_traced(results, FACTORS)
    bills = run.requests["energy_j"].to_numpy()[run.requests["level"].to_numpy() == 1]
    assert np.nansum(bills) == pytest.approx(results[2].get("energy_total_j").value, rel=1e-9)


@pytest.mark.parametrize("late_s", [0.0005, 0.003])
def test_traced_kernels_give_the_energy_of_steps_that_the_answers_show(places, late_s):
    run = load(places / "bench")
    add_streams(run, streams_of(levels_of(), late_s=late_s))
    results = Parts(analyse(join(run, None, places / "server")))
    assert_traced(results, {metric: FACTORS[metric] for metric in list(FACTORS)[:3]})


def test_a_bill_without_a_log_takes_answers_that_show_the_steps(places, tmp_path, capsys):
    words = ["bill", places / "bench", "--server-run", places / "server", "-o", tmp_path / "billed"]
    found = run_command(capsys, *words)
    assert (found.code, found.err) == (
        2,
        f"jouletrace: {places / 'bench'}: its answers don't show the server's steps: give a log of them\n",
    )
    run = load(places / "bench")
    add_streams(run, streams_of(levels_of()))
    save(run, tmp_path / "streamed")
    words[1] = tmp_path / "streamed"
    assert run_command(capsys, *words).code == 0
    assert load(tmp_path / "billed").requests["energy_own_j"].null_count < len(run.requests)
    found = run_command(capsys, "bill", places / "bench")
    assert (found.code, found.err) == (2, "jouletrace: give the log of the server's steps, or --server-run\n")


def test_steps_outside_of_the_traced_part_are_explained_by_those_inside(places, tmp_path):
    server = load(places / "server")
    keep = server.activity["start_ns"].to_numpy() > START_NS + 40_000_000_000
    server.activity = server.activity.filter(keep)
    server.workload["recordings"][0]["start_ns"] = server.activity["start_ns"][0].as_py()
    save(analyse(server), tmp_path / "server")
    run = join(load(places / "bench"), read_steps(places / "steps.jsonl"), tmp_path / "server")
    assert 0 < run.steps["traced_j"].null_count < len(run.steps)
    results = Parts(analyse(run))
    assert results[1].get("closure_steps").value == pytest.approx(1, abs=0.02)  # its steps are not among them


def test_kernels_on_other_gpus_are_refused(places):
    with pytest.raises(BadInputError, match="its kernels ran on GPU-other, the load was measured on GPU-served"):
        join(load(places / "bench"), read_steps(places / "steps.jsonl"), places / "other")


def test_a_run_of_another_kind_is_no_server(places):
    with pytest.raises(BadInputError, match="a bench, not a Run of jouletrace run"):
        join(load(places / "bench"), read_steps(places / "steps.jsonl"), places / "bench")


def test_an_old_run_of_several_gpus_says_where_its_kernels_are(places):
    two = REPOSITORY / "docs" / "results" / "runs" / "ddp-run-h200.zip"
    with pytest.raises(BadInputError, match="no kernels were traced in it; this old Run of several GPUs kept those of"):
        join(load(places / "bench"), read_steps(places / "steps.jsonl"), two)


def run_command(capsys, *words):
    return command(capsys, *map(str, words))


def test_the_command_saves_a_new_run_with_the_bill(places, tmp_path, capsys):
    to, log = tmp_path / "billed", places / "steps.jsonl"
    found = run_command(capsys, "bill", places / "bench", log, "--server-run", places / "server", "-o", to)
    assert found.code == 0
    assert "prefill" in found.out
    assert "bills of requests: median" in found.out
    assert all(len(line) <= 80 for line in found.out.splitlines())
    again = load(to)
    assert len(again.steps)
    assert again.requests["energy_own_j"].null_count < len(again.requests)
    assert analyse(again).results.equals(load(to).results)


def test_a_bill_of_loads_that_are_not_valid_says_that_nothing_was_billed(places, tmp_path, capsys):
    run = load(places / "bench")
    said = pa.array(["ok" if k % 10 else "failed" for k in range(len(run.requests))])
    run.requests = tables.changed(run.requests, "status", said.cast(run.requests.schema.field("status").type))
    failed = tmp_path / "failed"
    save(run, failed)
    found = run_command(capsys, "bill", failed, places / "steps.jsonl", "-o", tmp_path / "billed")
    assert found.code == 3
    assert "nothing was billed" in found.err
    assert "NOT VALID" in found.out
    assert "prefill" not in found.out, "no part of an energy that no load states"


def test_the_parts_of_the_energy_are_labelled_with_their_total(places, tmp_path, capsys):
    log, to = places / "steps.jsonl", tmp_path / "billed"
    found = run_command(capsys, "bill", places / "bench", log, "--price", "0.3EUR/kWh", "-o", to)
    assert "EUR per million output tokens at " in " ".join(found.out.split())
    verdict, table = " ".join(found.out.split()).split("Loads, in their steady state")
    assert "its steady window took" in verdict
    table_of = load(to).requests
    own = table_of.filter(table_of["level"].to_numpy() == 1)
    whole = int((own["billed"].to_numpy() == 1.0).sum())
    assert 0 < whole < own["energy_j"].drop_null().length()
    said = f"(of the {whole} of {len(own)} that lie wholly in the window)"
    assert said in verdict, "those whose bills have the median that is stated"
    assert "prefill" not in table, "prefill alone, without decode and idle, would be misread"


def test_the_command_names_the_files_that_do_not_fit(places, tmp_path, capsys):
    log = log_of(tmp_path / "steps.jsonl", [GOOD])
    found = run_command(capsys, "bill", places / "bench", log, "-o", tmp_path / "billed")
    assert found.code == 2
    assert f"{places / 'bench'} and {log}: the steps are of 1970" in found.err
    assert len(found.err.splitlines()) == 1


def test_the_export_has_the_bill_of_each_request(places, tmp_path, capsys):
    to = tmp_path / "billed"
    assert run_command(capsys, "bill", places / "bench", places / "steps.jsonl", "-o", to).code == 0
    assert run_command(capsys, "export", to, "--format", "csv", "-o", tmp_path / "csv").code == 0
    heading, *rows = (tmp_path / "csv" / "requests.csv").read_text().splitlines()
    assert "energy_own_j" in heading
    assert len(rows) == len(load(to).requests)
