"""How a sensor that samples sees loads that repeat themselves, and what its readings tell of its rate."""

import numpy as np
import pytest

from jouletrace.energy.beat import seen_variance
from jouletrace.energy.sampling_rate import Repetition, SamplingRate, repetitions, sampling_rate

NOMINAL_HZ, READOUT_S, FILTER_S = 1230.0, 0.02, 0.014
PAUSED = 0.25


def swinging(time_s, period_s, paused):
    """Power over its mean: a step that draws less towards its end, then a pause; up to the third harmonic."""
    power = 1.0 + 0.1 * np.cos(2 * np.pi * time_s / period_s)
    for h in (1, 2, 3):
        power -= 0.32 * np.sin(np.pi * h * paused) / h * np.cos(2 * np.pi * h * (time_s / period_s - 0.8))
    return power


def readings(rate_hz, period_s, seconds, seed, paused=PAUSED, noise=0.002):
    """Of a sensor that samples at any phase, passes samples through a low-pass and is read out now and then."""
    rng = np.random.default_rng(seed)
    sample_s = np.arange(-0.2, seconds, 1 / rate_hz) + rng.random() / rate_hz
    power = swinging(sample_s + rng.random() * period_s, period_s, paused)
    share = 1 - np.exp(-1 / rate_hz / FILTER_S)
    smooth = np.empty(len(power))
    level = power.mean()
    for i, one in enumerate(power):
        level += share * (one - level)
        smooth[i] = level
    read_s = np.arange(rng.random() * READOUT_S, seconds, READOUT_S)
    seen = smooth[np.searchsorted(sample_s, read_s, side="right") - 1]
    return read_s, 260 * seen * (1 + noise * rng.standard_normal(len(seen)))


def some(rate_hz, periods_ms, seconds=0.5):
    return [Repetition(ms / 1e3, *readings(rate_hz, ms / 1e3, seconds, seed)) for seed, ms in enumerate(periods_ms)]


@pytest.mark.parametrize("rate_hz", [1206.6, 1217.8, 1228.6, 1239.2, 1246.0])
def test_readings_of_a_few_periods_tell_the_rate(rate_hz):
    found = sampling_rate(some(rate_hz, [0.799] * 6 + [*np.linspace(0.84, 1.12, 20)]), READOUT_S, NOMINAL_HZ)
    assert found.rate_hz == pytest.approx(rate_hz, abs=found.sure_hz)
    assert found.readout_s == READOUT_S


def test_one_period_alone_tells_no_rate_from_its_mirror_image():
    assert sampling_rate(some(1217.0, 8 * [1.03]), READOUT_S, NOMINAL_HZ) is None


@pytest.mark.thorough
@pytest.mark.parametrize("windows", [15, 100])
def test_readings_that_only_scatter_tell_nothing(windows):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        some = [
            Repetition(ms / 1e3, np.arange(25) * 0.02, 260 + rng.standard_normal(25))
            for ms in np.linspace(0.8, 1.1, windows)
        ]
        assert sampling_rate(some, READOUT_S, NOMINAL_HZ) is None


def test_a_load_that_draws_the_same_all_along_tells_nothing():
    still = [Repetition(ms / 1e3, np.arange(25) * 0.02, np.full(25, 260.0)) for ms in (0.8, 0.9, 1.0)]
    assert sampling_rate(still, READOUT_S, NOMINAL_HZ) is None


def test_nothing_is_told_by_stretches_of_few_readings_or_by_short_periods():
    assert sampling_rate(some(1217.0, [0.8, 0.95, 1.02, 1.05], seconds=0.1), READOUT_S, NOMINAL_HZ) is None
    assert sampling_rate(some(1217.0, [0.3, 0.35, 0.41, 0.45]), READOUT_S, NOMINAL_HZ) is None


def scatter(rate_hz, period_s, window_s=0.5, windows=60):
    means = [readings(rate_hz, period_s, window_s, seed, noise=0.0)[1].mean() for seed in range(windows)]
    return float(np.std(means) / np.mean(means))


ON_MS = [1e3 / (1228.6 - 50 * n) for n in (3, 4, 5)]
OFF_MS = [1e3 / (1228.6 - 50 * n - 20) for n in (3, 4, 5)]


@pytest.mark.parametrize("period_ms", ON_MS + OFF_MS)
def test_windows_scatter_by_about_as_much_as_is_said(period_ms):
    said = np.sqrt(seen_variance(np.array([period_ms / 1e3]), 0.5, SamplingRate(1228.6, READOUT_S, 0.1), PAUSED * 1e-3))
    assert scatter(1228.6, period_ms / 1e3) < 2 * said[0]
    # What is irregular in a real load comes on top, of which this one has nothing: off the beat more is said.
    assert scatter(1228.6, period_ms / 1e3) > 0.35 * said[0] or period_ms in OFF_MS


def test_windows_whose_readings_stand_still_scatter_many_times_as_much():
    on = np.mean([scatter(1228.6, ms / 1e3) for ms in ON_MS])
    off = np.mean([scatter(1228.6, ms / 1e3) for ms in OFF_MS])
    assert on > 5 * off


def test_what_is_said_has_the_shape_of_the_periods_and_grows_with_doubt_and_shorter_windows():
    period_s = np.array([[0.97e-3, 1.0e-3, 1.02e-3], [1.03e-3, 1.05e-3, 1.06e-3]])
    sure, unsure = (SamplingRate(1228.6, READOUT_S, hz) for hz in (0.1, 10.0))
    said = seen_variance(period_s, 0.5, sure, 0.2e-3)
    assert said.shape == period_s.shape
    assert np.all(seen_variance(period_s, 0.5, unsure, 0.2e-3) >= said)
    assert np.all(seen_variance(period_s, 0.2, sure, 0.2e-3) > said)
    long_s = np.array([9.1e-3])
    assert seen_variance(long_s, 0.5, sure, 2e-3, 8)[0] > seen_variance(long_s, 0.5, sure, 0.0, 8)[0]


def test_readings_that_remember_what_was_before_a_window_are_left_out():
    stamp_ns = np.arange(0, 1_000_000_000, 20_000_000)
    [one] = repetitions(
        stamp_ns, np.arange(50.0), [(200_000_000, 500_000_000, 0.9e-3), (990_000_000, 995_000_000, 1e-3)], 0.05
    )
    assert one.power_w.tolist() == list(range(13, 25))
    assert one.time_s[:2].tolist() == [0.0, 0.02]
    assert one.period_s == 0.9e-3


def test_of_a_long_window_the_first_seconds_are_looked_at():
    stamp_ns = np.arange(0, 60_000_000_000, 20_000_000)
    [one] = repetitions(stamp_ns, np.full(len(stamp_ns), 260.0), [(0, 60_000_000_000, 0.9e-3)], 0.05)
    assert 5 < one.time_s[-1] < 20


def test_what_takes_no_time_is_not_seen_by_the_samples():
    assert seen_variance(np.array([0.0]), 0.5, SamplingRate(1228.6, READOUT_S)).tolist() == [0.0]
