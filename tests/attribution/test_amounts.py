"""Energies of a unit of what a load does, and of windows of a load that moves all the time."""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.attribution import attribute_amounts
from jouletrace.attribution.amounts import of_known
from jouletrace.attribution.attribute import attribute
from jouletrace.attribution.prior import MOVING
from jouletrace.sensor import Response, Timeline, averaged

LOW_PASS = Response(0.0126, 0.04, 0.003, 2e-4, 1 / 16, 0.3, 0.02)
UNITS = np.array([0.5, 0.02])  # of a step, and of a token in it
IDLE_W = 120.0


def steps(rng, count=1500):
    """Steps one after another with pauses before, after and in the middle; readings of them, and the pauses' edges."""
    lasts_s = rng.uniform(0.01, 0.04, count)
    start_s = 5 + np.append(0, np.cumsum(lasts_s)[:-1]) + 5.0 * (np.arange(count) >= count // 2)
    tokens = np.where(rng.random(count) < 0.2, rng.integers(50, 800, count), 0)
    kind = np.repeat([0, 1], count)
    rate = np.concatenate([1 / lasts_s, tokens / lasts_s])
    timeline = Timeline(np.tile(start_s, 2), np.tile(start_s + lasts_s, 2), kind, rate=rate)
    end_s = start_s + lasts_s
    bursts = np.array([[start_s[0], end_s[count // 2 - 1]], [start_s[count // 2], end_s[-1]]])
    return timeline, bursts


def read(timeline, response, rng, spread=0.0, times_s=None):
    """Times and readings of these steps; each step costs by ``spread`` more or less than its amounts say."""
    time_s = np.arange(0.1, timeline.end_s[-1] + 5, response.period_s) if times_s is None else times_s
    factor = np.tile(1 + spread * rng.standard_normal(len(timeline.start_s) // 2), 2)
    own = replace(timeline, kind=np.zeros(len(timeline.kind), int), rate=timeline.rate * UNITS[timeline.kind] * factor)
    cuts = np.unique(np.concatenate([[0.0], own.start_s, own.end_s, [time_s[-1] + 1]]))
    level = IDLE_W + own.seconds(cuts)[:, 0] / np.diff(cuts)
    shown = averaged(time_s - response.delay_s, cuts, level, response)
    return time_s, shown + rng.normal(0, response.noise_w, len(time_s))


def test_amounts_per_second_count_as_often_as_intervals_of_one():
    timeline = Timeline(np.array([0.0, 1.0]), np.array([2.0, 3.0]), np.array([0, 0]), rate=np.array([1.0, 10.0]))
    assert timeline.seconds(np.array([0.0, 0.5, 1.0, 2.0, 3.0]))[:, 0] == pytest.approx([0.5, 0.5, 11, 10])


@pytest.mark.thorough
def test_units_hold_their_truth():
    inside = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        timeline, bursts = steps(rng)
        found = attribute_amounts(*read(timeline, LOW_PASS, rng, 0.1), timeline, response=LOW_PASS, bursts=bursts)
        half = 1.96 * np.sqrt(np.diag(found.covariance))
        assert found.value == pytest.approx(np.append(IDLE_W, UNITS), rel=0.05)
        inside.append(np.abs(found.value - np.append(IDLE_W, UNITS)) < half)
    assert np.mean(inside) >= 0.8


def test_a_kind_without_energy_has_none_below_zero():
    rng = np.random.default_rng(1)
    timeline, bursts = steps(rng)
    times_s, watts = read(replace(timeline, rate=np.where(timeline.kind == 1, 0.0, timeline.rate)), LOW_PASS, rng, 0.1)
    assert attribute_amounts(times_s, watts, timeline, response=LOW_PASS, bursts=bursts).value[2] >= 0


@pytest.mark.thorough
@pytest.mark.parametrize("unsure", [{"delay_sd_s": 0.01}, {"width_sd": 0.5}])
def test_units_are_less_certain_by_a_sensor_that_is_less_known(unsure):
    rng = np.random.default_rng(2)
    timeline, bursts = steps(rng)
    record = read(timeline, LOW_PASS, rng)
    known, other = (
        attribute_amounts(*record, timeline, response=one, bursts=bursts)
        for one in (LOW_PASS, replace(LOW_PASS, **unsure))
    )
    assert other.covariance[1, 1] > 4 * known.covariance[1, 1]


@pytest.mark.thorough
def test_units_are_less_certain_by_a_cost_that_changes():
    """A token costs 1.5 times as much in the second half, and no chain in time knows that it is the token's."""
    rng = np.random.default_rng(6)
    timeline, bursts = steps(rng, 600)
    later = (timeline.kind == 1) & (timeline.start_s >= bursts[1, 0])
    dearer = replace(timeline, rate=timeline.rate * np.where(later, 1.5, 1.0))
    same, other = (
        attribute_amounts(*read(load, LOW_PASS, rng), timeline, response=LOW_PASS, bursts=bursts)
        for load in (timeline, dearer)
    )
    assert other.covariance[2, 2] > 10 * same.covariance[2, 2]


@pytest.mark.thorough
def test_readings_of_a_moment_show_units_too():
    rng = np.random.default_rng(3)
    timeline, bursts = steps(rng, 6000)
    moment = replace(LOW_PASS, rise_s=0.0, weight=1.0, delay_s=0.0)
    short = replace(moment, rise_s=1e-5)
    found = attribute_amounts(*read(timeline, short, rng), timeline, response=moment, bursts=bursts)
    assert found.value == pytest.approx(np.append(IDLE_W, UNITS), rel=0.1)


def test_two_gpus_with_the_same_load_add_up():
    rng = np.random.default_rng(4)
    timeline, bursts = steps(rng, 600)
    one = attribute_amounts(*read(timeline, LOW_PASS, rng), timeline, response=LOW_PASS, bursts=bursts)
    assert (one + one).value == pytest.approx(2 * one.value)
    assert (one + one).covariance == pytest.approx(2 * one.covariance)


def test_units_of_spans_whose_energies_are_known():
    rng = np.random.default_rng(5)
    amounts = np.column_stack([np.ones(500), rng.integers(0, 500, 500)])
    energies_j = amounts @ UNITS * (1 + 0.1 * rng.standard_normal(500))
    value, covariance = of_known(amounts, energies_j)
    assert value == pytest.approx(UNITS, rel=0.1)
    assert (np.abs(value - UNITS) < 2.5 * np.sqrt(np.diag(covariance))).all()


@pytest.mark.thorough
def test_windows_of_a_load_with_rare_peaks_have_the_energy_of_their_readings():
    """Readings at peaks weigh as much as those beside them."""
    rng = np.random.default_rng(0)
    count = 200
    start_s = 2 + np.sort(rng.uniform(0, 20, count))
    peaks = Timeline(start_s, start_s + rng.uniform(0.01, 0.04, count), np.zeros(count, int))
    cuts = np.unique(np.concatenate([[0.0, 25.0], peaks.start_s, peaks.end_s]))
    level = IDLE_W + 250.0 * peaks.seconds(cuts)[:, 0] / np.diff(cuts)
    time_s = np.arange(0.1, 24.5, LOW_PASS.period_s)
    watts = averaged(time_s - LOW_PASS.delay_s, cuts, level, LOW_PASS) + rng.normal(0, 0.3, len(time_s))
    truth = float(np.diff(np.interp([4.0, 20.0], cuts, np.append(0.0, np.cumsum(level * np.diff(cuts)))))[0])
    shown = (time_s > 4.0 + LOW_PASS.delay_s + LOW_PASS.rise_s) & (time_s < 20.0 + LOW_PASS.delay_s + LOW_PASS.rise_s)
    edges = np.linspace(4, 20, 11)
    spans = np.stack([edges[:-1], edges[1:]], axis=1)
    found = attribute(time_s, watts, spans, response=LOW_PASS, bursts=[[2.0, 22.0]], prior=MOVING)
    (mean,), (low,), (high,) = found.interval(np.ones(10))
    assert mean == pytest.approx(watts[shown].sum() * LOW_PASS.period_s, rel=2e-3)
    assert low < truth < high
    assert (high - low) / 2 < 0.02 * mean
