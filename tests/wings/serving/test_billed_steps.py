"""Bills by scheduler steps, against a simulated scheduler whose steps cost what a known law says."""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.analysis import analyse
from jouletrace.run import Parts, tables
from jouletrace.wings.serving.analysis.steady import requests_of, steady_window
from scheduled_runs import Law, drawn, scheduled_level, scheduled_run
from serving_runs import START_NS

LAW = Law()
ABOVE = LAW.above_idle()
FACTORS = {
    "baseline_context_idle_w": LAW.idle_w,
    "energy_step_j": ABOVE.step_j,
    "energy_new_token_j": ABOVE.new_j,
    "energy_sequence_j": ABOVE.sequence_j,
    "energy_context_token_j": LAW.context_j,
}
PARTS = ("energy_prefill_j", "energy_decode_j", "energy_idle_j")


def loaded(law=LAW, rates=(1, 2, 4), seconds=60, inputs=(50, 1500), outputs=(20, 200), seed=1, **more):
    rng = np.random.default_rng(seed)
    levels = [scheduled_level(law, *drawn(rng, rate, seconds, inputs, outputs)) for rate in rates]
    return scheduled_run(law, levels, seed=seed, **more)


def closed(law, inputs, outputs, concurrency=16, seed=0, **more):
    level = scheduled_level(law, None, inputs, outputs, concurrency)
    return scheduled_run(law, [level], seed=seed, **more)


@pytest.fixture(scope="module")
def served():
    run, record, scheduled = loaded()
    return analyse(run), record, scheduled, Parts(run)


def codes(run):
    return {warning.code for warning in run.warnings}


def units(results):
    return [unit.id for unit in results.units("load")]


def steps_in(run, scheduled, level):
    """Rows of the steps within the steady window, each with its share in it, and the window in seconds."""
    requests = requests_of(run, level)
    begin, end = ((requests.nanoseconds(edge) - START_NS) / 1e9 for edge in steady_window(requests)[:2])
    rows = np.array(scheduled.rows, float)
    inside = np.clip(np.minimum(rows[:, 1], end) - np.maximum(rows[:, 0], begin), 0, None) / (rows[:, 1] - rows[:, 0])
    return rows, inside, (begin, end)


def test_factors_are_those_of_the_law(served):
    _, _, _, results = served
    for metric, truth in FACTORS.items():
        found = results.get(metric)
        assert found.value == pytest.approx(truth, rel=0.01)
        assert found.method == "scheduler steps"


def test_prefill_decode_and_idle_are_true_and_add_up(served):
    run, _, scheduled, results = served
    for level, unit in enumerate(units(results)):
        rows, inside, (begin, end) = steps_in(run, scheduled, level)
        start, until, new, decoding, context, parts = rows.T
        shared = LAW.step_j * parts / (parts + decoding)
        prefill = inside @ (LAW.new_j * new + shared)
        decode = inside @ (LAW.sequence_j * decoding + LAW.context_j * context + LAW.step_j - shared)
        idle = LAW.idle_w * (end - begin - inside @ (until - start))
        for metric, truth in zip(PARTS, (prefill, decode, idle), strict=True):
            assert results[unit].get(metric).value == pytest.approx(truth, rel=0.01)
        whole = results[unit].get("energy_total_j").value
        assert sum(results[unit].get(metric).value for metric in PARTS) == pytest.approx(whole, rel=1e-9)
        assert results[unit].get("closure_steps").value == pytest.approx(1, abs=0.005)


def test_bills_add_up_to_the_energy_of_the_window(served):
    run, _, _, results = served
    table = run.requests
    level, bills = table["level"].to_numpy(), table["energy_j"].to_numpy()
    for number, unit in enumerate(units(results)):
        assert np.nansum(bills[level == number]) == pytest.approx(results[unit].get("energy_total_j").value, rel=1e-9)
        complete = bills[(level == number) & (table["billed"].to_numpy() == 1.0)]
        assert results[unit].get("bill_p50_j").value == pytest.approx(np.median(complete))
    own, half = table["energy_own_j"].to_numpy(), table["half_width_j"].to_numpy()
    known = np.isfinite(bills)
    assert np.all(own[known] <= bills[known])
    assert np.all(half[known] >= 0)


def test_the_marginal_part_of_a_bill_is_that_of_its_lengths(served):
    run, *_ = served
    for row in [one for one in run.requests.to_pylist() if one["billed"] == 1.0][::10]:
        count = row["output_tokens"] - 1
        context = count * row["input_tokens"] + count * (count + 1) / 2
        own = LAW.new_j * row["input_tokens"] + LAW.sequence_j * count + LAW.context_j * context
        assert row["energy_own_j"] == pytest.approx(own, rel=0.02)


@pytest.mark.parametrize("kind", [(200, 150), (800, 60)])
def test_the_bill_in_a_mix_is_that_in_a_uniform_load_of_its_kind(kind):
    inputs, outputs = kind
    uniform, *_ = closed(LAW, np.full(200, inputs), np.full(200, outputs))
    alone = Parts(analyse(uniform))[1].get("energy_per_request_j").value
    rng = np.random.default_rng(3)
    long = rng.random(400) < 0.5
    mix, *_ = closed(LAW, np.where(long, 200, 800), np.where(long, 150, 60), seed=3)
    rows = [one for one in analyse(mix).requests.to_pylist() if one["billed"] == 1.0]
    bills = [one["energy_j"] for one in rows if one["input_tokens"] == inputs]
    assert len(bills) > 30
    assert np.mean(bills) == pytest.approx(alone, rel=0.05)
    by_tokens = Parts(mix)[1].get("energy_per_output_token_j").value * outputs
    assert abs(by_tokens / alone - 1) > 0.1  # what division by tokens would say


def test_attention_over_the_whole_batch_is_a_factor_of_its_own_and_paid_by_queries_and_keys():
    law = replace(LAW, pair_j=2e-6)
    run, _, scheduled = loaded(law)
    results = Parts(analyse(run))
    for metric, truth in {**FACTORS, "energy_pair_j": law.pair_j}.items():
        assert results.get(metric).value == pytest.approx(truth, rel=0.02)
    for level, unit in enumerate(units(results)):
        rows, inside, _ = steps_in(run, scheduled, level)
        _, _, new, decoding, context, parts = rows.T
        shared = law.step_j * parts / (parts + decoding)
        of_prompts = law.pair_j * new * (2 * new + decoding + context) / 2
        prefill = inside @ (law.new_j * new + shared + of_prompts)
        assert results[unit].get("energy_prefill_j").value == pytest.approx(prefill, rel=0.01)
        assert results[unit].get("closure_steps").value == pytest.approx(1, abs=0.005)


def test_a_request_pays_half_of_the_pairs_of_its_queries_and_of_its_keys():
    law = replace(LAW, pair_j=2e-6)
    run, _, scheduled = loaded(law)
    analyse(run)
    _, end, new, decoding, context, parts = np.array(scheduled.rows, float).T
    queries, keys = new + decoding, new + context
    checked = 0
    for row in [one for one in run.requests.to_pylist() if one["billed"] == 1.0]:
        first, last = ((row[name] - START_NS) / 1e9 for name in ("first_ns", "last_ns"))
        read = np.searchsorted(end, first) - 1
        if parts[read] != 1 or new[read] != row["input_tokens"]:
            continue  # its prompt was read in several steps, or beside another
        prompt, count = row["input_tokens"], row["output_tokens"] - 1
        later = np.arange(read + 1, np.searchsorted(end, last))
        assert len(later) == count
        pairs = prompt * (keys[read] + queries[read])
        pairs += sum(keys[s] + (prompt + s - read) * queries[s] for s in later)
        own = law.new_j * prompt + law.sequence_j * count + law.pair_j * pairs / 2
        own += law.context_j * (count * prompt + count * (count + 1) / 2)
        assert row["energy_own_j"] == pytest.approx(own, rel=0.02)
        checked += 1
    assert checked > 20


def test_without_prefilling_in_the_log_it_comes_from_the_requests(served):
    _, _, _, results = served
    run, *_ = loaded(logged=())
    other = Parts(analyse(run))
    for unit in units(results):
        for metric in PARTS:
            assert other[unit].get(metric).value == pytest.approx(results[unit].get(metric).value, rel=0.01)


@pytest.mark.slow
def test_intervals_hold_the_truth_in_most_runs():
    inside = []
    for seed in range(16):
        run, *_ = loaded(rates=(2, 4), seconds=20, seed=50 + seed, noise_w=30.0)
        results = Parts(analyse(run))
        for metric, truth in FACTORS.items():
            found = results.get(metric)
            if found.value is not None:
                inside.append(found.low <= truth <= found.high)
    assert len(inside) >= 60
    assert np.mean(inside) >= 0.85


@pytest.mark.slow
def test_intervals_of_bills_hold_what_the_law_says_in_most_runs():
    inside = []
    for seed in range(6):
        noisy, *_ = loaded(rates=(2, 4), seconds=20, seed=80 + seed, noise_w=30.0)
        exact, *_ = loaded(rates=(2, 4), seconds=20, seed=80 + seed, noise_w=0.01)
        bills, truth = (analyse(run).requests for run in (noisy, exact))
        known = np.isfinite(truth["energy_j"].to_numpy())
        off = np.abs(bills["energy_j"].to_numpy() - truth["energy_j"].to_numpy())[known]
        inside.append(np.mean(off <= bills["half_width_j"].to_numpy()[known]))
    assert np.mean(inside) >= 0.85


def test_factors_that_the_requests_do_not_distinguish_are_null():
    run, *_ = closed(LAW, np.full(1500, 512), np.full(1500, 1))  # each step reads a prompt of 512, and none decodes
    results = Parts(analyse(run))
    for metric in ("energy_new_token_j", "energy_sequence_j", "energy_context_token_j"):
        assert results.get(metric).reason == "not_distinguished"
    assert results.get("energy_step_j").value == pytest.approx(ABOVE.step_j + 512 * ABOVE.new_j, rel=0.01)
    assert results[1].get("energy_prefill_j").reason == "not_distinguished"
    bills = run.requests["energy_j"].to_numpy()
    assert np.nansum(bills) == pytest.approx(results[1].get("energy_total_j").value, rel=1e-9)


def short_answers(steps):
    """Figures of these steps, at the end of each of which a request of 100 + 15 tokens ends."""
    last = np.array([row[1] for row in steps])
    level = {"sent": last - 0.5, "first": last - 0.4, "last": last}
    tokens = {"input_tokens": np.full(len(last), 100), "output_tokens": np.full(len(last), 15)}
    run, *_ = scheduled_run(LAW, [({**level, **tokens}, steps)])
    return Parts(analyse(run))


def test_sequences_whose_caches_grow_with_the_batch_alone_are_not_distinguished():
    rng = np.random.default_rng(2)
    steps = [
        (k * 0.02, k * 0.02 + 0.015, 0, n, 100 * n, 0) for k, n in enumerate(np.repeat(rng.integers(1, 30, 60), 25))
    ]
    results = short_answers(steps)
    assert results.get("energy_sequence_j").reason == "not_distinguished"
    both = LAW.sequence_j + 100 * LAW.context_j  # a sequence pays by its cache; these steps all take 15 ms
    assert 100 * results.get("energy_context_token_j").value == pytest.approx(both, rel=0.01)


def test_requests_of_two_lengths_at_a_constant_batch_pay_for_their_own_caches():
    """A sequence costs as much as a part of the step then; the caches still distinguish them."""
    rng = np.random.default_rng(3)
    context = 16 * 100 + 500 * np.repeat(rng.integers(2, 15, 80), 20)
    new = np.where(rng.random(len(context)) < 0.1, 300, 0)
    steps = [(k * 0.02, k * 0.02 + 0.015, n, 16, context[k], int(n > 0)) for k, n in enumerate(new)]
    results = short_answers(steps)
    assert results.get("energy_sequence_j").reason == "not_distinguished"
    assert results.get("energy_context_token_j").value == pytest.approx(LAW.context_j, rel=0.05)


def test_a_host_that_delays_steps_at_idle_power_changes_no_factor():
    rng = np.random.default_rng(4)
    level, steps = scheduled_level(LAW, *drawn(rng, 4, 40, (50, 1500), (20, 200)))
    edges, late = np.array([(row[0], row[1]) for row in steps]), rng.exponential(0.01, len(steps))
    before = np.append(0.0, np.cumsum(late))
    stretched = [(*(edges[k] + before[[k, k + 1]]), *row[2:]) for k, row in enumerate(steps)]
    for name in ("first", "last"):  # as many delays later
        level[name] = level[name] + before[np.searchsorted(edges[:, 1], level[name], side="right")]
    level["sent"] = level["sent"] + before[np.searchsorted(edges[:, 0], level["sent"], side="right")]
    run, *_ = scheduled_run(LAW, [(level, stretched)], delayed=late)
    results = Parts(analyse(run))
    for metric, truth in FACTORS.items():
        assert results.get(metric).value == pytest.approx(truth, rel=0.02)
    assert results[1].get("closure_steps").value == pytest.approx(1, abs=0.01)


def test_a_factor_of_nothing_is_zero_with_an_interval():
    run, *_ = loaded(replace(LAW, context_j=0.0))
    found = Parts(analyse(run)).get("energy_context_token_j")
    assert found.low == 0.0
    assert found.high < 1e-5


def test_steps_of_other_clients_are_reported():
    run, *_ = loaded(rates=(4,), seconds=30)
    run.requests = run.requests.filter(np.arange(len(run.requests)) % 2 == 0)
    analyse(run)
    assert "steps_of_others" in codes(run)
    assert "steps_too_few" not in codes(run)


def test_prompts_that_no_step_read_are_reported():
    """A server that finds them in its cache, or a log that lacks steps: other clients add tokens, they remove none."""
    run, *_ = loaded(rates=(4,), seconds=30)
    run.steps = tables.changed(run.steps, "new_tokens", run.steps["new_tokens"].to_numpy() // 2)
    analyse(run)
    assert "steps_too_few" in codes(run)
    assert "steps_of_others" not in codes(run)


def test_steps_of_another_time_leave_the_bill_by_the_request_timeline():
    run, *_ = loaded(rates=(2, 4), seconds=30)
    first = int(run.steps["start_ns"][0].as_py())
    keep = run.steps["start_ns"].to_numpy() < first + 3_000_000_000
    run.steps = run.steps.filter(keep)
    results = Parts(analyse(run))
    assert "steps_not_used" in codes(run)
    bills = run.requests["energy_j"].to_numpy()[run.requests["level"].to_numpy() == 1]
    assert np.nansum(bills) == pytest.approx(results[2].get("energy_total_j").value, rel=1e-9)


def test_steps_that_do_not_explain_the_energy_are_reported():
    run, *_ = loaded(rates=(2, 4), seconds=30)
    steps = run.steps
    stamps = steps["start_ns"].to_numpy()
    lost = (stamps - stamps[0]) // 1_000_000_000 % 2 == 0  # a log that lacks every other second
    run.steps = steps.filter(~lost)
    assert codes(analyse(run)) & {"steps_not_closed", "steps_too_few"}


def test_analysis_again_changes_nothing(served):
    run, *_ = served
    first, requests = run.results, run.requests
    analyse(run)
    assert run.results.equals(first)
    assert run.requests.equals(requests)


def test_steps_that_overlap_are_not_sound():
    from jouletrace.run.sound import check

    rows = [
        {"start_ns": at, "end_ns": at + 10, "new_tokens": 1, "decoding": 0, "context_tokens": 0} for at in (0, 10, 15)
    ]
    check(tables.from_rows(rows[:2], "steps"), "steps")
    with pytest.raises(ValueError, match="row 2: it begins before the step above it has ended"):
        check(tables.from_rows(rows, "steps"), "steps")


def test_what_the_requests_alone_would_say_of_tokens_is_left_out(served):
    _, _, _, results = served
    assert results.get("energy_prompt_token_j").value is None
