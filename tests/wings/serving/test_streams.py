"""Steps that streamed answers show, against those of a simulated scheduler."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from jouletrace.analysis import analyse
from jouletrace.run import Parts, tables
from jouletrace.run.sound import check
from jouletrace.wings.serving.analysis.steps import TOGETHER
from jouletrace.wings.serving.analysis.streams import AnswerStream, add_streams, steps_of
from scheduled_runs import Law, drawn, scheduled_level, scheduled_run, streams_of
from serving_runs import START_NS

LAW = Law()
WHOLE = replace(LAW, most_new=4096)


def levels_of(law, inputs=(50, 1500), rates=(1, 2, 4), seconds=60):
    rng = np.random.default_rng(1)
    return [scheduled_level(law, *drawn(rng, rate, seconds, inputs, (20, 200))) for rate in rates]


def with_streams(run, streams):
    run = deepcopy(run)
    run.steps = tables.empty("steps")
    add_streams(run, streams)
    return analyse(run)


def bills(run):
    """Of requests that lie within a steady window as a whole, by level."""
    table = run.requests
    whole = table["billed"].to_numpy() == 1.0
    return [table["energy_j"].to_numpy()[whole & (table["level"].to_numpy() == k)] for k in range(3)]


@pytest.fixture(scope="module")
def in_parts():
    """Loads whose prompts are read in parts of at most 512 tokens, and their bills by the scheduler's own steps."""
    levels = levels_of(LAW)
    run, *_ = scheduled_run(LAW, levels, seed=1)
    return levels, run, bills(analyse(deepcopy(run)))


def test_steps_are_those_of_the_scheduler_where_it_reads_prompts_as_a_whole():
    levels = levels_of(WHOLE, rates=(4,), seconds=20)
    run, *_ = scheduled_run(WHOLE, levels)
    steps, together = steps_of(streams_of(levels, jitter_s=0.0005))
    assert together == 1.0
    assert len(steps) == len(run.steps)
    for name in ("new_tokens", "prefilling", "decoding", "context_tokens"):
        assert steps[name].to_pylist() == run.steps[name].to_pylist(), name
    late = steps["end_ns"].to_numpy() - run.steps["end_ns"].to_numpy()
    assert np.all((late >= 1e6 - 2) & (late < 4e6))


def test_the_limit_of_tokens_is_determined_and_prompts_are_read_in_parts(in_parts):
    levels, run, _ = in_parts
    steps, _ = steps_of(streams_of(levels))
    ends, read = run.steps["end_ns"].to_numpy(), run.steps["new_tokens"].to_numpy()
    place = np.searchsorted(ends, steps["end_ns"].to_numpy() - 1_010_000)
    true = np.diff(np.append(0, np.cumsum(read)[place]))  # steps without a token are in the next one
    assert np.mean(steps["new_tokens"].to_numpy() == true) > 0.99
    assert sum(read) == sum(steps["new_tokens"].to_numpy())


def test_bills_and_parts_are_those_by_the_log(in_parts):
    levels, run, by_log = in_parts
    found = with_streams(run, streams_of(levels, jitter_s=0.001))
    assert found.warnings == []
    for ours, true in zip(bills(found), by_log, strict=True):
        assert np.mean(ours / true) == pytest.approx(1, abs=0.003)
        assert np.std(ours / true) < 0.015
    results, true = Parts(found), Parts(analyse(deepcopy(run)))
    assert results.get("energy_new_token_j").method == "streamed steps"
    for unit in [one.id for one in results.units("load")]:
        prefill, known = (one[unit].get("energy_prefill_j").value for one in (results, true))
        assert prefill == pytest.approx(known, rel=0.015)
        assert results[unit].get("closure_steps").value == pytest.approx(1, abs=0.002)


def test_half_widths_of_bills_hold_those_by_the_log_where_chunks_are_late(in_parts):
    levels, run, by_log = in_parts
    found = with_streams(run, streams_of(levels, jitter_s=0.002))
    assert 0.95 < found.workload["serving"]["streamed"] < 1
    table = found.requests
    half = table["half_width_j"].to_numpy()[table["billed"].to_numpy() == 1.0]
    error = np.concatenate(bills(found)) - np.concatenate(by_log)
    assert np.mean(np.abs(error) < half) > 0.93
    assert np.mean(np.abs(error) < 0.3 * half) < 0.9, "they aren't needlessly wide"


@pytest.mark.parametrize("changes", [{"jitter_s": 0.004}, {"per_chunk": 3}])
def test_answers_that_dont_show_the_steps_are_billed_by_the_timeline(in_parts, changes):
    levels, run, _ = in_parts
    streams = streams_of(levels, **changes)
    found = with_streams(run, streams)
    assert found.workload["serving"]["streamed"] < TOGETHER
    results = Parts(found)
    assert results.get("energy_output_token_j").method == "request timeline"
    assert results.get("energy_new_token_j").value is None
    assert found.warnings == []


def test_an_answer_that_gets_several_chunks_at_once_makes_no_steps_of_its_own():
    ends = np.arange(1, 41) * 10_000_000
    stalled = np.where((ends > 1e8) & (ends < 2e8), 200_000_000, ends)
    streams = [AnswerStream(START_NS, 10, 40, START_NS + one) for one in (ends, stalled, stalled)]
    steps, together = steps_of(streams)
    check(steps, "steps")
    assert len(steps) == 40
    assert sum(steps["decoding"].to_pylist()) == 3 * 39
    assert together == pytest.approx((40 + 2 * 31) / 120)


def test_a_single_answer_of_one_chunk_is_a_step():
    steps, together = steps_of([AnswerStream(START_NS, 10, 5, np.array([START_NS + 1_000_000]))])
    check(steps, "steps")
    assert together == 0.2, "four of its five tokens are not seen"
    assert steps.to_pylist()[0] | {"traced_j": None} == {
        "start_ns": START_NS,
        "end_ns": START_NS + 1_000_000,
        "new_tokens": 10,
        "prefilling": 1,
        "decoding": 0,
        "context_tokens": 0,
        "traced_j": None,
    }


def test_answers_that_come_as_a_whole_show_no_steps():
    at = START_NS + np.arange(1, 21) * 50_000_000
    for chunks in (1, 30):  # a server that doesn't stream, and one that sends all events together
        _, together = steps_of([AnswerStream(START_NS, 10, 30, np.full(chunks, one)) for one in at])
        assert together < 0.1
