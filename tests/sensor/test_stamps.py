"""Stamps: repeated updates of a polled sensor, and the parts of the search for a grid."""

import numpy as np
import pytest

from energy_signals import T0
from jouletrace.sensor import Grid, find_grid, published
from jouletrace.sensor.stamps import _first_period, _front, _longest_stretch, _median_slope, _phases, _wrap, held_s

MS = 1_000_000
PERIOD_NS = 100 * MS


def polled(*changes, every_ms=5, until_ms=2000):
    """Polls of a sensor that shows a new value at given times: (ms, watts)."""
    stamps = T0 + np.arange(0, until_ms + 1, every_ms) * MS
    at = np.array([T0 + round(ms * MS) for ms, _ in changes])
    return stamps, np.array([watts for _, watts in changes])[np.searchsorted(at, stamps, side="right") - 1]


def ms(times):
    return ((times - T0) / MS).tolist()


def test_every_change_is_an_update_at_the_poll_that_saw_it():
    times, watts = published(*polled((-50, 100.0), (52, 110.0), (152, 120.0), (252, 130.0), until_ms=300), 0.1)
    assert (ms(times), watts.tolist()) == ([55, 155, 255], [110.0, 120.0, 130.0])


def test_a_value_that_stands_still_was_published_again():
    times, watts = published(*polled((-50, 100.0), (52, 110.0), (152, 120.0), (652, 130.0), until_ms=760), 0.1)
    assert ms(times) == [55, 155, 255, 355, 455, 555, 655]
    assert watts.tolist() == [110.0, *[120.0] * 5, 130.0]


@pytest.mark.parametrize(("next_ms", "repeats"), [(295, 0), (300, 0), (305, 1), (395, 1), (405, 2)])
def test_an_update_may_be_half_a_period_late_before_one_is_lost(next_ms, repeats):
    """After that of 155 ms, seen within 5 ms: the next but one is due by 305 ms."""
    times, _ = published(*polled((-50, 100.0), (152, 120.0), (next_ms, 130.0), until_ms=next_ms + 20), 0.1)
    seen = [one for one in ms(times) if 155 <= one < next_ms]
    assert len(seen) == 1 + repeats


@pytest.mark.parametrize(("first_ms", "times"), [(93, [95]), (102, [5, 105]), (252, [55, 155, 255])])
def test_the_first_read_counts_from_where_it_stood_still_for_a_period(first_ms, times):
    found, watts = published(*polled((-500, 100.0), (first_ms, 110.0), until_ms=first_ms + 30), 0.1)
    assert ms(found) == times
    assert watts.tolist() == [100.0] * (len(times) - 1) + [110.0]


def test_a_gpu_whose_power_never_changes_has_updates():
    times, watts = published(*polled((-500, 100.0), until_ms=1000), 0.1)
    assert ms(times) == [0, 100, 200, 300, 400, 500, 600, 700, 800, 900]
    assert set(watts) == {100.0}


def test_a_segment_without_polls_stays_a_hole():
    stamps, values = polled((-50, 100.0), (52, 110.0), until_ms=2000)
    there = (stamps < T0 + 400 * MS) | (stamps > T0 + 1400 * MS)
    times, _ = published(stamps[there], values[there], 0.1)
    # within a period of a poll an update may have been
    assert ms(times) == [55, 155, 255, 355, 455, 1355, 1455, 1555, 1655, 1755, 1855]


def published_one_by_one(stamps, values, period_ns):
    """Results of ``published`` for each update and each of its repetitions in turn."""
    changed = [k for k in range(1, len(stamps)) if values[k] != values[k - 1]]
    found = [(int(stamps[k]), values[k]) for k in changed] or [(int(stamps[0]), values[0])]
    still = found[0][0] - int(stamps[0])
    if still >= period_ns:
        found.insert(0, (found[0][0] - still // period_ns * period_ns, values[0]))
    again = []
    for (at, value), until in zip(found, [*(at for at, _ in found[1:]), int(stamps[-1])], strict=True):
        time = at + period_ns
        while until - time >= period_ns / 2:
            if np.abs(stamps - time).min() < period_ns:
                again.append((time, value))
            time += period_ns
    return sorted([*found, *again])


@pytest.mark.parametrize("every_ms", [1, 5, 50])
@pytest.mark.parametrize("seed", range(8))
def test_updates_are_those_of_each_poll_in_turn(seed, every_ms):
    """Polls on a grid of which parts lack, many times per period or twice, of a value that changes or stands still."""
    rng = np.random.default_rng(seed)
    there = np.repeat(rng.random(30) < 0.7, rng.integers(1, 60, 30))
    stamps = T0 + every_ms * MS * np.flatnonzero(there)
    values = np.repeat(rng.integers(100, 103, 200), rng.integers(1, 90, 200))[: len(stamps)].astype(float)
    times, watts = published(stamps, values, 0.1)
    assert list(zip(times.tolist(), watts.tolist(), strict=True)) == published_one_by_one(stamps, values, PERIOD_NS)


def test_no_polls_have_no_updates():
    none = np.zeros(0, np.int64)
    assert [len(one) for one in published(none, none.astype(float), 0.1)] == [0, 0]


GRID = Grid(0.02, 1e-6, 0.02 * np.arange(6), np.arange(6), np.array([0.0, 0.0093, 0.0095, 0.0193, 0.0195, -0.0005]))


def test_readings_are_put_at_parts_of_the_period_that_have_passed():
    """3 % of a period are taken for the grid's own error."""
    assert GRID.taken(1) - GRID.time_s == pytest.approx([0, 0, 0, 0, 0.02, 0])
    assert GRID.taken(2) - GRID.time_s == pytest.approx([0, 0, 0.01, 0.01, 0.02, 0])
    assert GRID.taken(0) == pytest.approx(GRID.time_s + GRID.late_s)


def test_lost_readings_are_slots_without_one():
    made = Grid(0.02, 1e-6, np.zeros(4), np.array([0, 1, 1, 4]), np.zeros(4))
    assert made.lost == pytest.approx(2 / 5)
    assert Grid(0.02, 1e-6, np.zeros(1), np.array([0]), np.zeros(1)).lost == 0.0


def test_phases_lie_within_half_a_period():
    found = _wrap(np.array([-0.011, -0.009, 0.009, 0.011, 0.02]), 0.02)
    assert found == pytest.approx([0.009, -0.009, 0.009, -0.009, 0.0])
    assert _wrap(np.array([0.01, -0.01]), 0.02).tolist() == [-0.01, -0.01]


def test_phases_are_medians_of_blocks_of_64_and_unwrapped():
    drifting = 0.02 * np.arange(640) * (1 + 2e-3)
    late = np.where(np.arange(640) % 5 == 0, 0.004, 0.0)
    anchor, phase = _phases(drifting + late, 0.02)
    assert len(anchor) == 10
    assert anchor[1] - anchor[0] == pytest.approx(64 * 0.02 * 1.002, rel=1e-3)
    middle = np.arange(10) * 64 + 31.5
    off = phase - middle * 0.02 * 2e-3
    assert off - off[0] == pytest.approx(np.zeros(10), abs=1e-4)
    assert phase[-1] - phase[0] > 0.02  # more than a period: nothing is wrapped
    assert len(_phases(drifting[:63], 0.02)[0]) == 1
    assert len(_phases(drifting[:128], 0.02)[0]) == 2


def test_a_median_slope_ignores_what_is_off():
    x = np.arange(400.0)
    y = 3.0 * x + np.where(np.arange(400) % 9 == 0, 500.0, 0.0)
    assert _median_slope(x, y) == pytest.approx(3.0, abs=1e-6)
    assert _median_slope(x[:5], 2 * x[:5]) == 2.0
    assert _median_slope(x[:2], 2 * x[:2]) == 2.0
    assert _median_slope(x[:1], x[:1]) == 0.0


def test_the_longest_part_without_a_hole_is_looked_at():
    time = np.concatenate([np.arange(30), 45 + np.arange(50), 106 + np.arange(20)]) * 0.02
    assert _longest_stretch(time, 0.02).tolist() == time[30:80].tolist()
    near = np.concatenate([np.arange(30), 39 + np.arange(50)]) * 0.02  # a hole of ten periods
    assert len(_longest_stretch(near, 0.02 + 1e-9)) == 80


@pytest.mark.parametrize("n", [64, 200, 1500])
def test_a_period_is_known_the_better_the_longer_the_record(n):
    rng = np.random.default_rng(2)
    time = 0.020006 * np.arange(n) + rng.normal(0, 2e-4, n)
    found = _first_period(time - time[0], 0.0195)
    assert found == pytest.approx(0.020006, abs=0.25 * 0.020006 / min(n, 1024))


def front(deviation):
    return _front(_wrap(deviation, 0.02), 0.02)


@pytest.mark.parametrize(
    ("late", "earliest"), [([0.003, 0.0045, 0.014], -0.006), ([0.001, 0.0185], -0.0015), ([0.009], -0.011)]
)
def test_stamps_that_only_come_late_begin_at_the_commonest_place(late, earliest):
    """Those later by almost a period look like early ones."""
    rng = np.random.default_rng(0)
    assert earliest < front(np.where(rng.random(4000) < 0.3, rng.choice(late, 4000), 0.0)) <= 0.0


def test_stamps_that_scatter_to_both_sides_begin_where_fewest_are():
    rng = np.random.default_rng(0)
    deviation = np.clip(rng.normal(0, 0.003, 4000), -0.0085, 0.0085)
    assert front(deviation) < -0.0085
    skewed = np.where(rng.random(4000) < 0.15, rng.uniform(-0.006, -0.004, 4000), rng.normal(0, 2e-4, 4000))
    assert -0.01 <= front(skewed) <= -0.006


def test_a_record_of_a_few_readings_has_its_nominal_grid():
    time = T0 + np.array([0, 21, 39, 100]) * MS
    grid = find_grid(time, 0.02)
    assert (grid.period_s, grid.slot.tolist(), grid.late_s.tolist()) == (0.02, [0, 1, 2, 5], [0.0] * 4)
    assert np.isnan(grid.period_se_s)
    assert grid.time_s == pytest.approx([0.0, 0.021, 0.039, 0.1])
    assert find_grid(time).period_s == pytest.approx(0.021)
    two, three = find_grid(time[[0, 3]]), find_grid(time[[0, 1, 3]], 0.02)
    assert (two.period_s, two.slot.tolist(), three.slot.tolist()) == (0.1, [0, 1], [0, 1, 5])
    assert find_grid(time[[0, 3]], 0.02).slot.tolist() == [0, 5]
    alone = find_grid(time[:1])
    assert (alone.slot.tolist(), np.isnan(alone.period_s)) == ([0], True)
    assert find_grid(time[:1], 0.02).period_s == 0.02
    eight = T0 + np.arange(8) * 20 * MS
    assert np.isfinite(find_grid(eight).period_se_s)


def test_a_grid_that_drifts_is_followed_and_one_that_does_not_is_straight():
    rng = np.random.default_rng(1)
    place = np.arange(4000)
    drift = 1e-3 * np.sin(2 * np.pi * place / 2000)
    for moved, off in ((drift, 1.5e-4), (0 * drift, 3e-5)):
        true = 0.02 * place + moved
        stamp = true + rng.normal(0, 2e-4, 4000)
        grid = find_grid(T0 + np.round(stamp * 1e9).astype(np.int64))
        away = grid.time_s - true
        assert np.std(away) < off
        assert grid.slot.tolist() == place.tolist()
        assert grid.late_s + grid.time_s == pytest.approx(stamp - stamp[0], abs=1e-8)


@pytest.mark.parametrize(("drift_ms", "followed"), [(0.6, False), (1.2, True)])
def test_a_grid_moves_if_its_blocks_move_by_twice_the_error_of_a_median(drift_ms, followed):
    """Of stamps that scatter by 2 ms the median of 64 errs by 0.32 ms, here taken as 1.9 of 1.35 ms over 8."""
    rng = np.random.default_rng(0)
    place = np.arange(2560)
    stamp = 0.02 * place + drift_ms * 1e-3 * np.sin(2 * np.pi * place / 1280) + rng.normal(0, 2e-3, 2560)
    spacing = np.diff(find_grid(T0 + np.round(stamp * 1e9).astype(np.int64)).time_s[::64])
    assert (np.std(spacing) > 1e-4) == followed


@pytest.mark.parametrize("late_ms", [0, 5, 9, 11, 15, 19])
def test_slots_are_counted_from_that_of_the_first_reading_however_late_its_stamp(late_ms):
    time = T0 + np.arange(200) * 20 * MS
    time[0] += late_ms * MS
    assert find_grid(time).slot.tolist() == list(range(200))


@pytest.mark.parametrize("n", [640, 1000])
def test_the_period_of_stamps_that_are_early_and_late_in_turn_is_known_by_how_far_they_are(n):
    """By 0.1 ms: 1.9 of it over the root of 64 readings at each of both ends, over the slots in between."""
    place = np.arange(n)
    grid = find_grid(T0 + place * 20 * MS + np.where(place % 2, MS // 10, -MS // 10))
    assert grid.period_s == pytest.approx(0.02, rel=1e-6)
    error = 1.9 * 1e-4 / np.sqrt(64) * np.sqrt(2)
    assert grid.period_se_s == pytest.approx(error / (n - 1), rel=0.05)
    assert grid.lost == 0.0


def test_stamps_of_which_some_are_late_lie_on_the_grid_of_the_others():
    """Each fifth is 3 ms late, and each seventh 14 ms."""
    place = np.arange(1400)
    late_ms = np.where(place % 7 == 3, 14, np.where(place % 5 == 1, 3, 0))
    grid = find_grid(T0 + (20 * place + late_ms) * MS)
    assert grid.period_s == pytest.approx(0.02, rel=1e-9)
    assert grid.late_s == pytest.approx(late_ms / 1e3, abs=1e-8)
    assert grid.time_s == pytest.approx(0.02 * place, abs=1e-8)
    assert grid.slot.tolist() == place.tolist()


def binned(**counts):
    """A thousand deviations from a grid of period 1: so many in some of the twenty bins before 0, the others at 0."""
    early = np.concatenate([np.full(n, -0.5 + (int(name[1:]) + 0.5) / 40) for name, n in counts.items()])
    return np.append(early, np.full(1000 - len(early), 1e-4))


@pytest.mark.parametrize(
    ("deviation", "begins"),
    [
        (binned(b3=49), 0.0),  # a twentieth and more a tenth of a period before: stamps scatter to both sides
        (binned(b3=50), -0.225),  # the middle of all bins but three, which are emptiest
        (binned(b15=50), -0.3),
        (binned(b16=50), 0.0),
        (binned(b19=5), 0.0),  # a bin is quiet up to one stamp in 200
        (binned(b19=6), -0.025),
        (binned(b18=6, b19=6), -0.05),
        (binned(b3=50, b10=3), -0.225),  # a bin in three of which one in a thousand lies is as empty
        (binned(b3=50, b10=4), -0.175),
    ],
)
def test_where_stamps_begin_by_how_many_lie_before_the_commonest_place(deviation, begins):
    assert _front(deviation, 1.0) == pytest.approx(begins)


def test_a_phase_of_half_a_period_is_determined_though_stamps_lie_to_both_sides():
    time = np.arange(64.0) + np.where(np.arange(64) % 2, 0.49, 0.51)
    assert np.abs(_phases(time, 1.0)[1]) == pytest.approx([0.5])


def test_bursts_of_rows_hold_no_reading_for_several_rows():
    spacing_s = np.tile([1.0, 0.001, 1.0, 0.001, 1.0, 0.001, 1.0, 0.001, 1.0, 1.0], 10)
    watts = np.random.default_rng(0).normal(100, 5, 100)
    watts[5:17] = watts[5]
    assert held_s(T0 + np.round(1e9 * np.cumsum(spacing_s)).astype(np.int64), watts) is None
