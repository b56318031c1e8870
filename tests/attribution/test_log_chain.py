"""Energies of logs, whose readings are momentary and far apart: intervals hold, equal readings prove nothing."""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.attribution import ALIASED_LOG, log_chain, log_energies, means, span_energies
from jouletrace.sensor import clean, shares


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


@pytest.mark.thorough
def test_intervals_of_independent_changes_hold():
    holds, half = judged(at_random(5.0, shape=1.0))
    assert holds >= 0.85
    assert half < 0.03


@pytest.mark.thorough
def test_cycles_near_the_time_between_readings_are_not_taken_for_slow_change(monkeypatch):
    monkeypatch.setattr(log_chain, "_HIDDEN_MEMORY", 0.0)
    holds, _ = judged(at_random(0.5))
    assert holds < 0.7


@pytest.mark.thorough
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
    monkeypatch.setattr(log_chain, "_phases", lambda values_w: 0)
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


def test_edges_that_meet_readings_at_one_phase_are_as_unknown_as_the_time_between_two_phases():
    """Of ten readings per period each edge lies in the same tenth each time; changes that scatter don't."""
    locked, at_any = (log(distances, 1, offset=0.31)[:2] for distances in (periodic(10.0), at_random(5.0, 62.0)))
    span = locked[0][[0, -1]].tolist()
    alike_j = np.diff(span)[0] * np.ptp(locked[1]) * np.sqrt(2 / 12) / 10
    assert half_j(*locked, span) == pytest.approx(1.96 * alike_j, rel=0.05)
    assert half_j(*at_any, span) < alike_j


@pytest.mark.thorough
def test_polls_that_meet_a_load_at_few_phases_hold():
    """Polls each 0.1 s, up to 4 ms late: some meet an edge now before and now after it."""
    holds, away = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        times, phase, duty = 0.1 * np.arange(380) + rng.uniform(0, 0.004, 380), rng.random(), rng.uniform(0.3, 0.7)
        values = np.where((times / 0.12 + phase) % 1 < duty, 400.0, 100.0) + 0.3 * rng.standard_normal(380)
        (mean,), (low,), (high,) = log_energies(times, values, [[1.0, 37.0]]).interval()
        truth = 36 * (100 + 300 * duty)
        holds.append(low <= truth <= high)
        away.append(abs(mean - truth) / truth)
    assert np.mean(holds) >= 0.9
    assert max(away) > 0.02


@pytest.mark.thorough
def test_a_load_that_changes_at_random_has_no_rhythm():
    """Of 200 logs of random loads, and of steady ones that fluctuate, three per cent at most seem to repeat."""
    rng = np.random.default_rng(3)
    steady = [200 * (1 + 0.01 * rng.standard_normal(380)) for _ in range(100)]
    random = [log(at_random(mean_s, 1.0), seed)[1] for seed in range(50) for mean_s in (0.5, 5.0)]
    assert sum(log_chain._phases(values) > 0 for values in steady + random) <= 6


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


@pytest.mark.thorough
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


def of_means(rng, edges, watts, span, step_s, update_s=None):
    """Energy of a span with the ends of its interval, and the truth, from means over 1 s as an H100 has them.

    Readings are up to 0.1 s old, at random or by the updates.
    """
    response = shares.Response(0.0, 0.02, 0.05, 0.04, 0.0, 0.5, step_s, window_s=1.0, jitter_s=0.029)
    times = np.arange(2 + rng.random(), span[1] + 3, step_s)
    upto = np.append(0, np.cumsum(watts * np.diff(edges)))
    end = times - (times % update_s if update_s else rng.uniform(0, 0.1, len(times)))
    values = np.interp(end, edges, upto) - np.interp(end - 1, edges, upto)
    read = clean((times * 1e9).astype(np.int64) + 10**18, values, step_s)
    start, stop = (np.array(span) * 1e9).astype(np.int64) + 10**18
    found = span_energies(read, response, [start], [stop], bursts_ns=[])
    return found.energy_j[0], found.low_j[0], found.high_j[0], np.diff(np.interp(span, edges, upto))[0]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("seconds", "step_s", "mean_s", "most"),
    [(40, 1.0, None, 0.015), (200, 1.0, None, 0.005), (40, 0.7, 0.2, 0.025), (40, 0.1, None, 0.01)],
)
def test_a_log_of_means_over_a_second_is_known_as_well_as_its_sum(seconds, step_s, mean_s, most):
    """``power.draw`` of an H100: the mean over the last second, up to 0.1 s old as it is read. At 0.7 s some of the
    time lies in two windows."""
    holds, half = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        edges = np.append(0, np.cumsum(rng.gamma(4.0, (mean_s or rng.choice([0.2, 1.0, 5.0])) / 4, 10_000)))
        watts = np.where(np.arange(10_000) % 2, 100.0, rng.uniform(300, 600))
        energy, low, high, truth = of_means(rng, edges, watts, (5.3, 5.3 + seconds), step_s)
        holds.append(low <= truth <= high)
        half.append((high - low) / 2 / energy)
    assert np.mean(holds) >= 0.9
    assert np.median(half) < most


@pytest.mark.thorough
@pytest.mark.parametrize(("step_s", "most_j"), [(1.0, 40.0), (0.5, 20.0), (0.1, 15.0)])
def test_a_change_beside_the_end_of_a_span_counts_where_means_over_a_second_place_it(step_s, most_j):
    """Power rises by 400 W up to half a second before or after the span begins: its readings alone lose up to 100 J."""
    away, holds = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        edges, watts = np.array([0.0, 10 + rng.uniform(-0.5, 0.5), 40.0]), np.array([100.0, 500.0])
        energy, low, high, truth = of_means(rng, edges, watts, (10.0, 30.0), step_s)
        away.append(energy - truth)
        holds.append(low <= truth <= high)
    assert np.sqrt(np.mean(np.square(away))) < most_j
    assert np.mean(holds) >= 0.9


@pytest.mark.parametrize("step_s", [1.0, 0.5, 0.2, 0.1])
def test_a_span_that_begins_in_the_first_window_has_all_of_its_energy(step_s):
    """300 W all the time, in a span from the middle of the first window to that of the last."""
    rng = np.random.default_rng(1)
    begin = 2 + np.random.default_rng(1).random() - 0.5
    energy, low, high, truth = of_means(rng, np.array([0.0, 40.0]), np.array([300.0]), (begin, begin + 5.0), step_s)
    assert energy == pytest.approx(truth, rel=1e-3)
    assert high - low < 0.02 * truth


@pytest.mark.parametrize("count", [2, 5, 40])
def test_a_steady_log_has_its_mean_however_irregular_its_readings(count):
    rng = np.random.default_rng(count)
    response = shares.Response(0.0, 0.02, 0.05, 0.04, 0.0, 0.5, 1.0, window_s=1.0, jitter_s=0.029)
    times = 5 + np.cumsum(rng.uniform(0.2, 1.5, count))
    read = clean((times * 1e9).astype(np.int64) + 10**18, np.full(count, 300.0), 1.0)
    span = ((times[[0, -1]] - 0.55) * 1e9).astype(np.int64) + 10**18
    found = span_energies(read, response, span[:1], span[1:], bursts_ns=[])
    assert found.energy_j[0] == pytest.approx(300 * (times[-1] - times[0]), rel=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize(("step_s", "mean_s"), [(1.005, 0.2), (0.1, 10.0)])
def test_what_lies_between_windows_of_other_ages_is_unknown(step_s, mean_s):
    """Updates each 0.1021 s: ages pass through all there are. Swings lie between windows; changes move alike."""
    holds = []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        edges = np.append(0, np.cumsum(rng.gamma(3.0, mean_s / 3, 2000)))
        watts = np.where(np.arange(2000) % 2, 100.0, rng.uniform(300, 600))
        _, low, high, truth = of_means(rng, edges, watts, (5.3, 65.3), step_s, update_s=0.1021)
        holds.append(low <= truth <= high)
    assert np.mean(holds) >= 0.9


@pytest.mark.thorough
def test_swings_at_the_ends_of_a_span_are_unknown_as_far_as_they_fit_into_a_window():
    """Spans that begin as power rises and end as it falls: what a window shows of its last swing may lie beyond."""
    holds = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        edges = np.append(0, np.cumsum(rng.gamma(4.0, 0.3 / 4, 1000)))
        watts = np.where(np.arange(1000) % 2, rng.uniform(300, 600), 100.0)
        span = [float(some[np.searchsorted(some, at_s)]) for some, at_s in ((edges[1::2], 5.3), (edges[2::2], 25.3))]
        _, low, high, truth = of_means(rng, edges, watts, span, 0.1)
        holds.append(low <= truth <= high)
    assert np.mean(holds) >= 0.9


MEANS = shares.Response(0.0, 0.02, 0.05, 0.0, 0.0, 0.5, 1.0, window_s=1.0)
"""Means over the last second each second, of known ages and delay, with noise of 0.5 W."""


def half_of_means_j(values, span, **unknown):
    """Half of the interval of a span's energy, from means over a second of which not all is known."""
    read = clean(np.arange(5, 5 + len(values)) * 10**9 + 10**18, np.asarray(values, float), 1.0)
    start, stop = (np.array(span) * 1e9).astype(np.int64) + 10**18
    found = span_energies(read, replace(MEANS, **unknown), [start], [stop], bursts_ns=[])
    return (found.high_j[0] - found.low_j[0]) / 2


def test_an_unknown_delay_of_means_moves_the_change_of_power_from_one_end_of_a_span_to_the_other():
    values, span = np.repeat([100.0, 500.0], 50), (20.0, 90.0)
    known, unknown = (half_of_means_j(values, span, delay_sd_s=sd_s) for sd_s in (0.0, 0.1))
    assert np.sqrt(unknown**2 - known**2) == pytest.approx(1.96 * 400 * 0.1, rel=1e-3)


def test_the_noise_of_means_adds_up_over_a_span():
    assert half_of_means_j(np.full(400, 300.0), (20.0, 380.0), noise_w=5.0) == pytest.approx(
        1.96 * 5 * np.sqrt(360), rel=0.02
    )


def test_a_mean_that_is_late_by_some_time_places_a_change_as_one_with_noise_does():
    """Changes of 60 W a second, of which a fifth of a second is 12 W."""
    values, end_s = 300.0 + 30 * (-1.0) ** np.arange(40), 5.0 + np.arange(40)
    exact, late, noisy = (
        means._up_to(20.3, end_s, values, replace(MEANS, **unknown), np.array([]), 300.0)[1]
        for unknown in ({}, {"jitter_s": 0.2}, {"noise_w": np.hypot(0.5, 12)})
    )
    assert late == pytest.approx(noisy)
    assert late > 1.02 * exact
