"""How well a plain sum of readings does: against sums of loads whose every joule is known."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import lfilter

from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.windows.neighbourhoods import Neighbourhoods
from jouletrace.sensor.windows.segments import edge_variance, exponentially_smoothed, stretches, sum_rate

RESPONSES = [
    StepResponse(0.02, 0.01),
    StepResponse(0.02, 0.02),
    StepResponse(0.02, 0.025, lag_s=-0.004),
    StepResponse(0.1, 0.025, lag_s=0.01),
    StepResponse(0.02, rise_s=0.0125, lag_s=0.002),
    StepResponse(0.02, 0.005, tail_share=0.2, tail_s=0.03),
]


@pytest.mark.parametrize("response", RESPONSES, ids=["parts", "gapless", "overlapping", "a100", "h100", "tailed"])
def test_a_sum_over_a_step_errs_by_where_readings_fall_about_it(response):
    """A boxcar without gaps sees every joule once: its sum doesn't err at all."""
    off = []
    time = response.period_s * np.arange(200)
    between = stretches(time, np.ones(200), np.array([100.0 * response.period_s]), response)
    for phase in (np.arange(200) + 0.5) / 200:
        edge = (100 + phase) * response.period_s
        near = Neighbourhoods(time, 0 * time, response.step(time - edge), between, response)
        begin, end = time[10] + 0.003, time[190] + 0.001
        off.append(float(near.plain_sum(np.array([begin]), np.array([end]))[0]) - (end - edge))
    assert edge_variance(response) == pytest.approx(np.var(off), rel=0.02, abs=1e-9 * response.period_s)


def gained(response, time):
    """Variance that a sum of readings gains per second of a fluctuation of 1 W, by steps of a period over 80."""
    middle = time - response.delay_s
    cells = (middle[1:] + middle[:-1]) / 2
    step = response.period_s / 80

    def variance(first, last):
        bounds = np.arange(cells[first] - 0.5, cells[last] + 0.5, step)
        missed = np.diff(np.clip(bounds, cells[first], cells[last]))
        for k in range(first + 1, last + 1):
            missed += (cells[k] - cells[k - 1]) * np.diff(response.step(time[k] - bounds))
        decay = np.exp(-step / response.noise_tau_s)
        ahead, back = (lfilter([1.0], [1.0, -decay], some) for some in (missed, missed[::-1]))
        return missed @ (ahead + back[::-1] - missed)

    return (variance(0, 120) - variance(0, 40)) / (cells[120] - cells[40])


@pytest.mark.parametrize("response", [RESPONSES[0], *RESPONSES[3:5]], ids=["parts", "a100", "h100"])
@pytest.mark.parametrize("uneven", [0.0, 0.3])
def test_a_sum_of_readings_that_leave_time_unseen_gains_variance_with_its_length(response, uneven):
    shift = uneven * np.random.default_rng(5).uniform(-1, 1, 125)
    time = response.period_s * (np.arange(125) + shift)
    assert sum_rate(time, response) == pytest.approx(gained(response, time), rel=0.15)


def test_a_sum_of_readings_without_gaps_gains_none():
    assert sum_rate(0.02 * np.arange(200), StepResponse(0.02, 0.02)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("hole_s", [1e4, 1e8])
def test_a_hole_of_hours_or_years_is_in_no_sum(hole_s):
    time = 0.02 * np.arange(1000)
    response = RESPONSES[0]
    plain = sum_rate(time, response)
    assert sum_rate(np.where(time > 8.0, time + hole_s, time), response) == pytest.approx(plain, rel=0.05)


def test_of_a_few_readings_the_most_is_taken():
    """All of a fluctuation is missed: twice its correlation time is what an integral of it gains."""
    assert sum_rate(0.02 * np.arange(15), RESPONSES[0]) == 2 * RESPONSES[0].noise_tau_s


def test_of_a_few_readings_with_a_hole_of_hours_among_them_too():
    time = 0.02 * np.arange(20) + np.where(np.arange(20) < 10, 0.0, 1e4)
    assert sum_rate(time, RESPONSES[0]) == 2 * RESPONSES[0].noise_tau_s


def test_variance_of_sums_counts_segments_and_edges_within():
    response = StepResponse(0.02, 0.01, noise_w=2.0, wander_relative=0.0)
    time = 0.02 * np.arange(1500)
    edges = np.array([10.0, 20.0])
    power = np.array([100.0, 400.0, 300.0])[np.searchsorted(edges, time)]
    found = replace(stretches(time, power, edges, response), rate=np.array([1.0, 2.0, 3.0]))
    found = replace(found, error_j2=np.array([50.0, 90.0]))
    start, end = np.array([2.0, 12.0, 22.0, 2.0, 12.0, 5.0]), np.array([5.0, 13.0, 25.0, 12.0, 22.0, 2.0])
    assert found.sum_variance(start, end) == pytest.approx([3.0, 2.0, 9.0, 8 + 50 + 4, 90 - 50 - 4 + 6, 0.0])
    assert found.index(np.array([9.9, 10.0, 19.9, 20.1])).tolist() == [0, 1, 1, 2]
    assert found.jump_w == pytest.approx([300.0, -100.0])


def test_levels_and_sums_of_a_record_with_edges():
    """Noise alone: each reading's variance over its period; and at each edge the square of the jump."""
    response = StepResponse(0.02, 0.01, noise_w=2.0, wander_relative=0.0)
    time, edges = 0.02 * np.arange(1500), np.array([10.0, 20.0])
    power = np.array([100.0, 400.0, 300.0])[np.searchsorted(edges, time - 0.005)]
    found = stretches(time, power, edges, response)
    assert found.level_w == pytest.approx([100.0, 400.0, 300.0])
    assert found.rate == pytest.approx(np.full(3, 4.0 * 0.02), rel=1e-6)
    edge = edge_variance(response)
    assert found.error_j2 == pytest.approx([300.0**2 * edge, (300.0**2 + 100.0**2) * edge + 10 * 4.0 * 0.02], rel=1e-6)


@pytest.mark.parametrize("begin", [5.004, 5.007, 5.01])
def test_a_burst_too_short_for_a_reading_of_its_own_has_the_level_of_the_one_a_delay_after_its_middle(begin):
    """In these phases it is the one that saw most of the burst."""
    response = StepResponse(0.02, 0.025, lag_s=0.005)
    time, edges = 0.02 * np.arange(500), np.array([begin, begin + 0.024])
    power = 100 + 400 * (response.step(time - edges[0]) - response.step(time - edges[1]))
    found = stretches(time, power, edges, response)
    assert found.level_w[[0, 2]] == pytest.approx([100.0, 100.0])
    assert found.level_w[1] == power.max() > 300.0


def test_a_sum_of_a_few_readings_of_a_sensor_that_forgets_slowly_gains_what_a_fluctuation_does_at_most():
    """Its memory is longer than all of the record."""
    response = StepResponse(0.02, rise_s=0.5)
    assert 0 <= sum_rate(0.02 * np.arange(20), response) <= 2 * response.noise_tau_s


def test_a_burst_that_a_single_reading_saw_alone_has_its_level():
    """The one at 5.04 s; that at 5.06 s, which comes a delay after the middle, saw what followed as well."""
    response = StepResponse(0.02, 0.025, lag_s=0.005)
    time, edges = 0.02 * np.arange(500), np.array([5.005, 5.05])
    power = 100 + 400 * (response.step(time - edges[0]) - response.step(time - edges[1]))
    assert stretches(time, power, edges, response).level_w == pytest.approx([100.0, 500.0, 100.0])


def test_smoothing_is_the_product_with_the_matrix_of_powers_of_the_decay():
    rng = np.random.default_rng(0)
    values, place = rng.normal(size=(3, 40)), np.arange(40)
    whole = values @ 0.8 ** np.abs(place[:, None] - place)
    assert exponentially_smoothed(values, 0.8) == pytest.approx(whole, rel=1e-9, abs=1e-12)


def gained_in_bins(response, time):
    """What a sum of up to 120 readings gains over one of a third, by whole matrices; the mean over up to six pieces."""
    middle = time - response.delay_s
    cells = (middle[1:] + middle[:-1]) / 2
    step, long = response.period_s / 8, min(120, len(cells) - 2)

    def variance(first, last):
        bounds = np.arange(cells[first] - response.memory_s, cells[last] + response.memory_s + step, step)
        missed = np.diff(np.clip(bounds, cells[first], cells[last]))
        for k in range(first + 1, last + 1):
            missed += (cells[k] - cells[k - 1]) * np.diff(response.step(time[k] - bounds))
        place = step * np.arange(len(missed))
        return missed @ np.exp(-np.abs(place[:, None] - place) / response.noise_tau_s) @ missed

    starts = np.unique(np.linspace(0, len(cells) - 1 - long, 6).astype(int))
    gains = [
        (variance(s, s + long) - variance(s, s + long // 3)) / (cells[s + long] - cells[s + long // 3]) for s in starts
    ]
    return np.mean(gains)


@pytest.mark.parametrize("n", [16, 60, 400])
@pytest.mark.parametrize("response", [RESPONSES[0], *RESPONSES[3:]], ids=["parts", "a100", "h100", "tailed"])
def test_the_variance_that_sums_gain_is_that_of_what_they_miss_in_pieces_all_over_the_record(response, n):
    rng = np.random.default_rng(6)
    time = response.period_s * np.cumsum(rng.uniform(0.6, 1.4, n))
    assert sum_rate(time, response) == pytest.approx(gained_in_bins(response, time), rel=1e-3)


def fluctuating(response, *segments):
    """What is known of segments of (watts, readings, deviation): readings lie above and below in turn, by so much."""
    power = np.concatenate([watts + sd * (-1.0) ** np.arange(n) for watts, n, sd in segments])
    edges = np.cumsum([n for _, n, _ in segments])[:-1] * response.period_s - 1e-3
    return stretches(response.period_s * np.arange(len(power)), power, edges, response)


# A reading is its own time's power alone, so readings of a fluctuation differ by all that it decays within a period
POINT = StepResponse(0.02, 1e-6, noise_w=3.0, wander_relative=0.01, noise_tau_s=0.05, origin="calibrated")
DECAYED = 1 - np.exp(-0.02 / 0.05)


def wander_w(own, alike, level):
    """A fluctuation by its relative variance in a segment, and in all at similar power: (variance, differences) each.

    The calibration's hundredth counts as six differences to these, and these as six to the segment.
    """
    common = (6 * 0.01**2 + sum(v * n for v, n in alike)) / (6 + sum(n for _, n in alike))
    return level * np.sqrt((6 * common + own[0] * own[1]) / (6 + own[1]))


def test_a_segment_fluctuates_as_its_differences_say_those_at_similar_power_and_the_calibration():
    """Differences of 40, of 4 and of 60 W; half of their square is the variance, less the noise's 9 W²."""
    found = fluctuating(POINT, (400.0, 40, 20.0), (401.0, 60, 2.0), (100.0, 50, 30.0), (402.0, 2, 2.0))
    seen = {
        level: max(2 * sd**2 - 9.0, 0.0) / DECAYED / level**2
        for level, sd in ((400.0, 20.0), (401.0, 2.0), (100.0, 30.0), (402.0, 2.0))
    }
    counts = {400.0: 39, 401.0: 59, 100.0: 49, 402.0: 1}
    alike = [(seen[level], counts[level]) for level in (400.0, 401.0, 402.0)]
    for k, level in enumerate((400.0, 401.0, 100.0, 402.0)):
        own = (seen[level], counts[level])
        expected = wander_w(own, [own] if level == 100.0 else alike, level)
        assert found.wander_w[k] == pytest.approx(expected, rel=1e-3), level


def test_a_difference_counts_for_no_more_than_five_deviations():
    """Of all at similar power; a fifth of squared Gaussian differences is above 1.642 times their mean."""
    n, level = 60, 400.0
    power = level + 10.0 * (-1.0) ** np.arange(n)
    power[30] += 400.0
    found = stretches(0.02 * np.arange(n), power, np.empty(0), POINT)
    limit = 25 * 20.0**2 / 1.642
    variance = ((n - 3) * 20.0**2 + 2 * limit) / (n - 1) / 2 - 9.0
    own = (variance / DECAYED / found.level_w[0] ** 2, n - 1)
    assert found.wander_w[0] == pytest.approx(wander_w(own, [own], found.level_w[0]), rel=1e-3)


def test_readings_that_overlap_almost_wholly_say_nothing_of_a_fluctuation():
    """A mean over a second differs from that of 20 ms before by noise alone: the calibration's fluctuation holds."""
    slow = StepResponse(0.02, 1.0, noise_w=0.1, wander_relative=0.03)
    assert fluctuating(slow, (400.0, 200, 20.0)).wander_w == pytest.approx([12.0])
    assert fluctuating(replace(slow, window_s=0.1), (400.0, 200, 20.0)).wander_w[0] > 15.0
