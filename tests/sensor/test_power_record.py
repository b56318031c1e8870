"""A record made fit for integration, with nothing repaired in silence."""

import dataclasses

import numpy as np
import pytest

from energy_signals import T0
from jouletrace.errors import BadInputError
from jouletrace.sensor import clean, find_grid, most_power_w
from jouletrace.sensor.power_record import at_slots, spliced
from jouletrace.sensor.stamps import updates

MS = 1_000_000


def regular(n, period_ms=20):
    return T0 + np.arange(n, dtype=np.int64) * period_ms * MS


def test_a_clean_record_passes_untouched():
    time, power = regular(50), np.linspace(100, 200, 50)
    record = clean(time, power)
    assert np.array_equal(record.time_ns, time)
    assert np.array_equal(record.value, power)
    assert record.period_s == pytest.approx(0.02)
    assert record.issues == {}
    assert len(record.holes) == 0


def test_nan_infinite_and_negative_readings_are_dropped_and_counted():
    power = np.full(50, 100.0)
    power[[3, 4]], power[10], power[20] = np.nan, np.inf, -5
    record = clean(regular(50), power, 0.02)
    assert record.issues["nan"] == 3
    assert record.issues["negative"] == 1
    assert len(record) == 46
    assert np.all(record.value == 100)


def test_a_reading_delivered_late_is_sorted_in_and_flagged():
    time, power = regular(50), np.arange(50.0)
    order = np.arange(50)
    order[[20, 21]] = [21, 20]
    record = clean(time[order], power[order])
    assert record.issues == {"out_of_order": 1}
    assert np.array_equal(record.value, power)


def test_duplicates_and_conflicting_stamps_are_distinguished():
    time = np.sort(np.append(regular(50), regular(50)[[5, 7, 9]]))
    power = np.full(53, 100.0)
    power[12] = 250.0  # the second reading of slot 9
    record = clean(time, power)
    assert record.issues == {"duplicate": 2, "conflicting_stamps": 1}
    assert record.value[9] == 250.0


def test_a_hole_in_the_record_is_flagged():
    time = np.delete(regular(100), slice(40, 45))
    record = clean(time, np.full(95, 100.0), 0.02)
    assert record.issues == {"hole": 1}
    assert np.array_equal(record.holes, [[time[39], time[40]]])
    start, end = regular(100)[[0, 38, 60]], regular(100)[[30, 42, 90]]
    assert record.hole_seconds(start, end) == pytest.approx([0, 0.06, 0])


def test_one_lost_reading_is_no_hole_but_is_counted():
    record = clean(np.delete(regular(100), 40), np.full(99, 100.0), 0.02)
    assert record.issues == {"skipped": 1}
    assert len(record.holes) == 0


def test_a_clock_that_steps_back_leaves_a_hole_where_time_was_lived_twice():
    time = regular(200)
    time[100:] -= 500 * MS
    record = clean(time, np.full(200, 100.0), 0.02)
    assert record.issues["clock_stepped_back"] == 1
    assert np.all(np.diff(record.time_ns) > 0)
    twice = [time[100], time[99]]
    assert not np.isin(twice, record.time_ns).any()
    assert record.hole_seconds([twice[0]], [twice[1]]) == pytest.approx([(twice[1] - twice[0]) / 1e9])


@pytest.mark.parametrize(("n", "code"), [(0, "no_samples"), (1, "one_sample")])
def test_a_record_too_short_to_integrate_says_so(n, code):
    assert clean(regular(n), np.full(n, 100.0)).issues == {code: 1}


def test_stamps_and_readings_that_do_not_match_are_refused():
    with pytest.raises(BadInputError, match="do not go with"):
        clean(regular(5), np.ones(4))
    with pytest.raises(BadInputError, match="integer nanoseconds"):
        clean(np.linspace(0, 1, 5), np.ones(5))


def test_of_a_polled_sensor_only_reads_that_bring_news_are_kept():
    time, value = updates(np.arange(9), [5, 5, 5, 7, 7, 6, 6, 6, 5])
    assert time.tolist() == [3, 5, 8]
    assert value.tolist() == [7, 6, 5]


@pytest.mark.parametrize("late", ["late only", "both sides"])
def test_the_grid_behind_jittering_stamps_is_estimated(late):
    rng = np.random.default_rng(3)
    true = np.arange(2000) * 0.020006
    if late == "late only":  # most on time, some late by up to 0.7 periods, as an H100's are
        stamp = true + np.where(rng.random(2000) < 0.25, rng.choice([0.003, 0.0045, 0.014], 2000), 0)
    else:
        stamp = true + np.clip(rng.normal(0, 0.003, 2000), -0.008, 0.008)
    grid = find_grid(T0 + np.round(stamp * 1e9).astype(np.int64))
    error = grid.time_s - true
    assert grid.period_s == pytest.approx(0.020006, rel=1e-5)
    assert np.std(error) < 2e-4
    assert grid.lost == 0


def test_slots_without_a_reading_are_counted_as_lost():
    keep = np.random.default_rng(1).random(1000) > 0.1
    assert find_grid(regular(1000)[keep]).lost == pytest.approx(1 - keep.mean(), abs=0.005)


def test_a_reading_made_half_a_period_late_is_put_there():
    time = regular(500)
    time[100] += 13 * MS  # read at the half slot, stamped 3 ms later
    time[200] += 3 * MS
    grid = find_grid(time)
    taken = grid.taken(2) - grid.taken(1)
    assert taken[100] == pytest.approx(0.010)
    assert np.delete(taken, 100) == pytest.approx(0)
    assert grid.taken(0) == pytest.approx((time - time[0]) / 1e9, abs=1e-9)


def test_a_record_at_its_slots_knows_when_late_readings_were_taken_and_how_well():
    time = regular(500)
    time[100] += 13 * MS  # read at the half slot, stamped 3 ms later
    time[200] += 3 * MS
    time = np.insert(time, 301, time[300] + 4 * MS)  # a second reading in a half slot
    found = at_slots(clean(time, np.arange(501.0), 0.02), 0.02, 2)
    assert np.delete(np.arange(501), 301).tolist() == found.value.tolist()
    assert found.time_s == pytest.approx(0.02 * np.arange(500) + np.where(np.arange(500) == 100, 0.010, 0), abs=1e-6)
    late_s = np.zeros(500)
    late_s[[100, 200]] = 0.0065, 0.0015  # half of the lateness
    assert found.unsure_s == pytest.approx(late_s, abs=1e-6)


def test_no_reading_is_taken_after_its_stamp_though_a_busy_driver_is_often_late():
    """As on an H200 whose counter another process read every 2 ms: one of eight stamps at half a slot or later."""
    rng = np.random.default_rng(4)
    late_ms = np.where(rng.random(1000) < 0.13, rng.choice([9.5, 10.5, 11.0, 14.5, 16.0, 18.0], 1000), 0.0)
    time = regular(1000) + np.round((late_ms + rng.exponential(0.2, 1000)) * MS).astype(np.int64)
    found = at_slots(clean(np.sort(time), np.arange(1000.0), 0.02), 0.02, 2)
    assert np.all(found.time_s <= (found.time_ns - found.time_ns[0]) / 1e9 + 0.001)


def test_the_standard_error_of_a_grids_period_is_of_the_size_of_its_error():
    off = []
    for seed in range(60):
        stamp = np.arange(300) * 0.020006 + np.clip(np.random.default_rng(seed).normal(0, 0.003, 300), -0.008, 0.008)
        grid = find_grid(T0 + np.round(stamp * 1e9).astype(np.int64))
        off.append((grid.period_s - 0.020006) / grid.period_se_s)
    assert 0.9 < np.sqrt(np.mean(np.square(off))) < 1.5


@pytest.mark.parametrize("guess", [0.86, 0.95, 1.05, 1.14])
def test_a_first_guess_of_a_grids_period_may_be_15_percent_off_either_way(guess):
    jitter = np.clip(np.random.default_rng(0).normal(0, 0.003, 2000), -0.008, 0.008)
    stamp = np.arange(2000) * 0.020006 + jitter
    grid = find_grid(T0 + np.round(stamp * 1e9).astype(np.int64), 0.020006 * guess)
    assert grid.period_s == pytest.approx(0.020006, rel=1e-5)
    assert np.array_equal(grid.slot, np.arange(2000))


@pytest.mark.parametrize(
    ("name", "watts"),
    [
        *(("Tesla P4", 75), ("Jetson AGX Thor", 130), ("Tesla P40", 250), ("NVIDIA A40", 300), ("L40S", 350)),
        *(("Tesla V100-SXM3-32GB", 350), ("A100-SXM4-80GB", 400), ("NVIDIA GeForce RTX 5090", 575)),
        *(("NVIDIA H200", 700), ("NVIDIA GB200", 1200)),
    ],
)
def test_a_reading_is_a_glitch_from_1_6_times_on_what_the_largest_gpu_of_a_family_may_draw(name, watts):
    """Its rating, as its data sheet states it, and up to half more."""
    assert 1.6 * watts <= most_power_w(None, None, name) <= 2.4 * watts


def test_two_readings_of_one_stamp_after_a_clock_stepped_back_are_no_second_step():
    time = regular(200)
    time[100:] -= 500 * MS
    time[106] = time[105]
    assert clean(time, np.full(200, 100.0), 0.02).issues["clock_stepped_back"] == 1


def test_no_gpu_draws_20_kw():
    record = clean(regular(3), [100.0, 20_000.0, 20_001.0])
    assert (record.value.tolist(), record.issues) == ([100.0, 20_000.0], {"implausible": 1})
    assert most_power_w(6_000.0, None) == 9_600.0
    assert most_power_w(13_000.0, None) == most_power_w(None, 2_001.0) == 20_000.0


def test_two_and_a_half_periods_are_no_hole():
    time = T0 + np.array([0, 20, 70, 90, 141]) * MS
    assert clean(time, np.ones(5), 0.02).issues == {"skipped": 1, "hole": 1}
    assert clean(time[:2], np.ones(2)).period_s == 0.02


def test_a_record_is_spliced_where_it_has_holes():
    """One of 10 s, and one of 3 and 4 s with a single reading between."""
    stamps = np.array([0, 1, 2, 12, 13, 14, 17, 21, 22], np.int64) * 10**9
    record = clean(stamps, np.arange(9.0), 1.0)
    assert record.holes.tolist() == [[2 * 10**9, 12 * 10**9], [14 * 10**9, 21 * 10**9]]
    found, times = spliced(record, [0, 2_500_000_000, 11 * 10**9, 12_500_000_000, 22 * 10**9])
    assert (found.time_ns / 1e9).tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert found.value.tolist() == [0, 1, 2, 3, 4, 5, 7, 8]
    assert (times / 1e9).tolist() == [0, 2.5, 3, 3.5, 7]
    assert len(found.holes) == 0
    known = dataclasses.replace(record, true_s=stamps / 1e9 - 0.25)
    assert spliced(known, [0])[0].true_s == pytest.approx(np.arange(8) - 0.25)


def test_pauses_of_one_length_are_holes_however_many():
    times = np.concatenate([64 * start + np.arange(5) for start in range(30)])
    record = clean(T0 + times * 10**9, np.full(len(times), 100.0))
    assert len(record.holes) == 29
