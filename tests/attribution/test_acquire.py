"""The search over a sampler's rate: which windows, which rates, and how much surer one is than the next."""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.attribution import Kind, activity_of
from jouletrace.attribution.lock import (
    EVIDENCE,
    WINDOW_S,
    Window,
    _distinct_rates,
    _Fit,
    _mean_squares,
    _windows,
    search,
)
from jouletrace.errors import BadInputError
from jouletrace.sensor import HOPPER_SENSOR, SampleTimes, read_out
from readings import taken

SENSOR = replace(HOPPER_SENSOR, rates_hz=(1200.0, 1212.0))


class Stated:
    """A part of a recording whose mean square residual is lowest at given rates; for each it is stated, W²."""

    def __init__(self, start_s, readings, squares, spread_w=20.0):
        self.start_s, self.end_s = start_s, start_s + 3.0
        self.watts = spread_w * np.resize([1.0, -1.0], readings)
        self.squares = squares

    def fitted(self, rates_hz, phases):
        wells = [square + 50 * np.abs(rates_hz - rate) for rate, square in self.squares.items()]
        least = np.minimum(np.min(wells, axis=0), 100.0)
        return [_Fit(square, rate, self.start_s + 1e-4) for square, rate in zip(least, rates_hz.tolist(), strict=True)]


def timeline(*spans, gap_s=0.01):
    """Kernels of 9 ms, one every 10 ms, within spans of seconds."""
    start = np.concatenate([np.arange(begin, end, gap_s) for begin, end in spans])
    start_ns = np.round(start * 1e9).astype(np.int64)
    return activity_of(start_ns, start_ns + 9_000_000, np.arange(len(start)) % 2, (Kind("a"), Kind("b")), 0)


def searched(*windows):
    return search(SENSOR, timeline((0, 10)), None, made={False: list(windows)})


@pytest.mark.thorough
def test_power_of_a_part_in_which_no_window_lies_is_refused():
    few = taken(np.arange(150) * 0.02 + 5.0, np.full(150, 100.0))
    with pytest.raises(BadInputError, match=r"0 readings where kernels run, 10 are needed; .* lasts \(20\.0 s\)"):
        search(SENSOR, timeline((0, 20)), few)


def test_evidence_is_of_the_best_rate_over_the_second_best():
    squares = {1203.0: 4.0, 1206.0: 9.0, 1209.0: 16.0}
    found = searched(Stated(0.0, 150, squares), Stated(3.0, 100, squares))
    assert found.rate_hz == pytest.approx(1203.0)
    assert (found.residual_w, found.runner_up_w) == (pytest.approx(2.0), pytest.approx(3.0))
    assert found.evidence == pytest.approx(250 / 2 * np.log(9 / 4))


def test_rates_that_differ_by_that_of_the_readout_are_searched_beside_a_doubted_one():
    squares = {1206.0: 9.0, 1230.0: 1.0, 1256.1: 4.0}
    windows = {False: [Stated(0.0, 150, squares)]}
    assert search(SENSOR.around(1206.3), timeline((0, 10)), None, made=windows).rate_hz == pytest.approx(1206.0)
    found = search(SENSOR.around(1206.3, aliased=True), timeline((0, 10)), None, made=windows)
    assert found.rate_hz == pytest.approx(1256.1)
    assert found.evidence == pytest.approx(75 * np.log(9 / 4))


def test_windows_count_by_their_readings_and_those_that_lack_them_not_at_all():
    one, other = Stated(0.0, 150, {1203.0: 4.0, 1206.0: 16.0}), Stated(3.0, 100, {1203.0: 9.0, 1206.0: 25.0})
    lacking = Stated(6.0, 75, {1206.0: 0.01})
    found = searched(one, other, lacking)
    assert found.rate_hz == pytest.approx(1203.0)
    assert found.residual_w == pytest.approx(np.sqrt((150 * 4 + 100 * 9) / 250))
    assert found.runner_up_w == pytest.approx(np.sqrt((150 * 16 + 100 * 25) / 250))
    assert searched(one, other, Stated(6.0, 76, {1206.0: 0.01})).rate_hz == pytest.approx(1206.0)


def test_a_lock_begins_in_the_window_that_is_explained_best():
    squares = {1203.0: 4.0}
    calm, lively = Stated(0.0, 150, squares, spread_w=5.0), Stated(3.0, 150, squares, spread_w=20.0)
    assert searched(calm, lively).start == (pytest.approx(1203.0), 3.0, 3.0001)
    assert searched(lively, calm).end_s == 6.0


def test_rates_within_a_hertz_are_one_and_six_are_refined():
    rates = 1200 + 0.3 * np.arange(40)
    chosen = _distinct_rates(rates, np.abs(rates - 1206.0))
    assert chosen[0] == pytest.approx(1206.0)
    assert len(chosen) == 6
    assert np.diff(sorted(chosen)) == pytest.approx(np.full(5, 1.2))
    assert len(_distinct_rates(rates[:5], np.arange(5.0))) == 2


def test_windows_lie_where_kernels_run_from_the_first_to_the_last_busy_part():
    """A part counts as busy with half as many kernels as the busiest has: here from 2.5 s on, and to 20.5 s."""
    found = np.array(_windows(timeline((0, 0.1), (4, 19), (23.9, 24)), inner=False))
    assert len(found) == 3
    assert found[:, 1] - found[:, 0] == pytest.approx(np.full(3, WINDOW_S))
    assert found[0, 0] == pytest.approx(2.5, abs=0.15)
    assert found[-1, 0] == pytest.approx(17.5, abs=0.15)
    assert found[1, 0] == pytest.approx(10.0, abs=0.15)


def test_inner_windows_lie_in_the_middle_of_equal_shares_of_the_time_in_which_kernels_run():
    found = np.array(_windows(timeline((0, 6), (12, 24)), inner=True))
    # 18 s in which kernels run: the middles of thirds are at 3, 15 and 21 s
    assert found.mean(axis=1) == pytest.approx([3.0, 15.0, 21.0], abs=0.15)


@pytest.mark.parametrize(("seconds", "count"), [(2.0, 1), (6.4, 1), (6.6, 2), (9.4, 2), (9.6, 3), (60.0, 3)])
def test_a_recording_has_as_many_windows_as_fit(seconds, count):
    found = _windows(timeline((0, seconds)), inner=False)
    assert len(found) == count
    assert found[0][0] == pytest.approx(0.35, abs=0.02)
    assert found[-1][1] <= seconds - (0.1 if seconds > 4 else 0.0)
    assert count == 1 or found[-1][1] == pytest.approx(seconds, abs=0.25)


def test_powers_that_explain_the_readings_leave_nothing_and_others_their_mean_square():
    rng = np.random.default_rng(0)
    right = rng.dirichlet(np.ones(3), 60)
    watts = right @ np.array([700.0, 400.0, 130.0])
    left = _mean_squares(np.stack([right, np.ones((60, 3)) / 3]), watts)
    assert left[0] < 1e-5 * watts.var()
    assert left[1] == pytest.approx(watts.var(), rel=1e-3)


@pytest.mark.parametrize(("scatter_w", "noise_w"), [(20.0, 2.0), (0.5, 0.1)])
def test_the_prior_weighs_as_much_as_noise_of_a_tenth_of_the_scatter(scatter_w, noise_w):
    """The mean of powers is taken for 500 ± 400 W, and the noise of quiet readings for 0.1 W at least."""
    design = np.zeros((1, 4, 2))
    design[..., 0] = 0.001
    watts = 0.3 + scatter_w * np.array([1.0, -1.0, 1.0, -1.0])
    weight = (noise_w / 400.0) ** 2
    power = (4 * 0.001 * 0.3 + weight * 500.0) / (4 * 0.001**2 + weight)
    wanted = np.mean((0.001 * power - watts) ** 2)
    assert abs(power - 300.0) > 1.0
    assert _mean_squares(design, watts)[0] == pytest.approx(wanted, rel=1e-9)


def recorded(rng, length_ns, pause_ns, above_w, rate_hz, one_s, noise_w=0.0):
    """Activity of kernels of two kinds in random order, and readings of it by the nominal sensor."""
    start = np.cumsum(length_ns + pause_ns) - length_ns
    kind = rng.integers(0, 2, len(start))
    kinds = (Kind("a"), Kind("b"))
    activity = activity_of(start.astype(np.int64), (start + length_ns).astype(np.int64), kind, kinds, 0)
    above = np.array(above_w)[np.array([members[0] for members in activity.members])][activity.column]
    at = SampleTimes.straight(activity.begin_s, activity.finish_s, rate_hz, one_s).instants()
    _, seen, _ = activity.seen(at, HOPPER_SENSOR.response, above, above)
    time = np.arange(0.2, activity.finish_s - 0.05, 0.02)
    watts = 120.0 + read_out(HOPPER_SENSOR, seen[:, None], at, time)[:, 0] + noise_w * rng.standard_normal(len(time))
    return activity, taken(time, watts)


def test_a_rate_is_determined_by_kernels_that_run_for_three_percent_of_the_time():
    """Readings scatter by 1.4 W, as those of a small model at batch 1; their noise is that of a constant load."""
    rng = np.random.default_rng(7)
    length, pause = rng.uniform(5e3, 25e3, 12_000), rng.gamma(2.0, 0.24e6, 12_000)
    activity, readings = recorded(rng, length, pause, (100.0, 300.0), 1206.0, 0.5, noise_w=0.3)
    found = search(SENSOR, activity, readings)
    assert readings.value.std() < 2.0
    assert found.rate_hz == pytest.approx(1206.0, abs=0.2)
    assert found.evidence > 2 * EVIDENCE


@pytest.mark.parametrize("later", [0.0, 0.3, 0.7])
def test_the_best_phase_is_that_of_the_samples(later):
    """A sample comes some part of a period after the start of the window."""
    rng = np.random.default_rng(5)
    length, pause = rng.uniform(2e5, 3e6, 1500), rng.uniform(1e5, 1e6, 1500)
    activity, readings = recorded(rng, length, pause, (250.0, 600.0), 1225.0, 0.5 + later / 1225.0)
    time = readings.time_s
    window = Window(HOPPER_SENSOR, activity, readings, 0.5, 2.0)
    # readings of the first 0.12 s contain what was before the window
    assert len(window.watts) == np.sum((time >= 0.62) & (time < 1.995))
    other, (square, _, one_s) = window.fitted(np.array([1224.0, 1225.0]), 16)
    assert square < other.square
    assert one_s == pytest.approx(0.5 + later / 1225.0, abs=1 / 16 / 1225.0)
