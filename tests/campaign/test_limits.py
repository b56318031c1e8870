"""Limits: what may be written, counts of iterations over them, and the verdict."""

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.special import ndtri
from scipy.stats import beta

from covering import fewest
from jouletrace.campaign import parse_limits
from jouletrace.campaign.limits import EXCEEDS, MEETS, UNDECIDED, Limit, counts, share_over, verdict
from jouletrace.errors import BadInputError
from jouletrace.run import Estimate


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("p99<20ms", [Limit("p99", 0.02, False, 0.01)]),
        (" p50 <= 1.5 s ", [Limit("p50", 1.5, False, 0.5)]),
        ("p90<300ns", [Limit("p90", 3e-7, False, 0.1)]),
        ("p95<40µs", [Limit("p95", 4e-5, False, 0.05)]),
        ("p95<40μs", [Limit("p95", 4e-5, False, 0.05)]),
        ("time<+3%", [Limit("time", 0.03, True, None)]),
        ("time<5ms", [Limit("time", 0.005, False, None)]),
        ("ttft<200ms,tpot<20ms", [Limit("ttft", 0.2, False, 0.05), Limit("tpot", 0.02, False, None)]),
    ],
)
def test_limits_are_read(text, limits):
    found = parse_limits(text)
    assert [(one.quantity, one.relative, one.share) for one in found] == [
        (one.quantity, one.relative, one.share) for one in limits
    ]
    assert [one.bound for one in found] == pytest.approx([one.bound for one in limits])
    again = parse_limits(",".join(map(str, found)))
    assert [one.bound for one in again] == pytest.approx([one.bound for one in found])


@pytest.mark.parametrize(
    "text",
    ["", "p99", "p99<20", "e2e<1s", "p99<0ms", "p99<-1ms", "p98<20ms", "p99>20ms", "p99<20ms,", "p99<1ms,p99<2ms",
     "time<3%", "p99<+3%", "p99<nanms", "p99<1e3ms", "p99<٣ms", "p99<20 min"],
)  # fmt: skip
def test_what_is_no_limit_is_refused_in_one_line_that_names_what_is_one(text):
    with pytest.raises(BadInputError) as error:
        parse_limits(text)
    said = str(error.value)
    assert said.startswith(f"--limit {text!r}: ")
    assert "\n" not in said
    assert all(word in said for word in ("p50", "p99<20ms", "time<+3%", "ttft", "tpot", "ns", "us", "ms"))


def test_counts_are_those_of_consecutive_iterations():
    values = np.array([1.0, 1.005, 1.02, 1.0, 2.0, 0.5, 1.001])
    assert counts(values, 1.0, block=3) == ((4, 2, 1), (3, 2, 1))
    assert counts(values, 1.0, block=100) == ((7, 4, 2),)
    assert counts(np.ones(0), 1.0) == ()
    assert len(counts(np.ones(2000), 1.0)) == 20
    assert sum(n for n, _, _ in counts(np.ones(53), 1.0)) == 53


def test_a_share_of_independent_iterations_has_the_interval_of_jeffreys():
    found = share_over([(50, 1, 0)] * 20)
    assert found.value == pytest.approx(0.02)
    assert (found.low, found.high) == pytest.approx(tuple(beta(20.5, 980.5).ppf([0.025, 0.975])))
    assert share_over([(50, 1, 0)] * 20, far=True).value == 0
    assert share_over([]) == Estimate.null("no_iterations", "share")
    assert share_over([(50, 1, 0)]).low is None


def latencies(rng, n, rho):
    """Latencies whose logarithms are normal and correlate between neighbours by ``rho``, shape (n,)."""
    noise = rng.normal(size=n + 200) * np.sqrt(1 - rho**2)
    return np.exp(0.1 * lfilter([1.0], [1.0, -rho], noise)[200:])


def test_the_interval_of_a_share_covers_it_by_the_overdispersion_of_blocks():
    rng = np.random.default_rng(5)
    bound, hits, alone = float(np.exp(0.1 * ndtri(0.95))), 0, 0
    for _ in range(300):
        counted = counts(latencies(rng, 2000, 0.8), bound)
        found = share_over(counted)
        hits += found.low <= 0.05 <= found.high
        n, over = sum(one[0] for one in counted), sum(one[1] for one in counted)
        half = 1.96 * np.sqrt(over / n * (1 - over / n) / n)
        alone += abs(over / n - 0.05) <= half
    assert hits >= 0.93 * 300
    assert alone < 0.85 * 300


def test_independent_iterations_keep_their_coverage():
    rng = np.random.default_rng(6)
    hits = sum(found.low <= 0.05 <= found.high for found in (
        share_over(counts(rng.uniform(size=2000), 0.95)) for _ in range(300)
    ))  # fmt: skip
    assert hits >= fewest(300)


def test_a_verdict_needs_an_interval_on_one_side_of_the_limit():
    rng = np.random.default_rng(7)
    values = rng.lognormal(0.0, 0.1, 2000)
    (p99,) = np.quantile(values, [0.99])
    judged = [verdict(share_over(counts(values, bound)), 0.01) for bound in (p99 * 0.9, p99, p99 * 1.2)]
    assert judged == [EXCEEDS, UNDECIDED, MEETS]
    assert verdict(share_over(counts(values[:240], 10.0)), 0.01) == UNDECIDED  # none of 240: at most 1.04 %
    assert verdict(share_over(counts(values[:260], 10.0)), 0.01) == MEETS
    assert verdict(Estimate(0.5), 1.0) == UNDECIDED


def test_one_verdict_is_wrong_of_at_most_one_in_forty_settings_at_the_limit():
    rng = np.random.default_rng(8)
    bound = float(np.exp(0.1 * ndtri(0.99)))
    said = [verdict(share_over(counts(latencies(rng, 4000, 0.5), bound)), 0.01) for _ in range(300)]
    assert said.count(EXCEEDS) + said.count(MEETS) <= 0.05 * 300 + 2 * np.sqrt(300 * 0.05 * 0.95)
