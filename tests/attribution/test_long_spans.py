"""Spans with more readings than are solved at once: their energies and intervals are those of spans solved whole."""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.attribution import span_energies
from jouletrace.run import Readings
from jouletrace.sensor import HOPPER_SENSOR, clean, shares

T0 = 1_700_000_000 * 10**9
H100 = shares.Response.sampled(HOPPER_SENSOR, 0.02)
MEANS = shares.Response(0.0, 0.02, 0.0, 0.02, 0.0, 0.5, 0.1, window_s=1.0)
COUNTER = shares.Response(0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.01, window_s=0.01, back_to_back=True)


def ns(seconds):
    return T0 + np.rint(np.asarray(seconds) * 1e9).astype(np.int64)


def record(power, seconds, response, noise=0.5, without=()) -> Readings:
    """Readings of ``power``, a function of seconds, and its energy up to each ms."""
    fine = np.arange(0, seconds, 1e-3)
    energy = np.append(0.0, np.cumsum(power(fine + 5e-4)) * 1e-3)
    upto = np.append(fine, fine[-1] + 1e-3)
    at = np.arange(response.period_s, seconds, response.period_s)
    if response.window_s:
        begin = np.maximum(at - response.window_s, 0.0)
        values = (np.interp(at, upto, energy) - np.interp(begin, upto, energy)) / (at - begin)
    else:
        values = shares.averaged(at - response.delay_s, fine, power(fine[:-1] + 5e-4), response)
    values = values + noise * np.random.default_rng(1).standard_normal(len(at))
    kept = ~np.any([(at > a) & (at < b) for a, b in without], axis=0) if without else np.ones(len(at), bool)
    return clean(ns(at[kept]), values[kept], response.period_s), lambda t: np.interp(t, upto, energy)


def slow(t):
    return 300 + 100 * np.sin(t / 7) + np.where(np.floor(t / 3.3) % 2, 50.0, 0.0)


def energy_of(readings, response, start, end):
    found = span_energies(readings, response, ns([start]), ns([end]))
    return (*(float(x[0]) for x in found.sums([1.0])), found)


@pytest.mark.thorough
def test_a_long_span_is_known_in_proportion_to_its_parts():
    readings, energy = record(slow, 100, H100)
    mean, low, high, _ = energy_of(readings, H100, 2.0, 97.0)
    assert low <= energy(97.0) - energy(2.0) <= high
    part, part_low, part_high, _ = energy_of(readings, H100, 2.0, 49.5)
    assert 0.5 * (part_high - part_low) / part < (high - low) / mean < 0.01


@pytest.mark.thorough
@pytest.mark.parametrize(("response", "seconds"), [(MEANS, 450), (COUNTER, 50)], ids=["means", "counter"])
def test_edges_of_a_long_span_are_those_of_a_load(response, seconds):
    """Idle for 3 s, then work until 3 s before the end."""
    readings, energy = record(lambda t: np.where((t > 3) & (t < seconds - 3), 500.0, 100.0), seconds, response)
    mean, low, high, _ = energy_of(readings, response, 3.0, seconds - 3.0)
    truth = energy(seconds - 3.0) - energy(3.0)
    assert low <= truth <= high
    assert mean == pytest.approx(truth, rel=3e-4)


@pytest.mark.thorough
def test_what_was_drawn_in_a_hole_of_a_long_span_is_as_unsure_as_in_a_short_one():
    def power(t):
        return np.where(np.floor(t / 5) % 2, 400.0, 200.0)

    (holed, _), (longer, energy) = (record(power, seconds, H100, without=[(18.0, 19.5)]) for seconds in (50, 95))
    _, low, high, found = energy_of(longer, H100, 1.0, 93.0)
    assert found.flags == [("hole_in_record",)]
    _, short_low, short_high, _ = energy_of(holed, H100, 1.0, 49.0)
    assert low <= energy(93.0) - energy(1.0) <= high
    assert high - low > 0.8 * (short_high - short_low)


@pytest.mark.thorough
def test_long_and_short_spans_of_a_record_go_together():
    readings, energy = record(slow, 450, MEANS)
    found = span_energies(readings, MEANS, ns([2.0, 20.0]), ns([440.0, 30.0]))
    mean, low, high = found.sums([1.0, -1.0])
    truth = energy(440.0) - energy(2.0) - energy(30.0) + energy(20.0)
    assert low[0] <= truth <= high[0]
    assert mean[0] == pytest.approx(found.energy_j[0] - found.energy_j[1])
    assert found.has_energy.all()


@pytest.mark.thorough
def test_spans_that_begin_with_a_reading_s_window_are_solved():
    """Where cuts of spans and of windows differ by a rounding, the system is singular."""
    response = shares.Response(0.0, 0.0, 0.0, 0.0, 0.0, 0.3, 0.02, window_s=0.02)
    begin = 3.0 + 120 * np.arange(4)
    at = (begin[:, None] + np.arange(0, 60, 0.02)).ravel()
    readings = clean(ns(at), 300 + np.random.default_rng(0).normal(0, 1, len(at)), 0.02)
    found = span_energies(readings, response, ns(begin - 0.02), ns(begin + 59.98))
    assert found.energy_j == pytest.approx([18000.0] * 4, rel=1e-3)


@pytest.mark.thorough
@pytest.mark.parametrize("response", [replace(MEANS, period_s=0.001, window_s=0.001), replace(H100, period_s=0.001)])
def test_readings_next_to_a_span_count_however_short_a_period_is_stated(response):
    """A period of 1 ms, read each 100 ms: no reading is within so many periods of an edge."""
    read = clean(ns(np.arange(0.0, 60.0, 0.1)), 300 + np.random.default_rng(0).standard_normal(600), 0.1)
    long, short = (
        span_energies(read, response, ns([begin]), ns([end])) for begin, end in ((5.03, 55.03), (9.03, 9.07))
    )
    assert long.low_j[0] / 50 < 300 < long.high_j[0] / 50
    assert short.reason[0] or short.low_j[0] / 0.04 < 300 < short.high_j[0] / 0.04
