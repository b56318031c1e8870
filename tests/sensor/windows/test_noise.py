"""What scatters about a load, split into the sensor's noise, the power's fluctuation and the times of readings."""

import numpy as np
import pytest

from energy_signals import wander
from jouletrace.sensor.windows.noise import Fluctuation, fluctuation
from jouletrace.sensor.windows.response import Response

PERIOD, LOW_W, HIGH_W = 0.02, 120.0, 420.0


def split(noise_w=0.0, relative=0.0, wandering=0.0, tau=0.05, time_sd=0.0, seed=0, n=4000):
    """What is made of residuals of a load that rests and works for a second each, read by a boxcar without gaps."""
    rng = np.random.default_rng(seed)
    high = (np.arange(n) * PERIOD // 1) % 2 == 1
    model = np.where(high, HIGH_W, LOW_W)
    slope = np.zeros(n)
    edges = np.flatnonzero(np.diff(high.astype(int)))
    slope[edges] = np.where(high[edges], -1, 1) * 0.5 * (HIGH_W - LOW_W) / PERIOD
    fluctuating = wander(rng, 20 * n, tau, PERIOD / 20).reshape(n, 20).mean(axis=1)
    error = np.hypot(noise_w, relative * model) * rng.normal(size=n) + wandering * model * high * fluctuating
    return fluctuation(error + time_sd * slope * rng.normal(size=n), model, slope, Response(PERIOD, PERIOD))


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
    found, time_sd = fluctuation(error, np.full(10, 100.0), np.zeros(10), Response(PERIOD, PERIOD))
    assert found == Fluctuation(pytest.approx(1.0, rel=0.06), 0.0, 0.0, 3 * PERIOD)
    assert time_sd == 0.0
