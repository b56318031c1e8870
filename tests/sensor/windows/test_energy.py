"""Energy of windows against a load whose every joule is known."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from covering import fewest
from energy_signals import SENSORS, T0, Load, Sensor, bursts, calibrated, ns
from jouletrace.errors import BadInputError
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.kinds import KINDS
from jouletrace.sensor.power_record import clean, integrate
from jouletrace.sensor.windows.energy import window_energy
from jouletrace.sensor.windows.repeated import repeated_energy
from jouletrace.sensor.windows.segments import stretches


@cache
def measure(name, length, count=35, seeds=(0, 1, 2)):
    """Relative error and half-width of the interval of many bursts that overshoot, over several calibrations."""
    error, half, nulls = [], [], 0
    for seed in seeds:
        stamps, power, start, end, truth = bursts(name, seed, length, count, overshoot=0.15)
        found = window_energy(clean(stamps, power), calibrated(name, seed), ns(start), ns(end))
        nulls += sum(reason is not None for reason in found.reason)
        error.append(found.energy_j / truth - 1)
        half.append((found.high_j - found.low_j) / 2 / truth)
    return np.concatenate(error), np.concatenate(half), nulls


BURSTS = [
    ("h100", 0.04, 0.01, 0.05),
    ("h100", 0.2, 0.003, 0.01),
    ("h100", 2.0, 0.003, 0.01),
    ("h100 slow", 0.05, 0.01, 0.05),
    ("h100 slow", 0.5, 0.003, 0.01),
    ("v100", 0.06, 0.01, 0.05),
    ("v100", 0.2, 0.003, 0.02),
    ("tailed", 0.06, 0.004, 0.04),
    ("a100", 2.0, 0.01, 0.05),
    ("average", 2.0, 0.01, 0.05),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "length", "mean", "p99"), BURSTS)
def test_bursts_come_out_right_with_honest_intervals(name, length, mean, p99):
    error, half, nulls = measure(name, length)
    assert nulls == 0
    assert abs(error.mean()) < mean
    assert np.percentile(np.abs(error), 99) < p99
    assert np.sum(np.abs(error) < half) >= fewest(len(error))
    assert np.median(half) < (5.3 if name == "average" else 3.2) * np.sqrt(np.mean(error**2))


@pytest.mark.thorough
def test_intervals_of_all_sensors_together_hold_what_they_say():
    """A thousand bursts distinguish 95 % from 93, which a hundred can't."""
    found = [measure(name, length)[:2] for name, length, *_ in BURSTS]
    error, half = (np.concatenate(parts) for parts in zip(*found, strict=True))
    assert np.sum(np.abs(error) < half) >= fewest(len(error))


@pytest.mark.thorough
def test_the_correction_surpasses_the_record_as_is():
    stamps, power, start, end, truth = bursts("h100 slow", 4, 0.1, 40)
    plain = integrate(stamps, power, ns(start), ns(end)) / truth - 1
    ours = window_energy(clean(stamps, power), calibrated("h100 slow"), ns(start), ns(end)).energy_j / truth - 1
    assert plain.mean() < -0.04
    assert np.sqrt(np.mean(ours**2)) < np.sqrt(np.mean(plain**2)) / 10


@pytest.mark.thorough
def test_a_steady_load_gives_power_times_time():
    rng = np.random.default_rng(1)
    load = Load(rng, 20, [0.1], [300.0, 300.0], relative=0.0)
    stamps, power = Sensor(0.02, 0.025, noise=0.1, relative=0.0).read(rng, load)
    start, end = np.array([3.0, 4.0, 5.0]), np.array([3.05, 4.5, 15.0])
    found = window_energy(clean(stamps, power), calibrated("h100"), ns(start), ns(end))
    assert found.energy_j == pytest.approx(300 * (end - start), rel=2e-3)
    assert np.all(np.abs(found.energy_j - load.energy(start, end)) < 3 * found.sd_j)


def test_neighbouring_windows_add_up_to_the_whole():
    stamps, power, start, end, _ = bursts("h100", 7, 0.5, 5)
    cuts = np.array([start[1] - 0.3, start[1], end[1], start[2], end[2], end[2] + 0.3])
    record = clean(stamps, power)
    found = window_energy(
        record, calibrated("h100"), ns(np.append(cuts[:-1], cuts[0])), ns(np.append(cuts[1:], cuts[-1]))
    )
    assert found.energy_j[:-1].sum() == pytest.approx(found.energy_j[-1], rel=2e-3)


def test_known_edges_near_a_window_are_used():
    rng = np.random.default_rng(2)
    start = 2 + 0.9 * np.arange(30) + rng.uniform(0, 0.02, 30)
    middle, end = start + 0.03, start + 0.09
    edges = np.stack([start, middle, end], 1).ravel()
    levels = np.append(np.tile([120.0, 650.0, 300.0], 30), 120.0)
    load = Load(rng, 31, edges, levels)
    record = clean(*SENSORS["h100"].read(rng, load))
    truth = load.energy(middle, end)
    blind = window_energy(record, calibrated("h100"), ns(middle), ns(end)).energy_j / truth - 1
    error = window_energy(record, calibrated("h100"), ns(middle), ns(end), edges_ns=ns(edges)).energy_j / truth - 1
    assert np.sqrt(np.mean(error**2)) < 0.02
    assert np.isnan(blind).any() or np.sqrt(np.mean(error**2)) < np.sqrt(np.mean(blind**2))


@pytest.mark.thorough
def test_a_window_that_no_reading_saw_is_null_not_zero():
    stamps, power, start, _, _ = bursts("a100", 3, 0.2, 30)
    found = window_energy(clean(stamps, power), calibrated("a100"), ns(start + 0.05), ns(start + 0.056))
    nulls = np.array([reason is not None for reason in found.reason])
    assert nulls.mean() > 0.3
    assert {reason for reason in found.reason if reason} == {"sensor_too_slow"}
    assert np.array_equal(np.isnan(found.energy_j), nulls)
    assert np.array_equal(np.isnan(found.high_j), nulls)


def test_windows_that_the_record_does_not_reach_have_a_reason():
    stamps, power, start, end, _ = bursts("h100", 3, 0.2, 3)
    record = clean(stamps, power)
    far = int(10e9)
    found = window_energy(
        record,
        calibrated("h100"),
        [record.time_ns[0] - far, record.time_ns[-1] + far, ns(end[1]), ns(start[1])],
        [record.time_ns[0] - far // 2, record.time_ns[-1] + 2 * far, ns(start[1]), ns(end[1])],
    )
    assert found.reason == ["outside_record", "outside_record", "empty_window", None]
    assert np.isnan(found.energy_j[:3]).all()


@pytest.mark.parametrize("n", [0, 1])
def test_an_empty_record_gives_nulls(n):
    found = window_energy(clean(ns(np.arange(n)), np.full(n, 100.0)), KINDS["hopper"].response, [T0], [T0 + 10**9])
    assert found.reason == ["no_samples"]
    assert np.isnan(found.energy_j).all()


def test_a_record_of_a_few_readings_does_not_break():
    stamps = ns(np.arange(6) * 0.02)
    found = window_energy(clean(stamps, np.full(6, 100.0)), StepResponse(0.02, 0.02), stamps[1:2], stamps[4:5])
    assert found.energy_j == pytest.approx([6.0], rel=0.05)


def test_a_hole_is_never_bridged_silently():
    stamps, power, start, end, truth = bursts("h100", 9, 3.0, 6)
    middle = (start + end) / 2
    holes = [(middle[1], 0.08), (middle[2], 0.4)]
    keep = np.ones(len(stamps), bool)
    for at, length in holes:
        keep &= (stamps < ns(at)) | (stamps > ns(at + length))
    found = window_energy(clean(stamps[keep], power[keep], 0.02), calibrated("h100"), ns(start), ns(end))
    assert found.reason == [None, None, "hole_in_record", None, None, None]
    assert ["hole_in_record" in flags for flags in found.flags] == [False, True, True, False, False, False]
    assert found.sd_j[1] > 5 * found.sd_j[0]
    assert found.low_j[1] < truth[1] < found.high_j[1]


def test_flags_of_the_response_reach_every_window():
    stamps, power, start, end, _ = bursts("h100", 3, 0.2, 3)
    record = clean(stamps, power)
    nominal = window_energy(record, StepResponse(0.02, 0.025), ns(start), ns(end))
    assert all("nominal_response" in flags for flags in nominal.flags)
    bad = StepResponse(0.02, 0.025, flags=("unmodelled", "drifting"), origin="calibrated")
    assert all("unmodelled" in flags for flags in window_energy(record, bad, ns(start), ns(end)).flags)


def test_readings_that_contradict_the_response_are_flagged():
    stamps, power, start, end, _ = bursts("h100", 3, 0.3, 20)
    wrong = StepResponse(0.02, 0.025, lag_s=0.05, origin="calibrated")
    found = window_energy(clean(stamps, power), wrong, ns(start), ns(end))
    doubtful = ["unmodelled" in f or r is not None for f, r in zip(found.flags, found.reason, strict=True)]
    assert np.mean(doubtful) > 0.9


def test_what_is_not_known_of_the_response_is_in_the_interval():
    stamps, power, start, end, truth = bursts("h100", 3, 0.05, 20)
    record = clean(stamps, power)
    sure = StepResponse(0.02, 0.025, origin="calibrated")
    unsure = StepResponse(0.02, 0.025, origin="calibrated", covariance=((0, 0, 0), (0, 0.004**2, 0), (0, 0, 0)))
    a, b = (window_energy(record, r, ns(start), ns(end)) for r in (sure, unsure))
    assert np.all(a.sd_model_j == 0)
    assert np.median(b.sd_model_j / truth) > 0.002
    assert b.sd_j == pytest.approx(np.hypot(b.sd_statistical_j, b.sd_model_j))


def test_mismatched_windows_are_refused():
    with pytest.raises(BadInputError, match="do not go with"):
        window_energy(clean(ns([0.0, 1.0]), [1.0, 2.0]), KINDS["hopper"].response, [T0, T0], [T0])


def blocks(seed, count, length=0.025, spread=True):
    rng = np.random.default_rng(seed)
    gaps = rng.uniform(0.15, 0.4, count + 1) if spread else np.full(count + 1, 0.2 - length)
    start = 2 + np.cumsum(gaps[:-1]) + length * np.arange(count)
    levels = np.full(2 * count + 1, 120.0)
    levels[1::2] = rng.uniform(250, 700)
    load = Load(rng, start[-1] + 3, np.stack([start, start + length], 1).ravel(), levels)
    sensor = SENSORS["a100"] if spread else Sensor(0.1, 0.025)
    record = clean(*sensor.read(rng, load))
    return record, ns(start), ns(start + length), load.energy(start, start + length).mean()


@pytest.mark.parametrize(("count", "known"), [(10, 10), (60, 15)])
def test_short_blocks_repeated_at_spread_phases_are_measured_by_a_slow_sensor(count, known):
    """Ten blocks rest on three or four readings: of some seeds the interval would be wider than half the energy."""
    error, covered = repeated(count, 15, lambda seed: calibrated("a100", seed % 3))
    assert len(error) >= known
    assert abs(np.mean(error)) < 0.02
    assert sum(covered) >= fewest(len(covered))


@pytest.mark.thorough
@pytest.mark.parametrize(("count", "known"), [(10, 85), (60, 100)])
def test_intervals_of_repeated_blocks_hold_what_they_say(count, known):
    """By a response that is known: what three calibrations get wrong all of their blocks would share."""
    exact = StepResponse(0.1, 0.025, lag_s=0.010, jitter_s=0.002, origin="calibrated")
    error, covered = repeated(count, 100, lambda _: exact)
    assert len(error) >= known
    assert sum(covered) >= fewest(len(covered))


def repeated(count, seeds, response):
    """Relative errors of repeated blocks, and whether their intervals hold the truth."""
    error, covered = [], []
    for seed in range(seeds):
        record, start, end, truth = blocks(seed, count)
        found = repeated_energy(record, response(seed), start, end)[0]
        if found.value is not None:
            error.append(found.value / truth - 1)
            covered.append(found.low <= truth <= found.high)
    return error, covered


def test_blocks_that_readings_hardly_saw_are_null():
    record, start, end, _ = blocks(4, 10)
    found = repeated_energy(record, StepResponse(0.1, 0.025, lag_s=0.010, origin="calibrated"), start, end)[0]
    assert found.reason in ("sensor_too_slow", "phases_not_spread")


def test_a_grid_that_is_a_little_off_does_not_bias_repeated_blocks():
    shift = []
    for seed in range(6):
        record, start, end, truth = blocks(seed, 60)
        exact = StepResponse(0.1, 0.025, lag_s=0.010, origin="calibrated")
        off = replace(exact, lag_s=0.0115)
        found = [repeated_energy(record, response, start, end)[0].value / truth for response in (exact, off)]
        shift.append(found[1] - found[0])
    assert abs(np.mean(shift)) < 0.01


def test_a_gpu_that_dips_now_and_then_is_not_taken_for_calm():
    rng = np.random.default_rng(3)
    time = 0.1 * np.arange(400)
    dips = np.where(rng.random(400) < 0.25, -rng.uniform(5, 20, 400), 0.0)
    calm = 350 + 0.3 * rng.standard_normal(400)
    response = StepResponse(0.1, 0.025, noise_w=0.3, wander_relative=0.003, noise_tau_s=0.05)
    level = [stretches(time, power, np.empty(0), response).wander_w[0] for power in (calm, calm + dips)]
    assert level[0] < 1.5
    assert level[1] == pytest.approx(np.std(dips), rel=0.3)


def test_one_wrong_edge_does_not_make_a_calm_gpu_look_wild():
    rng = np.random.default_rng(4)
    time = 0.02 * np.arange(600)
    edges = np.array([3.0, 6.0, 9.0])
    power = np.where((time // 3).astype(int) % 2, 400.0, 120.0) + 0.5 * rng.standard_normal(600)
    late = StepResponse(0.02, 0.02, lag_s=0.05, noise_w=0.5, wander_relative=0.001)
    assert stretches(time, power, edges, late).wander_w.max() < 5


def test_blocks_always_at_one_phase_are_null():
    nulls = 0
    for seed in range(6):
        record, start, end, _ = blocks(seed, 40, spread=False)
        found = repeated_energy(record, StepResponse(0.1, 0.025, origin="calibrated"), start, end)[0]
        nulls += found.value is None
    assert nulls >= 3  # by luck of the phase the sensor may see them whole


@pytest.mark.thorough
def test_too_few_blocks_are_null():
    record, start, end, _ = blocks(1, 30)
    assert repeated_energy(record, calibrated("a100"), start[:9], end[:9])[0].reason == "too_few_windows"
    kinds = np.append(np.ones(5, int), np.zeros(25, int))
    found = repeated_energy(record, calibrated("a100"), start, end, kinds)
    assert found[0].value is not None
    assert found[1].reason == "too_few_windows"
    with pytest.raises(BadInputError, match="overlap"):
        repeated_energy(record, calibrated("a100"), start, end + 10**9)


@pytest.mark.parametrize("length", [0.1, 4.0])
@pytest.mark.parametrize("edges", [[], [1.0], [0.5, 1.0]], ids=str)
def test_a_window_within_a_steady_load_has_no_edges_of_its_own(edges, length):
    power = 300 + 0.3 * np.random.default_rng(0).normal(size=500)
    record = clean(ns(0.02 * np.arange(500)), power)
    found = window_energy(record, StepResponse(0.02, 0.025), [ns(3.0)], [ns(3.0 + length)], edges_ns=ns(edges))
    assert found.energy_j == pytest.approx([300 * length], rel=5e-3)
    assert found.sd_j[0] < 0.05 * found.energy_j[0]
