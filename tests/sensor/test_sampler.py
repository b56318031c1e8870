import numpy as np
import pytest

from jouletrace.sensor import HOPPER, SampleResponse, SampleTimes, Sensor, read_out
from jouletrace.sensor.models import BINS_S


def test_a_response_sums_to_one_and_its_density_is_its_change():
    lag = np.arange(-200e-6, 300e-6, 1e-7)
    within = HOPPER.within(lag)
    assert (within[0], within[-1]) == (0.0, pytest.approx(1.0))
    assert np.trapezoid(HOPPER.at(lag)[1], lag) == pytest.approx(1.0, rel=1e-3)
    middle = np.array([-40.3e-6, 1.1e-6, 61.7e-6])
    slope = (HOPPER.within(middle + 1e-8) - HOPPER.within(middle - 1e-8)) / 2e-8
    assert HOPPER.at(middle)[1] == pytest.approx(slope, rel=1e-6)


def test_a_change_of_a_response_moves_weight_between_bins():
    change = np.zeros(len(BINS_S) - 1)
    change[15], change[20] = 0.05, -0.05
    changed = HOPPER.plus(change)
    gained = changed.within(BINS_S) - HOPPER.within(BINS_S)
    assert np.diff(gained)[15] == pytest.approx(0.05, abs=1e-9)
    assert np.diff(gained)[20] == pytest.approx(-0.05, abs=1e-9)
    assert np.abs(HOPPER.plus(0 * change).within(BINS_S) - HOPPER.within(BINS_S)).max() < 1e-9


def test_samples_lie_where_the_track_says():
    track = SampleTimes.straight(1.0, 11.0, 1225.0, 4.0)
    at = track.instants()
    assert np.diff(at) == pytest.approx(np.full(len(at) - 1, 1 / 1225.0))
    assert np.abs((at - 4.0) * 1225.0 % 1 - 0.5).min() > 0.499  # one at 4.0
    assert 1.0 <= at[0] < 1.0 + 1 / 1225.0
    assert 11.0 - 2 / 1225.0 <= at[-1] < 11.0


def test_a_track_passes_through_given_samples():
    track = SampleTimes.straight(0.0, 20.0, 1225.0, 0.0)
    number = np.arange(600, 24_000, 1225.0)
    shift = 2e-4 * np.sin(number / 8000)
    near = track.through(number, track.start_s + number / 1225.0 + shift)
    assert near.instants()[number.astype(int)] - track.instants()[number.astype(int)] == pytest.approx(shift, abs=2e-5)


def test_a_reading_is_the_recursive_average_some_time_before():
    sensor = Sensor(HOPPER, averages=16, delay_s=3.4e-3)
    at = np.arange(2000) / 1225.0
    seen = np.where(at < 0.8, 100.0, 500.0)
    time = np.array([0.5, 0.79, 0.81, 0.85, 1.2])
    mean, state, expected = seen.mean(), seen.mean(), []
    states = []
    for value in seen:
        state += (value - state) / 16
        states.append(state)
    for moment in time:
        expected.append(states[np.searchsorted(at, moment - 3.4e-3) - 1])
    assert mean > 0
    assert read_out(sensor, seen[:, None], at, time)[:, 0] == pytest.approx(expected)


def test_a_pulse_is_seen_whole_however_short():
    """The mean over many phases of what samples see of a pulse is its length times their rate."""
    response = SampleResponse(-85e-6, HOPPER.weight)
    for length in (5e-6, 50e-6, 500e-6):
        phase = np.arange(-1e-3, 1e-3, 1e-6)
        seen = response.within(phase + length) - response.within(phase)
        assert seen.sum() * 1e-6 == pytest.approx(length, rel=1e-6)


@pytest.mark.parametrize(("late_us", "share"), [(-20, 0.0), (-7.5, 0.25), (0, 0.5), (7.5, 0.75), (20, 1.0)])
def test_a_sample_near_the_moment_of_readout_counts_in_part(late_us, share):
    at = np.arange(100) / 1250.0
    seen = np.zeros((100, 1))
    seen[50] = 1600.0  # which enters by a sixteenth
    sensor = Sensor(HOPPER, averages=16, delay_s=3.4e-3)
    moment = at[50] + late_us * 1e-6
    assert read_out(sensor, seen, at, np.array([moment + 3.4e-3]))[0, 0] == pytest.approx(100.0 * share, abs=1e-6)


def test_a_measured_response_has_no_bin_that_stands_out():
    """Two lobes and a tail: a bin differs from the mean of its neighbours by a twelfth of the largest at most."""
    weight = HOPPER.weight / HOPPER.weight.max()
    assert np.abs(weight[1:-1] - (weight[:-2] + weight[2:]) / 2).max() < 1 / 12


@pytest.mark.parametrize(
    ("known_hz", "first"),
    [(None, (1200, 1260)), (1149.9, (1200, 1260)), (1150.0, (1148, 1152)), (1310.0, (1308, 1312))],
)
def test_a_rate_is_searched_near_a_known_one_if_a_gpu_can_have_that(known_hz, first):
    found = [one.rates_hz for one in Sensor(HOPPER).searches(known_hz)]
    assert found[0] == first
    assert found[-2:] == [(1200.0, 1260.0), (1150.0, 1310.0)]
