"""Energies of spans of a record: those far from edges, across holes, after loose edges; reasons and sums."""

from dataclasses import replace

import numpy as np
import pytest

from covering import fewest
from jouletrace.attribution import span_energies
from jouletrace.errors import BadInputError
from jouletrace.run import Readings
from jouletrace.sensor import clean
from simulated_sampler import START_S, Load


def recorded(load, rng, without=(), **options):
    """The record of a load, cleaned, and the response; ``without`` are segments without readings, s."""
    times, values, response = load.record(rng, **options)
    lost = np.any([(times > a) & (times < b) for a, b in without], axis=0) if without else np.zeros(len(times), bool)
    stamps = np.round(times * 1e9).astype(np.int64)[~lost]
    record = clean(stamps, values[~lost], response.period_s)
    return replace(record, origin_ns=0), response


def ns(*edges_s):
    return np.round(np.array(edges_s) * 1e9).astype(np.int64)


def steps(rng, seconds, mean_s=0.05):
    """A load whose power changes at random, on for ``seconds``."""
    durations = rng.exponential(mean_s, int(2 * seconds / mean_s))
    durations = durations[: np.searchsorted(np.cumsum(durations), seconds)]
    return Load(durations, rng.uniform(100, 500, len(durations)))


def held(found, truth):
    return bool(found.low_j[0] <= truth <= found.high_j[0])


@pytest.mark.thorough
@pytest.mark.parametrize("mean_s", [0.05, 1.0])
def test_a_long_span_is_the_sum_of_its_readings_where_no_edge_is_near(mean_s):
    held_, off, half = [], [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        load = steps(rng, 20.0, mean_s)
        record, response = recorded(load, rng)
        begin, end = load.span
        found = span_energies(record, response, ns(begin), ns(end))
        truth = load.energy(begin, end)
        held_.append(held(found, truth))
        off.append(found.energy_j[0] / truth - 1)
        half.append((found.high_j[0] - found.low_j[0]) / 2 / truth)
    assert sum(held_) >= fewest(len(held_))
    assert np.std(off) < np.mean(half) < 0.01


def test_noise_of_readings_is_in_a_long_sum():
    """At 3 W in place of 0.3 a steady 20 s are as unsure as 1000 independent readings of 20 ms, at least."""
    rng = np.random.default_rng(1)
    load = Load([20.0], [300.0])
    record, response = recorded(load, rng)
    noisy = replace(record, value=record.value + 3 * rng.standard_normal(len(record)))
    found = span_energies(noisy, replace(response, noise_w=3.0), *map(ns, load.span))
    assert (found.high_j[0] - found.low_j[0]) / 2 > 1.9 * 3 * 0.02 * 900**0.5


def test_an_error_that_spans_have_in_common_is_in_each_and_adds_up():
    record, response = recorded(Load([2.0, 2.0], [300.0, 200.0]), np.random.default_rng(3))
    exact = span_energies(record, response, ns(START_S, START_S + 2), ns(START_S + 2, START_S + 4))
    off = exact.less_certain(0.1)
    for weights in ([1.0, 0.0], [0.0, 1.0], [1.0, 1.0]):
        (mean,), *ends = exact.sums(weights)
        (same,), *wider = off.sums(weights)
        (half,), (more,) = ((high - low) / 2 for low, high in (ends, wider))
        assert same == mean
        # Both are mixtures of normal distributions, whose quantiles don't add as normal ones do
        assert np.sqrt(more**2 - half**2) == pytest.approx(1.96 * 0.1 * mean, rel=0.03)


def test_changes_between_readings_are_in_a_long_sum():
    rng = np.random.default_rng(2)
    durations = np.full(400, 0.05)
    load = Load(durations, rng.choice([0.0, 500.0], 400))
    record, response = recorded(load, rng)
    found = span_energies(record, response, *map(ns, load.span))
    moved = np.diff(record.value)
    least = 1.9 * 0.02 * np.sqrt(np.sum(moved[50:-50] ** 2) / 6)
    assert (found.high_j[0] - found.low_j[0]) / 2 > least


@pytest.mark.thorough
def test_power_in_a_hole_is_not_known():
    """140 ms of 4 s are lost, in 80 of which the load paused: bridged at the mean power they would be 32 J too much."""
    rng = np.random.default_rng(3)
    load = Load([2.0, 0.08, 1.92], [400.0, 0.0, 400.0])
    begin, end = load.span
    whole, response = recorded(load, np.random.default_rng(3))
    holed, _ = recorded(load, rng, without=[(begin + 1.99, begin + 2.13)])
    one, other = (span_energies(record, response, ns(begin), ns(end)) for record in (whole, holed))
    truth = load.energy(begin, end)
    assert held(one, truth)
    assert held(other, truth)
    assert other.high_j[0] - other.low_j[0] > 4 * (one.high_j[0] - one.low_j[0])
    assert (one.flags[0], other.flags[0]) == ((), ("hole_in_record",))


def test_where_too_much_is_lost_there_is_no_energy():
    rng = np.random.default_rng(4)
    load = Load([2.0], [400.0])
    record, response = recorded(load, rng, without=[(START_S + 1.0, START_S + 1.3)])
    found = span_energies(record, response, ns(START_S, START_S + 1.5), ns(START_S + 2, START_S + 1.9))
    assert found.reason == ["hole_in_record", None]


@pytest.mark.thorough
def test_each_span_without_an_energy_has_its_reason():
    rng = np.random.default_rng(5)
    load = Load([1.0], [400.0])
    record, response = recorded(load, rng)
    end = float(record.time_s[-1])
    start = [START_S, START_S, end - 0.1, START_S + 0.5]
    found = span_energies(record, response, ns(*start), ns(START_S + 1, START_S, end + 1, START_S + 0.5001))
    assert found.reason == [None, "empty_window", "outside_record", "sensor_too_slow"]
    assert np.array_equal(found.has_energy, [True, False, False, False])
    assert np.isnan(found.energy_j[1:]).all()
    nothing = span_energies(Readings(np.empty(0, np.int64), np.empty(0)), response, ns(1.0), ns(2.0))
    assert nothing.reason == ["no_samples"]
    assert nothing.sources([1.0]) == {}
    with pytest.raises(BadInputError, match="do not go with"):
        span_energies(record, response, ns(1.0), ns(2.0, 3.0))


@pytest.mark.thorough
def test_sums_hold_what_spans_share():
    rng = np.random.default_rng(7)
    load = steps(rng, 4.0)
    record, response = recorded(load, rng)
    begin, end = load.span
    edges = np.linspace(begin, end, 9)
    found = span_energies(record, response, ns(*edges[:-1]), ns(*edges[1:]), bursts_ns=ns(begin, end))
    whole = span_energies(record, response, ns(begin), ns(end))
    value, low, high = (one[0] for one in found.sums(np.ones(8)))
    assert value == pytest.approx(whole.energy_j[0], rel=2e-3)
    assert low < load.energy(begin, end) < high
    sources = found.sources(np.ones(8))
    assert np.hypot(*sources.values()) == pytest.approx((high - low) / 2 / 1.96, rel=1e-3)
    assert found.some(np.array([2])).energy_j == found.energy_j[2]
