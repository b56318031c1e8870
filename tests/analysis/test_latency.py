"""Latency: quantiles, blocks and the interval of the median, on iterations with known times."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.special import ndtri
from scipy.stats import binom, t

from covering import fewest
from jouletrace.analysis.latency import block_means, distribution, latencies_s, mean, median
from jouletrace.run import Estimate, Run, tables
from jouletrace.stats.interval import least_n, percentile
from make_runs import START, profile_run


def run_of(milliseconds, lane="latency"):
    edges = START + np.concatenate([[0], np.cumsum(np.round(np.asarray(milliseconds) * 1e6))]).astype(np.int64)
    rows = [
        {"id": i, "kind": "iteration", "name": "iteration", "lane": lane, "start_ns": int(a), "end_ns": int(b)}
        for i, (a, b) in enumerate(pairwise(edges))
    ]
    return Run(spans=tables.from_rows(rows, "spans"))


def test_the_distribution_is_that_of_the_iterations_in_milliseconds():
    values = np.arange(1.0, 42.0)[np.argsort(np.arange(41) * 0.618034 % 1)]  # equidistributed: none correlate
    found = distribution(run_of(values))
    assert found["n"] == 41
    assert found["median"] == 21.0
    assert (found["p25"], found["p75"], found["iqr"]) == (11.0, 31.0, 20.0)
    assert (found["min"], found["max"], found["mean"]) == (1.0, 41.0, pytest.approx(21.0))
    assert found["std"] == pytest.approx(np.std(values, ddof=1))
    assert found["p90"] == pytest.approx(37.0)
    assert found["p95"] is None
    assert set(found) == {"median", "p25", "p75", "iqr", "mean", "std", "min", "max", "p90", "p95", "p99", "n"}


def test_other_lanes_and_phases_do_not_count():
    run = profile_run()
    assert distribution(run)["n"] == 200
    assert distribution(run_of([1.0, 2.0], lane="warm-up"))["n"] == 0


def test_no_iterations_give_no_figures_and_no_zeros():
    found = distribution(Run())
    assert found.pop("n") == 0
    assert set(found.values()) == {None}
    assert median(Run()) == Estimate.null("no_iterations")
    assert block_means(Run())["median"] is None


def test_one_iteration_has_no_spread():
    found = distribution(run_of([2.0]))
    assert found["median"] == 2.0
    assert found["std"] is None


def test_nanoseconds_are_not_lost_in_the_epoch():
    assert latencies_s(run_of([0.000001, 0.000002])).tolist() == [1e-9, 2e-9]


def test_iterations_count_in_the_order_in_which_they_ran():
    run = run_of([1.0, 2.0, 3.0])
    run.spans = run.spans.take([2, 0, 1])
    assert latencies_s(run).tolist() == [0.001, 0.002, 0.003]


def test_block_means_are_those_of_whole_blocks():
    found = block_means(run_of([1.0] * 100 + [3.0] * 100 + [2.0] * 100 + [99.0] * 50), block=100)
    assert (found["n"], found["block"]) == (3, 100)
    assert found["median"] == pytest.approx(2.0)
    assert (found["p25"], found["p75"], found["iqr"]) == pytest.approx((1.5, 2.5, 1.0))


def test_fewer_iterations_than_a_block_give_none():
    assert block_means(run_of([1.0] * 99), block=100) == {
        "block": 100, "n": 0, "median": None, "p25": None, "p75": None, "iqr": None,
    }  # fmt: skip


@pytest.mark.parametrize("n", [6, 7, 20, 33, 1000])
def test_the_interval_of_the_median_is_the_narrowest_that_is_sure_enough(n):
    order = np.argsort(np.arange(n) % (n // 2 + 1), kind="stable")  # a low one, then a high one: none correlate
    found = median(run_of(np.arange(1.0, n + 1)[order]))
    low, high = round(found.low * 1e3), round(found.high * 1e3)
    assert low + high == n + 1

    def coverage(rank):
        return 1 - 2 * binom.cdf(rank - 1, n, 0.5)

    assert coverage(low) >= 0.95
    assert coverage(low + 1) < 0.95
    assert found.value == pytest.approx((n + 1) / 2e3)
    assert found.n == n


def test_too_few_iterations_have_a_median_but_no_interval():
    found = median(run_of([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert found.value == pytest.approx(0.003)
    assert found.low is None


def test_the_mean_has_a_t_interval():
    values = np.array([1.0, 2.0, 3.0, 4.0, 10.0])
    found = mean(run_of(values))
    low, high = t.interval(0.95, 4, values.mean(), values.std(ddof=1) / np.sqrt(5))
    assert (found.low * 1e3, found.value * 1e3, found.high * 1e3) == pytest.approx((low, 4.0, high))
    assert mean(run_of([2.0])) == Estimate(0.002, n=1, method="mean")
    assert mean(Run()) == Estimate.null("no_iterations")


@pytest.mark.thorough
def test_the_interval_covers_the_true_median_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        found = median(run_of(rng.exponential(1.0, 50)))
        hits += found.low <= np.log(2) * 1e-3 <= found.high
    assert hits >= fewest(300)  # order statistics come in steps: they hold at least what they say


@pytest.mark.thorough
@pytest.mark.parametrize(("p", "correlation"), [(0.5, 0.8), (0.95, 0.8), (0.99, 0.8)])
def test_percentiles_of_correlated_iterations_are_covered_where_independent_ones_would_not_be(p, correlation):
    rng, normal = np.random.default_rng(4), ndtri(p)
    hits = alone = known = 0
    for _ in range(300):
        noise = rng.normal(size=2200) * np.sqrt(1 - correlation**2)
        values = lfilter([1.0], [1.0, -correlation], noise)[200:]
        found, shuffled = (percentile(one, p, "p") for one in (values, rng.permutation(values)))
        if found.low is not None:
            known, hits = known + 1, hits + (found.low <= normal <= found.high)
        alone += shuffled.low is not None and shuffled.low <= normal <= shuffled.high
    assert known >= 0.95 * 300
    assert hits >= 0.93 * known
    assert alone < 0.85 * 300


@pytest.mark.parametrize(("p", "least"), [(0.25, 13), (0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368)])
def test_a_percentile_is_known_from_the_iterations_on_beyond_which_it_lies_in_one_record_of_forty(p, least):
    assert least_n(p) == least
    n, q = least, max(p, 1 - p)
    assert q**n <= 0.025 < q ** (n - 1)
    values = np.arange(1.0, n + 1)[np.argsort(np.arange(n) * 0.618034 % 1)]  # equidistributed: none correlate
    assert percentile(values, p, "p").high <= n
    few = percentile(values[:-1], p, "p")
    assert few.low is None
    assert (few.value is None) == (p != 0.5)
    assert few.reason == (None if p == 0.5 else "too_few_independent")
