"""Simulated sensors against what is known of real ones, and against sums done the slow way."""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.simulator import Power, SamplingSensor
from jouletrace.simulator.sensors import BIN_NS, SimulatedResponse
from simulated_power import Board, play
from simulated_programs import Kinds, draw_kinds, fixed_order, lay_out, varied_order
from simulated_sensors import SHAPES, other_response

BEGIN = 1_790_000_000_000_000_000


def power_of(*pieces):
    """Power of (length in ms, W)."""
    length, watts = np.array(pieces, dtype=float).T
    return Power(BEGIN, np.r_[0, np.cumsum(length * 1e6)].astype(np.int64), watts)


def busy_power(seconds, seed=2):
    rng = np.random.default_rng(seed)
    kinds = draw_kinds(rng, 8, 20e3, 2e6)
    scene = lay_out(varied_order(rng, seconds, kinds), seconds)
    return play(rng, scene, Board.draw(rng, 8, seconds))[1]


def quiet(**changes):
    """A sensor whose readings are exact and whose stamps are in time, all but for its sampling."""
    box = other_response(np.random.default_rng(0), "box")
    exact = SamplingSensor(1230.0, box, drift_hz=0, jitter_ns=0, noise_w=0, quantum_w=1e-3)
    return replace(exact, **{"stamp_ns": 0, "fifth_late": 0, "slipped": 0, "lost": 0} | changes)


def record(sensor, power, seed=1):
    return sensor.record(np.random.default_rng(seed), power)


# --- Response ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_a_response_is_a_mean_centred_to_10_us(shape):
    response = other_response(np.random.default_rng(1), shape)
    lag = response.first_ns + BIN_NS * (np.arange(len(response.weights)) + 0.5)
    assert response.weights.sum() == pytest.approx(1)
    assert abs(response.weights @ lag) <= 10_000 + 1
    behind = response.behind((20_000.0, 10_000.0))
    later = behind.first_ns + BIN_NS * (np.arange(len(behind.weights)) + 0.5)
    assert behind.weights @ later == pytest.approx(response.weights @ lag + 30_000, abs=2_500)


def test_two_lobes_are_those_of_an_h100():
    sizes = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        weights = SimulatedResponse.draw(rng).behind(Board.draw(rng, 1, 1.0).poles_ns).weights
        pulse = np.convolve(weights, np.ones(int(48e3 / BIN_NS)))
        lag = np.arange(len(weights)) * BIN_NS * 1e-3
        peak = [i for i in range(1, 90) if weights[i] > max(weights[i - 1], weights[i + 1])]
        spread = np.sqrt(weights @ (lag - weights @ lag) ** 2)
        sizes.append((len(peak), lag[peak[-1]] - lag[peak[0]], spread, np.sum(pulse > pulse.max() / 2) * BIN_NS / 1e3))
    lobes, apart, spread, width = np.mean(sizes, axis=0)
    assert lobes >= 1.8
    assert 58 < apart < 72
    assert 42 < spread < 52
    assert 110 < width < 140


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_seen_is_the_convolution(shape):
    power = busy_power(0.05)
    response = other_response(np.random.default_rng(3), shape).behind((15_000.0,))
    instants = np.array([401.2345e6, 410.1e6, 433.7654e6])
    fine = np.arange(395e6, 440e6, 100) + 50.0
    watts = power.watts[np.searchsorted(power.edges_ns, fine, "right") - 1]
    for instant, seen in zip(instants, response.see(power, instants), strict=True):
        place = np.floor((instant - fine - response.first_ns) / BIN_NS).astype(int)
        inside = (place >= 0) & (place < len(response.weights))
        slow = np.sum(response.weights[place[inside]] * watts[inside]) * 100 / BIN_NS
        assert seen == pytest.approx(slow, abs=1.0)


# --- The sensor that samples ------------------------------------------------------------------------------------------


def test_samples_come_at_the_rate_and_drift():
    sensor = quiet(drift_hz=-0.3, phase=0.25)
    instants = sensor.instants_ns(40e9) * 1e-9
    rate = 1 / np.diff(instants)
    assert rate[0] == pytest.approx(1230, abs=0.01)
    assert rate[-1] == pytest.approx(1229.7, abs=0.01)
    assert instants[0] == pytest.approx(0.75 / 1230, rel=1e-3)


def test_a_step_is_seen_12_7_ms_long_and_3_4_ms_late():
    rows = record(quiet(), power_of((500, 100), (1_000, 700)))
    since = rows[:, 0] * 1e-6 - BEGIN * 1e-9 - 0.5
    seen = (rows[:, 1] * 1e-3 - 100) / 600
    after = since > 0.006
    expected = 1 - np.exp(-(since[after] - 0.0034) * 1230 * np.log(16 / 15))
    assert seen[after] == pytest.approx(expected, abs=0.07)
    assert seen[since < 0] == pytest.approx(np.zeros(np.sum(since < 0)), abs=1e-5)


@pytest.mark.thorough
def test_a_constant_load_shows_the_known_noise():
    sensor = SamplingSensor.draw(np.random.default_rng(8), 40.0)
    watts = record(sensor, power_of((40_000, 120.0)))[:, 1] * 1e-3
    assert watts.mean() == pytest.approx(120, abs=0.05)
    assert 0.3 < watts.std() < 0.38
    steps = np.diff(np.unique(watts))
    assert steps.min() == pytest.approx(sensor.quantum_w, abs=0.002)


@pytest.mark.parametrize("seed", range(4))
def test_the_mean_of_long_records_is_the_energy(seed):
    power = busy_power(12.0, seed)
    rows = record(SamplingSensor.draw(np.random.default_rng(seed), 12.0), power)
    stamps = rows[:, 0] * 1e3 - BEGIN
    inside = (stamps > 1e9) & (stamps < 12e9)
    truth = power.mean_w(np.array([1e9 - 16e6]), np.array([12e9 - 16e6]))
    # 13,500 samples of powers that scatter by about 200 W: 2 W at 95 %, half of it when slow scatter is left out
    assert rows[inside, 1].mean() * 1e-3 == pytest.approx(truth[0], abs=4)


def test_a_step_near_the_rate_is_seen_slowed_down_880_times():
    rng = np.random.default_rng(2)
    kinds = Kinds(("on", "off"), ("on", "off"), ("on", "off"), np.array([400e3, 300e3]), np.array([800.0, 130.0]))
    scene = lay_out(fixed_order(rng, 12.0, kinds, sync_ns=0), 12.0, every_ns=1e9 / (1230 - 1.4))
    _, power, _ = play(rng, scene, Board.ideal(2))
    rows = record(quiet(), power)[40:-40]
    watts = rows[:, 1] * 1e-3
    # the mean over any 20 ms is the same, and yet readings swing nearly the whole way
    windows = np.arange(1e9, 11e9, 20e6)
    assert np.ptp(power.mean_w(windows, windows + 20e6)) < 25
    assert np.ptp(watts) > 600
    frequency = np.fft.rfftfreq(len(watts) * 8, 0.0200002)
    heard = frequency[np.argmax(np.abs(np.fft.rfft(watts - watts.mean(), len(watts) * 8)))]
    assert (1230 - 1.4) / heard == pytest.approx(878, rel=0.02)


@pytest.mark.thorough
def test_stamps_have_the_known_faults():
    sensor = replace(SamplingSensor.draw(np.random.default_rng(8), 200.0), fifth_late=0.95, slipped=0.02)
    rows = record(sensor, power_of((200_000, 120.0)), seed=3)
    stamp = rows[:, 0] * 1e3 - BEGIN - sensor.offset_ns
    slot = np.rint(stamp / sensor.period_ns)
    late = stamp - slot * sensor.period_ns
    in_time = np.abs(late) < 1e6
    assert in_time.mean() == pytest.approx(0.80, abs=0.03)
    assert 40e3 < 1.4826 * np.median(np.abs(late[in_time])) < 110e3
    fifth = (late > 2.5e6) & (late < 6e6)
    assert fifth.mean() == pytest.approx(0.19, abs=0.02)
    assert np.median(late[fifth]) == pytest.approx(3.1e6, abs=0.2e6)
    assert np.mean(slot[fifth] % 5 == 0) > 0.95
    slipped = late < -3e6
    assert slipped.mean() == pytest.approx(0.02, abs=0.005)
    assert np.median(late[slipped]) == pytest.approx(-6.5e6, abs=0.5e6)
    step = np.diff(slot)
    assert np.mean(step == 0) == pytest.approx(0.02, abs=0.005)
    assert np.mean(step == 2) == pytest.approx(0.021, abs=0.005)


def test_late_stamps_have_values_that_are_not_late_and_slips_have():
    ramp = Power(BEGIN, (np.arange(60_001) * 1_000_000), np.arange(60_000) * 0.01)
    sensor = quiet(fifth_late=0.95, slipped=0.02)
    rows = record(sensor, ramp)[10:]
    slot = np.rint((rows[:, 0] * 1e3 - BEGIN - sensor.offset_ns) / sensor.period_ns)
    late = rows[:, 0] * 1e3 - BEGIN - sensor.offset_ns - slot * sensor.period_ns
    behind_ms = (rows[:, 1] * 1e-3 / 0.01) - (slot * sensor.period_ns + sensor.offset_ns) * 1e-6
    usual = np.median(behind_ms)
    assert np.median(behind_ms[late > 2e6]) == pytest.approx(usual, abs=0.3)
    assert np.median(behind_ms[late < -2e6]) == pytest.approx(usual - 9.6, abs=0.6)
