"""Energies of logs, whose readings are momentary and far apart: intervals hold, equal readings prove nothing."""

import numpy as np
import pytest

from jouletrace.attribution import log_chain
from jouletrace.attribution.log_chain import log_energies
from jouletrace.attribution.outcome import ALIASED_LOG
from jouletrace.attribution.spans import span_energies
from jouletrace.sensor import shares
from jouletrace.sensor.power_record import clean


def log(distances, seed, readings=300, offset=0.0):
    """Readings each second of a load between 100 and 300 W, which changes at such distances, and its true energy."""
    rng = np.random.default_rng(seed)
    edges = np.append(0, np.cumsum(distances(rng, 9000))) + offset
    watts = np.where(np.arange(len(edges) - 1) % 2, 100.0, 300.0)
    times = 5.0 + np.arange(readings)
    values = watts[np.searchsorted(edges, times, side="right") - 1] + 0.3 * rng.standard_normal(readings)
    energy = np.append(0, np.cumsum(watts * np.diff(edges)))
    return times, values, float(np.diff(np.interp(times[[0, -1]], edges, energy))[0])


def judged(distances, count=14, **more):
    """Share of intervals that hold, and their median half-width over the energy."""
    holds, half = [], []
    for seed in range(count):
        times, values, truth = log(distances, seed, **more)
        found = log_energies(times, values, [[times[0], times[-1]]])
        _, low, high = found.interval()
        holds.append(low[0] <= truth <= high[0])
        half.append((high[0] - low[0]) / 2 / truth)
    return np.mean(holds), np.median(half)


def at_random(mean_s, shape=14.0):
    return lambda rng, count: rng.gamma(shape, mean_s / shape, count)


def periodic(period_s, duty=0.4):
    return lambda rng, count: np.resize(period_s * np.array([duty, 1 - duty]), count)


@pytest.mark.thorough
@pytest.mark.parametrize("mean_s", [0.05, 0.5, 5.0, 20.0])
def test_intervals_of_random_loads_hold(mean_s):
    holds, half = judged(at_random(mean_s))
    assert holds >= 0.85
    assert half < 0.1


def test_intervals_of_independent_changes_hold():
    holds, half = judged(at_random(5.0, shape=1.0))
    assert holds >= 0.85
    assert half < 0.03


def test_cycles_near_the_time_between_readings_are_not_taken_for_slow_change(monkeypatch):
    monkeypatch.setattr(log_chain, "_HIDDEN_MEMORY", 0.0)
    holds, _ = judged(at_random(0.5))
    assert holds < 0.7


def test_changes_at_like_distances_are_not_taken_for_cycles_between_readings(monkeypatch):
    _, half = judged(at_random(3.0), count=7)
    monkeypatch.setattr(log_chain, "_partial", lambda values_w: 0.0)
    _, wider = judged(at_random(3.0), count=7)
    assert wider > 1.5 * half


@pytest.mark.thorough
@pytest.mark.parametrize("period_s", [0.95, 1.05, 1.7, 9.5, 10.0])
def test_edges_of_periodic_loads_meet_readings_at_few_phases(period_s):
    holds = [judged(periodic(period_s), count=5, offset=offset)[0] for offset in (0.03, 0.31, 0.77)]
    assert np.mean(holds) >= 0.9


@pytest.mark.thorough
def test_their_errors_add_up(monkeypatch):
    monkeypatch.setattr(log_chain, "_coherent", lambda turns: 1.0)
    holds = [judged(periodic(10.0, 0.55), count=2, offset=offset)[0] for offset in np.linspace(0, 0.9, 10)]
    assert np.mean(holds) < 0.7


@pytest.mark.parametrize("period_s", [0.1, 0.5, 1.0])
def test_equal_readings_prove_nothing(period_s):
    times, values, _ = log(periodic(period_s), 1, offset=0.013)
    assert log_energies(times, values, [[times[0], times[-1]]]).reason == ALIASED_LOG


def test_one_change_may_be_a_load_that_slips_against_the_log():
    times, values = np.arange(100.0), np.where(np.arange(100) < 40, 100.0, 300.0)
    assert log_energies(times, values, [[10.0, 90.0]]).reason == ALIASED_LOG


def test_changes_with_the_moments_of_polls_are_those_of_an_aliased_load():
    rng = np.random.default_rng(2)
    times = np.arange(200.0) + 0.003 * rng.uniform(-1, 1, 200)
    cycles = ((times - 5e-5 * np.arange(200)) / 0.1 + 0.03) % 1
    values = np.where(cycles < 0.4, 300.0, 100.0) + 0.3 * rng.standard_normal(200)
    assert np.count_nonzero(np.diff(values) > 100) > 10
    assert log_energies(times, values, [[10.0, 190.0]]).reason == ALIASED_LOG
    shuffled = np.arange(200.0) + rng.permutation(times - np.arange(200.0))
    assert not log_energies(shuffled, values, [[10.0, 190.0]]).reason


def test_energies_of_parts_are_those_of_the_whole():
    times, values, _ = log(at_random(5.0), 3)
    found = log_energies(times, values, [[10.0, 60.5], [60.5, 200.0], [10.0, 200.0]])
    mean, low, high = found.interval([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, -1]])
    assert mean[0] + mean[1] == pytest.approx(mean[2])
    assert high[3] - low[3] < 1e-2
    assert high[0] - low[0] < high[2] - low[2] < high[0] - low[0] + high[1] - low[1]


def test_a_level_that_readings_show_well_is_known_between_them():
    rng = np.random.default_rng(5)
    times = np.arange(0.0, 300.0)

    def slow(t):
        return 200 + 60 * np.sin(t / 17) + 30 * np.sin(t / 41)

    found = log_energies(times, slow(times) + 0.3 * rng.standard_normal(300), [[20.25, 250.75]])
    fine = np.arange(20.25, 250.75, 0.01)
    mean, low, high = found.interval()
    assert mean[0] == pytest.approx(slow(fine).sum() * 0.01, rel=1e-3)
    assert high[0] - low[0] < 0.02 * mean[0]


def test_long_logs_choose_their_grid_by_a_part():
    times, values, truth = log(at_random(5.0), 4, readings=9000)
    found = log_energies(times, values, [[times[0], times[-1]]])
    mean, low, high = found.interval()
    assert low[0] <= truth <= high[0]
    assert high[0] - low[0] < 0.008 * mean[0]


@pytest.mark.parametrize("mean_s", [0.5, 3.0])
def test_energies_go_with_the_units_of_time_and_power(mean_s):
    """A log that is read each 50 ms, of twice the power."""
    times, values, _ = log(at_random(mean_s), 3, readings=100)
    spans = np.array([[10.0, 12.3], [30.0, 90.0]])
    plain, scaled = log_energies(times, values, spans), log_energies(0.05 * times, 2 * values, 0.05 * spans, 1.0)
    np.testing.assert_allclose(scaled.interval(), 0.1 * np.array(plain.interval()), rtol=1e-4)


@pytest.mark.parametrize(("distances", "factor"), [(periodic(10.0), 29 * 0.97), (at_random(5.0, 62.0), 1.0)])
def test_errors_of_edges_that_meet_readings_at_one_phase_add_up_whole(monkeypatch, distances, factor):
    """29 periods of ten readings: 29 times the variance, less what is beyond the twentieth harmonic.

    Where changes scatter by 0.9 readings their errors are independent.
    """
    times, values, _ = log(distances, 1, offset=0.31)
    found = log_energies(times, values, [[times[0], times[-1]]]).covariance
    monkeypatch.setattr(log_chain, "_coherent", lambda turns: 1.0)
    plain = log_energies(times, values, [[times[0], times[-1]]]).covariance
    np.testing.assert_allclose(found / plain, factor, rtol=0.02)


def day(jobs=(3000,), level_w=600.0, count=20_000, length=400, seed=1):
    """Readings each 5 s, of a log that idles at 70 W but for jobs that swing by two fifths of their level."""
    rng = np.random.default_rng(seed)
    watts = 70 + 0.4 * rng.standard_normal(count)
    for at in jobs:
        cycle = (5 * np.arange(length) + np.cumsum(rng.normal(0, 0.7, length))) % 21.3
        watts[at : at + length] = np.where(cycle < 17, level_w, 0.6 * level_w) + 6 * rng.standard_normal(length)
    return 5.0 * np.arange(count), watts


def half_j(times, values, span=None):
    _, low, high = log_energies(times, values, [span or [times[0], times[-1]]]).interval()
    return (high[0] - low[0]) / 2


def test_idle_time_does_not_narrow_the_interval_of_a_job():
    times, values = day()
    job = half_j(times[3000:3400], values[3000:3400])
    assert half_j(times, values) == pytest.approx(job, rel=0.06)
    assert half_j(times, values, [times[3000], times[3399]]) == pytest.approx(job, rel=0.03)


@pytest.mark.parametrize("other_w", [600.0, 250.0])
def test_errors_of_jobs_add_as_independent(other_w):
    (times, one), (_, other) = day(), day((12_000,), level_w=other_w, seed=2)
    both = np.where(np.arange(len(times)) < 9000, one, other)
    assert half_j(times, both) == pytest.approx(np.hypot(half_j(times, one), half_j(times, other)), rel=0.06)


@pytest.mark.parametrize("length", [300, 10])
def test_a_change_of_a_load_that_is_still_lies_anywhere_between_two_readings(length):
    times = 5.0 * np.arange(900)
    values = np.where((times >= 2000) & (times < 2000 + 5 * length), 600.0, 70.0)
    # two steps of 530 W, each 5 s wide, beside noise of 0.5 W of 900 readings
    expected = 1.96 * 5 * np.sqrt(2 * 530**2 / 12 + 900 * 0.5**2)
    assert half_j(times, values) == pytest.approx(expected, rel=1e-3)


def test_what_comes_and_goes_while_power_is_still_counts_whole():
    """Readings that fluctuate by 30 W, beside a level of 800 W, may be of swings that no reading shows."""
    rng = np.random.default_rng(4)
    times, values = 5.0 * np.arange(1500), np.repeat([100.0, 800.0], 750) + 15 * rng.uniform(-1, 1, 1500)
    expected = 1.96 * 5 * np.sqrt(1500 * (15**2 / 3 + 0.5**2) + 700**2 / 12)
    assert half_j(times, values) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(("first", "beside_w"), [(3100, 552.0), (3023, 552.0), (8000, 70.0)])
def test_power_in_a_hole_is_near_to_that_beside_it_and_may_be_any_that_the_log_shows(first, beside_w):
    times, values = day()
    kept = np.r_[:first, first + 100 : len(times)]
    span = [times[first], times[first + 99]]
    found = log_energies(times[kept], values[kept], [span])
    (mean,), (low,), (high,) = found.interval()
    assert mean / 495 == pytest.approx(beside_w, abs=20)
    assert low / 495 < 75
    assert high / 495 > 595
    assert found.sources(np.ones((1, 1)))["holes of the record"] > 0.9 * (high - low) / 3.92


@pytest.mark.parametrize(("seconds", "most"), [(40, 0.015), (200, 0.005)])
def test_a_log_of_means_over_a_second_is_known_as_well_as_its_sum(seconds, most):
    """``power.draw`` of an H100: the mean over the last second, up to 0.1 s old as it is read each second."""
    response = shares.Response(0.0, 0.02, 0.05, 0.04, 0.0, 0.5, 1.0, window_s=1.0, jitter_s=0.029)
    holds, half = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        edges = np.append(0, np.cumsum(rng.gamma(4.0, rng.choice([0.05, 0.25, 1.25]), 10_000)))
        watts = np.where(np.arange(10_000) % 2, 100.0, rng.uniform(300, 600))
        times = np.arange(2 + rng.random(), seconds + 8)
        upto = np.append(0, np.cumsum(watts * np.diff(edges)))
        end = times - rng.uniform(0, 0.1, len(times))
        values = np.interp(end, edges, upto) - np.interp(end - 1, edges, upto)
        read = clean((times * 1e9).astype(np.int64) + 10**18, values, 1.0)
        span = np.array([5.3, 5.3 + seconds])
        start, stop = (span * 1e9).astype(np.int64) + 10**18
        found = span_energies(read, response, [start], [stop], bursts_ns=[])
        holds.append(found.low_j[0] <= np.diff(np.interp(span, edges, upto))[0] <= found.high_j[0])
        half.append((found.high_j[0] - found.low_j[0]) / 2 / found.energy_j[0])
    assert np.mean(holds) >= 0.9
    assert np.median(half) < most
