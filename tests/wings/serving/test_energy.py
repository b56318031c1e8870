"""Figures of a server under load, against a simulated server whose power follows a known formula."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from jouletrace.analysis import analyse
from jouletrace.analysis.checks import outcomes
from jouletrace.analysis.latency import of_requests
from jouletrace.run import Parts, tables
from jouletrace.wings.serving.analysis.steady import (
    going_on,
    overlap,
    requests_of,
    shared_time,
    steady_window,
)
from serving_runs import PERIOD_S, START_NS, Truth, energy_between, level_of, serving_run

RATES = (1, 2, 4, 8)
TRUTH = Truth()


def simulated(truth, rates=RATES, *, seconds=60, inputs=(50, 2000), outputs=(20, 200), seed=1, slots=10**9, **more):
    rng = np.random.default_rng(seed)
    levels = [level_of(truth, rate, seconds, inputs, outputs, rng, slots) for rate in rates]
    return serving_run(truth, levels, seed=seed, rates=rates, **more)


@pytest.fixture(scope="module")
def served():
    run, record = simulated(TRUTH, slo_s={"ttft": 0.6, "e2e": 4.0})
    analyse(run)
    return run, record, Parts(run)


@pytest.mark.parametrize(("share", "said"), [(0.0, False), (0.3, False), (0.45, False), (0.55, True), (1.0, True)])
def test_a_load_is_capped_where_the_cap_held_the_clock_down_for_most_of_it(served, share, said):
    run, level = replace(served[0], warnings=[]), 1
    times = np.arange(*window_s(run, level), 0.1)
    bits = np.where(np.arange(len(times)) % 20 < 20 * share, 4.0, 0.0)
    rows = {"time_ns": START_NS + np.round(times * 1e9).astype(np.int64), "value": bits}
    rows |= {name: len(times) * [one] for name, one in (("device", run.devices[0].id), ("channel", "throttle_bits"))}
    run.samples = tables.concat([run.samples, tables.conform(pa.table(rows), "samples")], "samples")
    found = [one.message for one in analyse(run).warnings if one.code == "load_capped"]
    assert found == ([f"level {level}: the power cap held the clock down ({run.devices[0].name})"] if said else [])


def units(results):
    return [unit.id for unit in results.units("load")]


def codes(run):
    return {warning.code for warning in run.warnings}


def window_s(run, level):
    """Steady window in seconds of the record."""
    requests = requests_of(run, level)
    start, end, _ = steady_window(requests)
    return tuple((requests.nanoseconds(edge) - START_NS) / 1e9 for edge in (start, end))


def test_energy_of_each_steady_window_is_true(served):
    run, record, results = served
    for level, unit in enumerate(units(results)):
        true_j = energy_between(record, *window_s(run, level))
        assert results[unit].get("energy_total_j").value == pytest.approx(true_j, rel=2e-3)


def test_energy_per_token_without_a_rate_is_that_of_the_window_over_its_tokens(served):
    run, record, _ = served
    run = analyse(simulated(TRUTH)[0])
    for load in run.workload["serving"]["levels"]:
        load["rate_per_s"] = None
    results = Parts(analyse(run))
    for level, unit in enumerate(units(results)):
        start, end = window_s(run, level)
        requests = requests_of(run, level)
        shift = (requests.origin_ns - START_NS) / 1e9
        first, last = requests.first + shift, requests.last + shift
        inside = np.clip(np.minimum(last, end) - np.maximum(first, start), 0, None) / (last - first)
        tokens = float((inside * requests.output_tokens).sum())
        joules = results[unit].get("energy_per_output_token_j").value
        assert joules == pytest.approx(energy_between(record, start, end) / tokens, rel=2e-3)
        assert results[unit].get("tokens_per_j").value == pytest.approx(1 / joules, rel=1e-6)


def test_prompt_and_output_tokens_have_their_true_energy(served):
    _, _, results = served
    for unit in (0, *units(results)):
        prompt, output = results[unit].get("energy_prompt_token_j"), results[unit].get("energy_output_token_j")
        assert prompt.value == pytest.approx(TRUTH.prompt_j, rel=0.02)
        assert output.value == pytest.approx(TRUTH.output_j, rel=0.02)
    assert results.get("baseline_context_idle_w").value == pytest.approx(TRUTH.idle_w, abs=0.5)
    assert results.get("power_busy_w").value == pytest.approx(TRUTH.busy_w, rel=0.01)


def test_a_sensor_that_smooths_gives_the_same_factors():
    run, record = simulated(TRUTH, (2, 6), seconds=40, rise_s=0.1)
    results = Parts(analyse(run))
    assert results.get("energy_prompt_token_j").value == pytest.approx(TRUTH.prompt_j, rel=0.02)
    assert results.get("energy_output_token_j").value == pytest.approx(TRUTH.output_j, rel=0.02)
    true_j = energy_between(record, *window_s(run, 1))
    assert results[2].get("energy_total_j").value == pytest.approx(true_j, rel=5e-3)


@pytest.mark.slow
def test_intervals_of_energy_per_token_hold_the_truth_in_most_runs():
    inside = []
    for seed in range(12):
        run, _ = simulated(TRUTH, (2, 5), seconds=30, seed=100 + seed, noise_w=20.0)
        results = Parts(analyse(run))
        for metric, truth in (("energy_prompt_token_j", TRUTH.prompt_j), ("energy_output_token_j", TRUTH.output_j)):
            found = results.get(metric)
            inside.append(found.low <= truth <= found.high)
    assert np.mean(inside) >= 0.8


def test_a_token_of_a_full_batch_costs_less_where_power_saturates():
    run, _ = simulated(Truth(saturation_w=800.0))
    results = Parts(analyse(run))
    own = [results[unit].get("energy_output_token_j").value for unit in units(results)]
    assert all(one is not None for one in own)
    assert own[0] > own[1] > own[2] > own[3]


def test_bills_add_up_to_the_energy_of_the_window(served):
    run, _, results = served
    table = run.requests
    level, bills = table["level"].to_numpy(), table["energy_j"].to_numpy()
    for number, unit in enumerate(units(results)):
        assert np.nansum(bills[level == number]) == pytest.approx(results[unit].get("energy_total_j").value, rel=1e-9)
        assert results[unit].get("closure_bills").value == pytest.approx(1, abs=1e-3)
        parts = sum(results[unit].get(f"energy_{name}_j").value for name in ("prompts", "outputs", "common", "unused"))
        assert parts == pytest.approx(results[unit].get("energy_total_j").value, rel=1e-9)


def test_a_bill_has_the_marginal_part_of_its_tokens(served):
    run, _, _ = served
    rows = [row for row in run.requests.to_pylist() if row["billed"] == 1.0 and row["level"] == 3]
    tokens = np.array([[row["input_tokens"], row["output_tokens"]] for row in rows], float)
    bills = np.array([row["energy_j"] for row in rows])
    own = tokens @ [TRUTH.prompt_j, TRUTH.output_j]
    assert np.all(bills > own * 0.98)
    open_s = np.array([row["last_ns"] - row["sent_ns"] for row in rows]) / 1e9
    shared = (bills - own) / open_s  # of 320 W, by those that are open at once
    assert shared.mean() == pytest.approx(320 / Parts(run)[4].get("requests_open").value, rel=0.15)


def test_bills_of_requests_in_a_mix_are_those_of_a_uniform_load_of_their_kind():
    mixed, _ = simulated(TRUTH, (2, 6), inputs=(400, 600), outputs=(50, 150), seed=4)
    analyse(mixed)
    rows = [r for r in mixed.requests.to_pylist() if r["billed"] == 1.0 and r["level"] == 1]
    alike = [r["energy_j"] for r in rows if abs(r["output_tokens"] - 100) <= 10]
    uniform, _ = simulated(TRUTH, (6,), inputs=(500, 500), outputs=(100, 100), seed=5)
    results = Parts(analyse(uniform))
    assert np.mean(alike) == pytest.approx(results[1].get("energy_per_request_j").value, rel=0.1)


def test_equal_requests_at_equal_times_leave_tokens_undistinguished():
    truth = Truth()
    sent = np.arange(100) * 0.6
    level = {
        "sent": sent,
        "first": sent + 0.2,
        "last": sent + 0.6,
        "input_tokens": np.full(100, 500),
        "output_tokens": np.full(100, 20),
    }
    run, _ = serving_run(truth, [level], noise_w=300.0)
    results = Parts(analyse(run))
    for metric in ("energy_prompt_token_j", "energy_output_token_j"):
        assert results[1].get(metric).reason == "not_distinguished"
    bills = run.requests["energy_j"].to_numpy()
    assert np.nansum(bills) == pytest.approx(results[1].get("energy_total_j").value, rel=1e-9)


def test_latencies_and_goodput(served):
    run, _, results = served
    for number, unit in enumerate(units(results)):
        requests = requests_of(run, number)
        start, end, _ = steady_window(requests)
        inside = (requests.sent >= start) & (requests.sent <= end)
        for name in ("ttft", "tpot", "e2e"):
            values = getattr(requests, name)[inside]
            found = results[unit].get(f"{name}_p50_s")
            assert found.value == pytest.approx(np.median(values))
            assert found.low <= found.value <= found.high
        good = (requests.ttft <= 0.6) & (requests.e2e <= 4.0) & inside
        assert results[unit].get("share_within_slo").value == pytest.approx(good.sum() / inside.sum())
        assert results[unit].get("goodput_per_s").value == pytest.approx(good.sum() / (end - start))


def test_open_requests_follow_little_s_law(served):
    run, _, results = served
    for number, unit in enumerate(units(results)):
        requests = requests_of(run, number)
        wanted = results[unit].get("requests_per_s").value * requests.e2e.mean()
        assert results[unit].get("requests_open").value == pytest.approx(wanted, rel=0.15)


def test_lengths_other_than_planned_are_those_of_the_load():
    run, _ = simulated(TRUTH, (4,), seconds=30, inputs=(50, 500), outputs=(20, 60))
    load = run.workload["serving"]["levels"][0]
    values = []
    for mean in (None, 80.0):
        load["mean_output_tokens"] = mean
        values.append(Parts(analyse(run))[1].get("energy_per_output_token_j").value)
    assert values[0] == values[1]


def test_answers_shorter_than_asked_for_are_priced_at_their_own_lengths():
    run, _ = simulated(TRUTH, (4,), seconds=30, inputs=(50, 500), outputs=(20, 60))
    load = run.workload["serving"]["levels"][0]
    load["mean_output_tokens"] = requests_of(run, 0).output_tokens.mean() + 3
    asked = Parts(analyse(run))[1].get("energy_per_output_token_j").value
    load["short"] = 20
    assert Parts(analyse(run))[1].get("energy_per_output_token_j").value > 1.02 * asked


def constant(rate, stated):
    """A Run with requests of one kind at equal distances."""
    sent = np.arange(60 * rate) / rate
    tokens = {"input_tokens": np.full(len(sent), 100), "output_tokens": np.full(len(sent), 30)}
    first = sent + 100 * TRUTH.prompt_s
    level = {"sent": sent, "first": first, "last": first + 30 * TRUTH.output_s, **tokens}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("serving_runs.PERIOD_S", 0.02)  # parts begin and end within a request: each 50 ms is too coarse
        run, _ = serving_run(TRUTH, [level], rates=(stated,))
    return analyse(run)


@pytest.mark.parametrize("rate", [1, 2, 4, 7])
def test_equal_requests_at_equal_distances_cost_what_they_take(rate):
    """Parts of the window hold nearly the same tokens: rounding is no variation to regress on."""
    results = Parts(constant(rate, rate))
    price = results[1].get("energy_per_request_j")
    assert price.value == pytest.approx(results[1].get("power_w").value / rate, rel=0.01)
    assert price.half_width < 0.01 * price.value


def test_a_rate_far_from_what_the_parts_of_a_window_saw_is_no_price():
    """As of a client with a rate that is held back by a number of requests at once."""
    run = constant(4, stated=6)
    results = Parts(run)
    price = results[1].get("energy_per_request_j")
    assert price.value == pytest.approx(results[1].get("power_w").value / 4, rel=0.01)
    assert price.method == "window"
    assert "rate_not_seen" in run.result("energy_per_request_j", 1).flags


def test_a_price_by_a_sensor_too_slow_for_parts_of_a_window_is_not_at_the_offered_rate():
    run, _ = simulated(TRUTH, (4,))
    run.samples = run.samples.take(list(range(0, len(run.samples), 400)))
    run.channels = [replace(run.channels[0], period_s=400 * PERIOD_S, gapless=False)]
    analyse(run)
    assert run.result("energy_per_request_j", 1).method == "window"
    assert "rate_not_seen" in run.result("energy_per_request_j", 1).flags


def test_the_steady_state_begins_after_warm_up():
    rng = np.random.default_rng(3)
    requests = level_of(TRUTH, 20, 60, (50, 100), (200, 400), rng)
    slow = requests["sent"] < 12  # a server that compiles at first
    requests["last"][slow] += 15 - requests["sent"][slow]
    run, _ = serving_run(TRUTH, [requests])
    start, end, steady = steady_window(requests_of(run, 0))
    assert steady
    assert start > 8
    assert end == pytest.approx(requests["sent"].max() - requests["sent"].min())


def test_a_rate_beyond_what_the_server_does_is_not_steady():
    run, _ = simulated(TRUTH, (12,), slots=16)
    analyse(run)
    assert {"load_not_steady", "rate_not_reached"} <= codes(run)
    assert "load_not_steady" in run.result("energy_total_j", 1).flags


def test_an_overload_that_looks_steady_while_few_requests_arrive_is_not_valid():
    """The server answers 6 requests/s of 8, and its queue has no trend in the window: few requests came then."""
    run, _ = simulated(TRUTH, (8, 4), slots=16, seed=16)
    analyse(run)
    found = {one.code: one for one in run.warnings}
    assert "load_not_steady" not in found
    assert (found["rate_not_reached"].where, "of 8 were answered" in found["rate_not_reached"].message) == (
        "level 0",
        True,
    )
    assert run.result("energy_per_request_j", 1).reason == "load_not_valid"


def test_most_steady_loads_are_taken_for_steady():
    found = []
    for seed in range(20):
        level = level_of(TRUTH, 5, 60, (50, 500), (20, 100), np.random.default_rng(seed))
        run, _ = serving_run(TRUTH, [level])
        start, _, steady = steady_window(requests_of(run, 0))
        found.append(steady and start < 20)
    assert np.mean(found) >= 0.9


@pytest.mark.slow
def test_a_rate_that_is_reached_is_not_doubted_for_its_chance():
    doubted = []
    for seed in range(20):
        run, _ = simulated(TRUTH, (2,), inputs=(50, 500), outputs=(20, 100), seed=seed)
        doubted.append("rate_not_reached" in codes(analyse(run)))
    assert np.mean(doubted) <= 0.1


@pytest.mark.slow
def test_a_short_load_of_few_requests_is_not_called_too_high_a_rate():
    """It isn't steady, but a request or two that are answered later are no growing queue."""
    found = []
    for seed in range(20):
        run, _ = simulated(TRUTH, (1,), seconds=18, seed=seed)
        found.append(codes(analyse(run)))
    assert np.mean(["load_not_steady" in each for each in found]) > 0.3
    assert np.mean(["rate_not_reached" in each for each in found]) <= 0.1


def test_a_few_requests_are_not_enough():
    run, _ = simulated(TRUTH, (0.2,), seconds=40)
    analyse(run)
    warning = next(one for one in run.warnings if one.code == "load_not_steady")
    assert "only" in warning.message


def failing(run, every):
    rows = run.requests.to_pylist()
    for row in rows[::every]:
        row.update(status="failed", error="HTTP 503: overloaded", first_ns=None)
    from jouletrace.run import tables

    run.requests = tables.from_rows(rows, "requests")
    return run


def test_failed_requests_are_reported_and_count_for_no_work():
    whole, _ = simulated(TRUTH, (4,))
    broken, _ = simulated(TRUTH, (4,))
    failing(broken, 2)
    both = [Parts(analyse(run)) for run in (whole, broken)]
    assert "requests_failed" not in codes(whole)
    warning = next(one for one in broken.warnings if one.code == "requests_failed")
    assert warning.message.endswith("requests failed: HTTP 503: overloaded")
    rates = [results[1].get("requests_per_s").value for results in both]
    assert rates[1] == pytest.approx(rates[0] / 2, rel=0.15)
    assert both[1][1].get("energy_per_request_j").reason == "load_not_valid", "a price of half of the work is none"
    assert both[1][1].get("energy_total_j").value == pytest.approx(both[0][1].get("energy_total_j").value, rel=0.15)


def test_if_all_fail_there_are_reasons_in_place_of_figures():
    run, _ = simulated(TRUTH, (4,), seconds=20)
    results = Parts(analyse(failing(run, 1)))
    assert results[1].get("energy_per_request_j").reason == "no_requests"
    assert results[1].get("ttft_p50_s").reason == "no_requests"


def test_a_late_client_is_reported():
    run, _ = simulated(TRUTH, (8,), late_s=0.5)
    analyse(run)
    assert "client_late" in codes(run)


def test_without_a_record_latencies_remain(served):
    run, _ = simulated(TRUTH, (4,), seconds=20)
    run.channels, run.samples = [], run.samples.slice(0, 0)
    results = Parts(analyse(run))
    assert results[1].get("energy_per_request_j").reason == "no_power_sensor"
    assert results.get("energy_prompt_token_j").reason == "no_power_sensor"
    assert results[1].get("ttft_p50_s").value > 0
    assert run.requests["energy_j"].null_count == len(run.requests)


def test_a_gpu_that_requests_do_not_load_is_reported():
    run, _ = simulated(Truth(busy_w=0.0, prompt_j=0.0, output_j=0.0), (4,), seconds=30)
    analyse(run)
    assert "gpu_not_loaded" in codes(run)


def test_analysis_again_changes_nothing(served):
    run, _, _ = served
    first, requests, warnings = run.results, run.requests, list(run.warnings)
    analyse(run)
    assert run.results.equals(first)
    assert run.requests.equals(requests)
    assert run.warnings == warnings


def test_time_is_shared_by_the_requests_that_are_open():
    run, _ = simulated(TRUTH, (2,), seconds=10)
    r = replace(requests_of(run, 0), sent=np.array([0.0, 1.0]), last=np.array([2.0, 4.0]))
    assert going_on(r.sent, r.last, np.array([0.0, 0.5, 1.5, 6.0])) == pytest.approx([1, 1.5, 3.0 / 4.5])
    each, nobody = shared_time(r, (0.5, 6.0))
    assert each == pytest.approx([1.0, 2.5])
    assert nobody == pytest.approx(2)
    each, nobody = shared_time(r, (0.5, 6.0), (np.array([0.75, 4.5]), np.array([1.0, 5.0])))
    assert each == pytest.approx([0.75, 2.5])
    assert nobody == pytest.approx(1.5)


def test_overlaps():
    start, end = np.array([0.0, 4.0, 9.0, 5.0, np.nan]), np.array([10.0, 6.0, 12.0, 5.0, 7.0])
    assert overlap(start, end, (5.0, 10.0)) == pytest.approx([0.5, 0.5, 1 / 3, 1.0, 0.0])


def test_percentiles_have_intervals_where_there_are_enough_values():
    values = np.random.default_rng(0).exponential(1.0, 1000)
    p95 = of_requests(values, 0.95)
    assert p95.low < np.log(20) < p95.high
    assert of_requests(values[:20], 0.99).low is None
    assert of_requests(np.array([np.nan]), 0.5).reason == "no_requests"


def test_periods_of_the_record_are_as_the_support_says():
    run, (time, _) = simulated(TRUTH, (4,), seconds=20)
    assert np.diff(time) == pytest.approx(PERIOD_S)
    assert len(run.samples) == len(time)


@pytest.mark.parametrize("there", [True, False], ids=["no readings", "no sensor"])
def test_a_server_whose_energy_is_unknown_is_not_trusted(there):
    run, _ = simulated(TRUTH, rates=(2,), seconds=30)
    run.samples, run.channels = tables.empty("samples"), run.channels if there else []
    found = outcomes(analyse(run), Parts(run))
    assert (found.level, found.failed[0].code) == (("no", "no_samples") if there else ("with care", "no_power_sensor"))


def test_a_request_that_failed_without_a_reason_says_so():
    run, _ = simulated(TRUTH, rates=(2,), seconds=30)
    rows = run.requests.to_pylist()
    rows[0] |= {"status": "failed", "error": None}
    run.requests = tables.from_rows(rows, "requests")
    (said,) = [one.message for one in analyse(run).warnings if one.code == "requests_failed"]
    assert said.endswith("requests failed: no reason is stated")
