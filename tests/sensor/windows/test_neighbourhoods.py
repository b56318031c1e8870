"""Which windows have an energy, which readings and edges count for one, and what long windows consist of."""

from dataclasses import replace

import numpy as np
import pytest

from energy_signals import ns
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.power_record import clean
from jouletrace.sensor.windows import energy as windows
from jouletrace.sensor.windows.energy import _chunks, _Edges, window_energy
from jouletrace.sensor.windows.neighbourhoods import Neighbourhoods
from jouletrace.sensor.windows.posterior import Posterior
from jouletrace.sensor.windows.segments import stretches

KNOWN = StepResponse(0.02, 0.025, lag_s=0.005, origin="calibrated", noise_w=0.3, wander_relative=0.005)
DELAY = 0.0175


def record(seconds=10.0, watts=300.0, missing=(), noise=0.3):
    time = np.arange(0.0, seconds, 0.02)
    keep = np.ones(len(time), bool)
    for begin, end in missing:
        keep &= (time <= begin) | (time >= end)
    power = watts + noise * np.random.default_rng(0).normal(size=len(time))
    return clean(ns(time[keep]), power[keep], 0.02)


def energies(*spans, given=None, response=KNOWN, edges=()):
    start, end = (np.array(column) for column in zip(*spans, strict=True))
    return window_energy(given or record(), response, ns(start), ns(end), edges_ns=ns(list(edges)))


@pytest.mark.parametrize(("off", "reason"), [(-1e-4, None), (1e-4, "outside_record")])
def test_a_record_speaks_from_half_a_period_before_what_its_readings_saw(off, reason):
    """A reading stands for the period about the middle of what it saw, its delay before the stamp."""
    first, last = 0.0 - DELAY - 0.01, 9.98 - DELAY + 0.01
    assert energies((first - off, 5.0)).reason == [reason]
    assert energies((5.0, last + off)).reason == [reason]


@pytest.mark.parametrize(("length", "reason"), [(0.099, "hole_in_record"), (0.101, None)])
def test_a_hole_may_take_a_twentieth_of_a_window(length, reason):
    """One of 100 ms, in a window of twenty times as much and a little more or less."""
    holed = record(missing=[(5.0, 5.1)])
    assert holed.hole_seconds([ns(4.0)], [ns(6.0)]) == pytest.approx([0.1])
    found = energies((5.05 - 10 * length, 5.05 + 10 * length), given=holed)
    assert found.reason == [reason]


def test_energy_in_a_hole_is_anything_up_to_twice_the_mean():
    whole, holed = (energies((3.0, 7.0), given=one) for one in (record(), record(missing=[(5.0, 5.1)])))
    assert whole.flags == [()]
    assert holed.flags == [("hole_in_record",)]
    added = np.sqrt(holed.sd_statistical_j**2 - whole.sd_statistical_j**2)
    assert added == pytest.approx([0.1 * 300.0 / np.sqrt(3)], rel=0.02)


def test_a_window_that_ends_where_it_starts_is_empty():
    assert energies((5.0, 5.0), (5.0, 4.0), (5.0, 6.0)).reason == ["empty_window", "empty_window", None]


def unsure(share):
    """Energies of 300 J with a standard deviation of this share of them, and its limits."""
    doubted = replace(KNOWN, covariance=((0.0, 0, 0), (0, 0, 0), (0, 0, 0)), noise_w=0.0, wander_relative=0.0)
    edges = _Edges(record(), doubted, ns([5.0, 6.0]))

    class Sure(_Edges):
        def __init__(self, *_):
            self.__dict__.update(edges.__dict__)

        def energies(self, a, b, response):
            one = np.ones(len(a))
            return Posterior(300.0 * one, (300.0 * share * one) ** 2, one, one), np.zeros(len(a), bool)

    return Sure


@pytest.mark.parametrize(("share", "reason"), [(0.239, None), (0.241, "sensor_too_slow")])
def test_an_interval_as_wide_as_the_energy_is_none(monkeypatch, share, reason):
    """Half of it to either side: 2.086 standard deviations of 24 %."""
    monkeypatch.setattr(windows, "_Edges", unsure(share))
    assert energies((5.0, 6.0)).reason == [reason]


@pytest.mark.parametrize(("strain", "reason"), [(3.9, None), (4.1, "edges_too_dense")])
def test_edges_that_are_too_many_are_dense_if_readings_fit_four_times_worse_than_chance(monkeypatch, strain, reason):
    monkeypatch.setattr(windows, "_Edges", judged(1.0, strain, True))
    assert energies((5.0, 6.0)).reason == [reason]


def judged(misfit, strain, crowded):
    class Judged(_Edges):
        def energies(self, a, b, response):
            one = np.ones(len(a))
            return Posterior(300.0 * one, one, misfit * one, strain * one), np.full(len(a), crowded)

    return Judged


def test_readings_left_out_as_implausible_count_until_they_are_forgotten():
    """A reading speaks of what was before its stamp: by 52.5 ms here, a memory and a period."""
    time = np.arange(0.0, 10.0, 0.02)
    power = np.where(np.arange(500) == 250, 1e6, 300.0)  # at 5 s
    given = clean(ns(time), power, 0.02, most_w=2000.0)
    reach = KNOWN.memory_s + KNOWN.period_s
    assert reach == pytest.approx(0.05)
    found = energies(
        (3.0, 4.9), (3.0, 5.0 - reach - 1e-4), (3.0, 5.0 - reach + 1e-4), (4.9, 6.0), (5.001, 6.0), given=given
    )
    assert ["implausible_readings" in flags for flags in found.flags] == [False, False, True, True, False]


def test_stamps_late_by_half_a_period_are_of_an_unknown_slot():
    time = 0.02 * np.arange(500)
    late = np.where(np.arange(500) == 250, 0.0089, 0.0)
    late[300] = 0.0092
    response = replace(KNOWN, stamp_grid=2, jitter_s=0.001)
    found = _Edges(clean(ns(time + late), np.full(500, 300.0), 0.02), response, ns([5.0]))
    assert found.time_sd[[249, 250]].tolist() == [0.001, 0.001]
    assert found.time_sd[300] == pytest.approx(0.005)
    assert found.time == pytest.approx(time, abs=2e-4)


@pytest.mark.parametrize(("apart", "kept"), [(0.00039, 1), (0.00041, 2)])
def test_edges_within_a_fiftieth_of_a_period_are_one(apart, kept):
    assert len(_Edges(record(), KNOWN, ns([5.0, 5.0 + apart])).edges) == kept


def test_windows_are_taken_together_by_their_length():
    length = np.random.default_rng(0).uniform(size=300)
    index = np.arange(0, 300, 2)
    found = _chunks(index, length)
    assert [len(part) for part in found] == [128, 22]
    ordered = np.concatenate(found)
    assert sorted(ordered.tolist()) == index.tolist()
    assert np.all(np.diff(length[ordered]) >= 0)


def neighbourhoods(response=KNOWN, edges=(5.0,), seconds=10.0, watts=(100.0, 500.0)):
    time = np.arange(0.0, seconds, response.period_s)
    jumps = np.diff(np.resize(watts, len(edges) + 1))
    power = watts[0] + response.step(time[:, None] - np.array(edges)) @ jumps
    between = stretches(time, power, np.array(edges), response)
    return Neighbourhoods(time, np.zeros(len(time)), power, between, response)


def test_readings_are_summed_over_the_periods_that_they_stand_for():
    near = neighbourhoods()
    assert near.cells[:2] == pytest.approx([-DELAY - 0.01, -DELAY + 0.01])
    assert near.cells[-1] == pytest.approx(9.98 - DELAY + 0.01)
    assert near.plain_sum(np.array([1.0, 4.0]), np.array([3.0, 6.0])) == pytest.approx([200.0, 100 + 500], abs=5.0)
    assert near.margin == pytest.approx(2 * 0.03 + 0.08)


@pytest.mark.parametrize(
    ("response", "width"),
    [(StepResponse(0.02, 0.025), 0.02), (StepResponse(0.02, 0.005), 0.01), (StepResponse(0.1, 0.075), 0.075)],
)
def test_bins_are_an_eighth_of_what_a_reading_sees_and_of_half_a_period_to_one(response, width):
    assert neighbourhoods(response).bin == pytest.approx(width / 8)


def test_around_an_edge_readings_whose_memory_lies_in_the_grid_count():
    near = neighbourhoods(edges=(5.0, 5.5, 9.0))
    problems, crowded, index = near._cut(np.array([4.8, 5.2]), np.array([5.2, 5.8]), np.array([5.0, 5.5]))
    real = np.isfinite(problems.noise_w)
    for row, (left, right) in enumerate(((4.8, 5.2), (5.2, 5.8))):
        time = problems.time_s[row, real[row]]
        inside = (near.time >= left + KNOWN.memory_s) & (near.time < right + KNOWN.lag_s)
        assert time == pytest.approx(near.time[inside])
        assert near.time[index[row, real[row]]].tolist() == time.tolist()
        assert problems.power_w[row, real[row]].tolist() == near.power[inside].tolist()
        # the prior of levels: twice what readings span, and the largest of them, and a watt
        seen = near.power[inside]
        assert problems.scale_w[row] == pytest.approx(2 * np.ptp(seen) + seen.max() + 1.0)
    assert not crowded.any()
    assert problems.bounds()[:, 0].tolist() == [4.8, 5.2]
    assert problems.bounds()[1, -1] >= 5.8
    assert np.nan_to_num(problems.edge_s)[:, 0].tolist() == [5.0, 5.5]
    assert problems.jump_w[:, 0] == pytest.approx([400.0, -400.0])


def test_of_too_many_edges_the_nearest_count():
    edges = 4.0 + 0.01 * np.arange(60)
    near = neighbourhoods(edges=tuple(edges))
    problems, crowded, _ = near._cut(np.array([3.9, 4.0, 3.9]), np.array([4.7, 4.205, 4.7]), np.array([4.3, 4.1, 3.95]))
    late, _, _ = near._cut(np.array([3.9]), np.array([4.7]), np.array([4.58]))
    assert late.edge_s[0] == pytest.approx(edges[36:])
    assert crowded.tolist() == [True, False, True]
    kept = [row[np.isfinite(row)] for row in problems.edge_s]
    assert [len(row) for row in kept] == [24, 21, 24]
    assert kept[0] == pytest.approx(edges[18:42])
    assert kept[2] == pytest.approx(edges[:24])


def test_a_long_window_is_a_sum_and_what_it_misses_at_its_ends():
    """As if all of it were inferred from the readings at once."""
    near = neighbourhoods(edges=(4.0, 5.0))
    start, end = np.array([4.0]), np.array([5.0])
    by_parts, _ = near.ends(start, end)
    whole, _ = near.whole(start, end)
    assert by_parts.mean == pytest.approx([500.0], rel=1e-3)
    assert by_parts.mean == pytest.approx(whole.mean, abs=3 * float(np.sqrt(whole.variance[0])))
    assert by_parts.variance == pytest.approx(whole.variance, rel=0.5)


def test_which_windows_are_long(monkeypatch):
    """Those with more than twice the margin between their ends, and a period."""
    taken = []
    for name in ("whole", "ends"):
        made = getattr(Neighbourhoods, name)

        def seen(self, a, b, made=made, name=name):
            taken.extend((name, round(float(x), 4)) for x in b - a)
            return made(self, a, b)

        monkeypatch.setattr(Neighbourhoods, name, seen)
    long = 2 * (2 * 0.03 + 0.08) + 0.02
    energies((4.0, 4.0 + long - 0.001), (6.0, 6.0 + long + 0.001), edges=[4.0, 6.0])
    assert taken == [("whole", round(long - 0.001, 4)), ("ends", round(long + 0.001, 4))]


def test_around_the_first_edge_of_a_record_its_first_reading_counts():
    near = neighbourhoods(edges=(0.03,))
    problems, _, _ = near._cut(np.array([-0.2]), np.array([0.2]), np.array([0.0]))
    real = np.isfinite(problems.noise_w[0])
    assert problems.time_s[0, real] == pytest.approx(near.time[near.time < 0.2 + KNOWN.lag_s])
    assert problems.power_w[0, real][0] == 100.0
    assert problems.change_w[0, real] == pytest.approx(np.gradient(near.power)[: real.sum()])


def test_two_readings_are_enough_for_a_window_between_them():
    given = clean(ns(np.array([0.0, 0.02])), np.array([300.0, 300.0]), 0.02)
    found = window_energy(given, StepResponse(0.02, 0.02, noise_w=0.1), [ns(0.0)], [ns(0.01)], edges_ns=[])
    assert found.reason == [None]
    assert found.energy_j == pytest.approx([3.0], rel=1e-3)


def test_around_the_last_edge_of_a_record_its_last_reading_counts():
    near = neighbourhoods(edges=(9.95,))
    problems, _, _ = near._cut(np.array([9.8]), np.array([10.2]), np.array([10.0]))
    real = np.isfinite(problems.noise_w[0])
    inside = near.time >= 9.8 + KNOWN.memory_s
    assert problems.time_s[0, real] == pytest.approx(near.time[inside])
    assert problems.power_w[0, real] == pytest.approx(near.power[inside])


def test_levels_about_which_no_reading_speaks_are_free_to_a_watt():
    problems, _, _ = neighbourhoods()._cut(np.array([20.0]), np.array([20.4]), np.array([20.2]))
    assert not np.isfinite(problems.noise_w).any()
    assert problems.scale_w.tolist() == [1.0]
