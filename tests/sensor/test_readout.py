import numpy as np
import pytest

from jouletrace.errors import BadInputError
from jouletrace.sensor import on_grid

PERIOD_NS = 20_000_400


def stamps(n=600, seed=0):
    """Places, and stamps as GPUs make them: four in five on time, every fifth about 3 ms late."""
    rng = np.random.default_rng(seed)
    place = np.arange(n)
    late = rng.normal(0, 30e3, n)
    late[::5] += 2.8e6 + rng.exponential(0.3e6, len(late[::5]))
    return place, 1_700_000_000_000_000_000 + place * PERIOD_NS + late.astype(np.int64)


def test_late_stamps_do_not_move_their_readings():
    place, stamp = stamps()
    readings = on_grid(stamp, place.astype(float))
    assert np.diff(readings.time_s) == pytest.approx(np.full(599, PERIOD_NS / 1e9), abs=40e-6)
    assert np.polyfit(place, readings.time_s, 1)[0] == pytest.approx(PERIOD_NS / 1e9, abs=1e-7)


def test_order_of_arrival_does_not_matter():
    place, stamp = stamps()
    order = np.random.default_rng(1).permutation(len(stamp))
    mixed, straight = on_grid(stamp[order], place[order].astype(float)), on_grid(stamp, place.astype(float))
    assert mixed.value.tolist() == straight.value.tolist()


def test_missing_readings_leave_their_place_empty():
    place, stamp = stamps()
    keep = np.ones(600, bool)
    keep[[100, 101, 350]] = False
    readings = on_grid(stamp[keep], place[keep].astype(float))
    assert len(readings.time_s) == 597
    assert np.round((readings.time_s[-1] - readings.time_s[0]) / (PERIOD_NS / 1e9)) == 599


def test_a_readout_that_slipped_is_left_out():
    place, stamp = stamps()
    stamp = stamp.copy()
    stamp[201] += 13_300_000  # nearer to place 202, which has its own
    readings = on_grid(stamp, place.astype(float))
    assert 201.0 not in readings.value
    assert 202.0 in readings.value
    assert len(readings.value) == 599


def test_a_clock_that_wanders_is_followed():
    place, stamp = stamps(3000)
    wander = (60e3 * np.sin(place / 600)).astype(np.int64)
    readings = on_grid(stamp + wander, place.astype(float))
    true = (place * PERIOD_NS + wander) / 1e9
    away = readings.time_s - true
    assert np.abs(away - np.median(away)).max() < 50e-6


@pytest.mark.parametrize("n", [0, 1, 49])
def test_a_second_of_readings_is_needed(n):
    place, stamp = stamps()
    with pytest.raises(BadInputError, match=f"{n} readings; 50 are needed"):
        on_grid(stamp[:n], place[:n].astype(float))


def test_another_record_is_not_taken_for_the_drivers():
    rng = np.random.default_rng(0)
    stamp = np.cumsum(rng.integers(5_000_000, 60_000_000, 400))
    with pytest.raises(BadInputError, match="grid of 20 ms"):
        on_grid(stamp, 300 + np.arange(400) % 7.0)


def test_a_fifth_of_the_readings_may_be_of_the_same_time_as_another():
    place, stamp = stamps()
    watts = 300 + place % 7.0
    assert len(on_grid(np.append(stamp, stamp[:150]), np.append(watts, watts[:150])).value) == 600
    with pytest.raises(BadInputError, match="151 of its 751 readings are of the same time"):
        on_grid(np.append(stamp, stamp[:151]), np.append(watts, watts[:151]))


def test_a_record_that_can_be_of_no_span_of_time_is_refused_with_its_cause():
    place, stamp = stamps()
    watts = 300 + place % 7.0
    with pytest.raises(BadInputError, match=r"600 of its 1200 readings are of the same time .* in the file twice"):
        on_grid(np.repeat(stamp, 2), np.repeat(watts, 2))
    with pytest.raises(BadInputError, match="all its 600 readings are 300 W"):
        on_grid(stamp, np.full(600, 300.0))
    stray = np.append(stamp, stamp[-1] + 86_400_000_000_000)
    with pytest.raises(BadInputError, match=r"span 8\.641e\+04 s; there is a hole of 8\.64e\+04 s after reading 600"):
        on_grid(stray, np.append(watts, 300.0))
