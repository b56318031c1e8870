"""Scatter about a load, split into the sensor's noise, the power's fluctuation and the times of readings."""

import numpy as np
import pytest

from energy_signals import wander
from jouletrace.sensor.calibration import StepResponse
from jouletrace.sensor.calibration.fluctuation import Fluctuation, Kernel, fluctuation

PERIOD, LOW_W, HIGH_W = 0.02, 120.0, 420.0


def split(noise_w=0.0, relative=0.0, wandering=0.0, tau=0.05, time_sd=0.0, seed=0, n=4000):
    """Parts of residuals of a load that rests and works for a second each, read by a boxcar without gaps."""
    rng = np.random.default_rng(seed)
    high = (np.arange(n) * PERIOD // 1) % 2 == 1
    model = np.where(high, HIGH_W, LOW_W)
    slope = np.zeros(n)
    edges = np.flatnonzero(np.diff(high.astype(int)))
    slope[edges] = np.where(high[edges], -1, 1) * 0.5 * (HIGH_W - LOW_W) / PERIOD
    fluctuating = wander(rng, 20 * n, tau, PERIOD / 20).reshape(n, 20).mean(axis=1)
    error = np.hypot(noise_w, relative * model) * rng.normal(size=n) + wandering * model * high * fluctuating
    return fluctuation(error + time_sd * slope * rng.normal(size=n), model, slope, StepResponse(PERIOD, PERIOD))


@pytest.mark.parametrize(("noise_w", "relative"), [(0.5, 0.0), (2.0, 0.0), (0.5, 0.01), (2.0, 0.02)])
def test_noise_that_stays_and_noise_that_grows_with_the_power_are_distinguished(noise_w, relative):
    found, time_sd = split(noise_w, relative)
    for power in (LOW_W, HIGH_W):
        assert np.hypot(found.noise_w, found.noise_relative * power) == pytest.approx(
            np.hypot(noise_w, relative * power), rel=0.05
        )
    assert found.noise_relative == pytest.approx(relative, abs=0.002)
    assert found.wander_relative < 0.25 * np.hypot(noise_w / HIGH_W, relative)
    assert time_sd == 0.0


@pytest.mark.parametrize("tau", [0.05, 0.1])
def test_what_the_power_does_is_alike_in_neighbouring_readings(tau):
    found, _ = split(0.5, wandering=0.03, tau=tau)
    assert found.wander_relative == pytest.approx(0.03, rel=0.1)
    assert found.tau_s == pytest.approx(tau, rel=0.25)
    assert np.hypot(found.noise_w, found.noise_relative * LOW_W) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("time_sd", [0.0005, 0.002])
@pytest.mark.parametrize("wandering", [0.0, 0.03])
def test_times_of_readings_scatter_by_what_moves_them_where_the_power_changes(time_sd, wandering):
    found = [split(0.5, wandering=wandering, time_sd=time_sd, seed=seed, n=8000)[1] for seed in range(3)]
    assert np.mean(found) == pytest.approx(time_sd, rel=0.3)


def test_noise_that_a_fluctuation_hides_may_grow_with_the_power():
    """Half of what shows at rest is taken to do so, where the fluctuation under load scatters more than that would."""
    found, _ = split(0.5, wandering=0.2, n=1000)
    low = np.hypot(found.noise_w, found.noise_relative * LOW_W)
    assert low == pytest.approx(0.5, rel=0.1)
    assert found.noise_relative * LOW_W >= 0.99 * np.sqrt(0.5) * low


def test_too_few_readings_say_how_much_they_scatter_and_nothing_of_its_kind():
    error = np.array([1.0, -1.0] * 5)
    found, time_sd = fluctuation(error, np.full(10, 100.0), np.zeros(10), StepResponse(PERIOD, PERIOD))
    assert found == Fluctuation(pytest.approx(1.0, rel=0.06), 0.0, 0.0, 3 * PERIOD)
    assert time_sd == 0.0


@pytest.mark.parametrize("tau", [0.01, 0.05])
@pytest.mark.parametrize("lag_s", [-0.004, 0.004])
def test_readings_of_a_boxcar_are_as_alike_as_means_of_a_fluctuation_over_it(tau, lag_s):
    """Of windows of w that are d apart it is the mean of exp(-|d + u| / tau) with the weight of a triangle."""
    width, delay = 0.025, np.array([0.0, 0.01, 0.025, 0.1])
    apart = np.linspace(-width, width, 200_001)
    triangle = (width - np.abs(apart)) / width**2
    expected = [np.sum(triangle * np.exp(-np.abs(one + apart) / tau)) * (apart[1] - apart[0]) for one in delay]
    assert Kernel(StepResponse(PERIOD, width, lag_s=lag_s)).correlation(delay, tau) == pytest.approx(expected, rel=2e-3)


def alternating(low_w, high_w, n=4000, steep_w=(), slope=800.0, time_sd=0.0):
    """Parts of residuals of one size at rest and of one at work, with a sign that changes at each reading.

    Such residuals hold no fluctuation: neighbours would agree. Readings at ``steep_w`` lie on slopes. The squares of
    their residuals are the median of a Gaussian that is as wide as they should be.
    """
    high = np.arange(n) * PERIOD // 1 % 2 == 1
    model, sign = np.where(high, HIGH_W, LOW_W), (-1.0) ** np.arange(n)
    error, slopes = sign * np.where(high, high_w, low_w), np.zeros(n)
    at = 10 + 7 * np.arange(len(steep_w))
    model[at], slopes[at] = steep_w, slope
    level_var = low_w**2 + (high_w**2 - low_w**2) * (np.array(steep_w) - LOW_W) / (HIGH_W - LOW_W)
    error[at] = np.sqrt(0.455 * (level_var + (slope * time_sd) ** 2))
    return fluctuation(error, model, slopes, StepResponse(PERIOD, PERIOD))


def test_variance_that_two_levels_differ_by_grows_with_the_square_of_the_power():
    found, _ = alternating(2.0, 5.0)
    relative2 = (5.0**2 - 2.0**2) / (HIGH_W**2 - LOW_W**2)
    assert found.noise_relative == pytest.approx(np.sqrt(relative2), rel=1e-6)
    assert found.noise_w == pytest.approx(np.sqrt(2.0**2 - relative2 * LOW_W**2), rel=1e-6)
    assert found.wander_relative == 0.0
    assert found.tau_s == pytest.approx(0.05, rel=0.07)  # the usual one, of forty that are tried


def test_noise_that_is_less_at_work_is_that_of_all_readings():
    found, _ = alternating(2.0, 1.5, n=4040)  # 2040 readings at rest and 2000 at work
    assert found.noise_w == pytest.approx(np.sqrt(np.average([2.0**2, 1.5**2], weights=[2040, 2000])), rel=1e-6)
    assert found.noise_relative == 0.0


def test_noise_that_grows_faster_than_the_power_is_in_proportion_to_it_on_average():
    found, _ = alternating(0.5, 9.0, n=4040)
    each = np.array([0.5 / LOW_W, 9.0 / HIGH_W]) ** 2
    assert found.noise_relative == pytest.approx(np.sqrt(np.average(each, weights=[2040, 2000])), rel=1e-6)
    assert found.noise_w == 0.0


@pytest.mark.parametrize(("working", "hidden"), [(120, True), (160, False)])
def test_half_of_the_noise_at_rest_may_grow_where_chance_at_work_hides_it(working, hidden):
    """At work it would have a variance of 24.5 W². Of the 100 W² there √(2 / n) is known twice: 25.8 and 22.4 W²."""
    power = np.repeat([LOW_W, HIGH_W], [120, working])
    slow = np.where(np.arange(working) // 20 % 2, 10.0, -10.0)
    error = np.append(2.0 * (-1.0) ** np.arange(120), slow)
    found, _ = fluctuation(error, power, np.zeros(len(power)), StepResponse(PERIOD, PERIOD))
    assert found.noise_relative == pytest.approx(np.sqrt(0.5) * 2.0 / LOW_W if hidden else 0.0, rel=1e-6)
    if hidden:
        assert found.noise_w == pytest.approx(np.sqrt(0.5) * 2.0, rel=1e-6)


@pytest.mark.parametrize("time_sd", [0.0, 0.001, 0.004])
def test_times_scatter_by_what_readings_on_slopes_are_off_beyond_the_noise_there(time_sd):
    """Slopes are steep that change a reading by a twentieth of the step, 750 W/s; ten readings there are needed."""
    steep = np.linspace(LOW_W, HIGH_W, 10)
    assert alternating(2.0, 5.0, steep_w=steep, time_sd=time_sd)[1] == pytest.approx(time_sd, abs=2e-6)
    assert alternating(2.0, 5.0, steep_w=steep[:9], time_sd=time_sd)[1] == 0.0
    assert alternating(2.0, 5.0, steep_w=steep, time_sd=time_sd, slope=700.0)[1] == 0.0


def test_no_time_is_off_by_more_than_a_period():
    assert alternating(2.0, 5.0, steep_w=np.linspace(LOW_W, HIGH_W, 10), time_sd=0.05)[1] == PERIOD


def test_readings_at_work_without_neighbours_there_say_how_much_they_scatter():
    """Every eighth: no two of them are within five readings."""
    place = np.arange(320)
    high = place % 8 == 0
    sign = np.where(high, (-1.0) ** (place // 8), (-1.0) ** (place // 2))
    model = np.where(high, HIGH_W, LOW_W)
    found, _ = fluctuation(sign * np.where(high, 5.0, 2.0), model, np.zeros(320), StepResponse(PERIOD, PERIOD))
    assert (found.wander_relative, found.tau_s) == (0.0, 3 * PERIOD)
