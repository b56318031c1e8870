"""The track of a sampler through a recording: the path of phases, and samples that are known."""

import numpy as np
import pytest

from jouletrace.attribution import Kind, activity_of, follow
from jouletrace.attribution import lock as following
from jouletrace.attribution.lock import BINS, _cheapest
from jouletrace.sensor import HOPPER_SENSOR, SampleTimes, read_out
from readings import taken


def costs(path, worst=1.0):
    """Of each phase the squared distance to a path, on the circle of phases."""
    away = (np.arange(BINS) - np.asarray(path)[:, None] + BINS / 2) % BINS - BINS / 2
    return worst * away**2


def steady(step, blocks=40, start=11):
    return start + step * np.arange(blocks)


@pytest.mark.parametrize("step", [0, 2, -2, 14, 32, -32])
def test_a_path_of_steady_rate_is_followed_around_the_circle(step):
    found = _cheapest(costs(steady(step)))
    assert np.diff(found).tolist() == [step] * 39
    assert (found[-1] - steady(step)[-1]) % BINS == 0


def test_a_rate_changes_by_two_bins_a_block_at_most():
    slowly = 11 + np.cumsum(2 * np.concatenate([np.arange(10), 10 - np.arange(20), -10 + np.arange(10)]))
    assert np.diff(_cheapest(costs(slowly))).tolist() == np.diff(slowly).tolist()
    jump = steady(0).copy()
    jump[20:] += 12
    assert np.abs(np.diff(_cheapest(costs(jump)), 2)).max() == 2


def test_no_rate_goes_beyond_32_bins_a_block():
    found = _cheapest(costs(steady(36, 12)))
    assert np.abs(np.diff(found)).max() == 32


def test_neighbours_bridge_blocks_without_information():
    cost = costs(steady(4))
    cost[[7, 8, 9, 30]] = 0.0
    plain = _cheapest(costs(steady(4)))
    assert _cheapest(cost) == pytest.approx(plain, abs=4)
    cost[20] = np.roll(cost[20], 30) / 100  # and outvote one that misleads
    assert np.delete(_cheapest(cost), [7, 8, 9]) == pytest.approx(np.delete(plain, [7, 8, 9]))


@pytest.fixture(scope="module")
def recorded():
    """Twelve seconds of kernels in irregular order, 4 s of rest among them, seen at samples whose rate drifts."""
    rng = np.random.default_rng(5)
    length, pause = rng.uniform(2e5, 3e6, 6000), rng.uniform(1e5, 1e6, 6000)
    start = np.cumsum(length + pause) - length
    keep = (start < 12e9) & ((start < 5e9) | (start > 7e9))
    kinds = [Kind("a"), Kind("b")]
    activity = activity_of(
        start[keep].astype(np.int64), (start + length)[keep].astype(np.int64), rng.integers(0, 2, 6000)[keep], kinds, 0
    )
    above = np.array([250.0, 600.0])[np.array([members[0] for members in activity.members])][activity.column]
    straight = SampleTimes.straight(activity.begin_s, activity.finish_s, 1225.0, activity.begin_s)
    number = np.arange(0, straight.count, 200.0)
    true = straight.through(number, straight.start_s + number / 1225.0 + 2e-4 * np.sin(number / 4000))
    time = np.arange(activity.begin_s + 0.2, activity.finish_s - 0.05, 0.02)
    _, seen, _ = activity.seen(true.instants(), HOPPER_SENSOR.response, above, above)
    watts = 120.0 + read_out(HOPPER_SENSOR, seen[:, None], true.instants(), time)[:, 0]
    return activity, above, true, taken(time, watts)


def test_samples_are_followed_to_a_fortieth_of_their_period(recorded):
    activity, above, true, readings = recorded
    found = follow(HOPPER_SENSOR, activity, readings, 1225.0, 120.0, above)
    off = (found.instants() - true.instants()[: found.count]) * 1225.0
    off -= np.round(np.median(off))
    assert np.abs(off[600:-1200]).max() < 1 / 20
    assert np.std(off[600:-1200]) < 1 / 40


def test_an_offset_of_the_readings_moves_no_sample(recorded):
    activity, above, _, readings = recorded
    shifted = taken(readings.time_s, readings.value + 40.0)
    one, other = (follow(HOPPER_SENSOR, activity, some, 1225.0, 120.0, above) for some in (readings, shifted))
    assert one.shift_s == pytest.approx(other.shift_s, abs=1e-9)


def test_a_block_with_few_readings_is_bridged(recorded):
    activity, above, true, readings = recorded
    lacking = (readings.time_s > 3.2) & (readings.time_s < 4.4)
    wild = np.where(lacking, 99.0, readings.value)  # three of each second are left, and are wrong
    kept = ~lacking | (np.arange(len(lacking)) % 16 == 0)
    found = follow(HOPPER_SENSOR, activity, taken(readings.time_s[kept], wild[kept]), 1225.0, 120.0, above)
    off = (found.instants() - true.instants()[: found.count]) * 1225.0
    off -= np.round(np.median(off))
    assert np.abs(off[600:-1200]).max() < 1 / 10


@pytest.mark.parametrize("apart", [7, 10])
def test_five_readings_of_a_block_are_enough(recorded, apart):
    activity, above, true, readings = recorded
    few = taken(readings.time_s[::apart], readings.value[::apart])
    found = follow(HOPPER_SENSOR, activity, few, 1225.0, 120.0, above)
    off = (found.instants() - true.instants()[: found.count]) * 1225.0
    off -= np.round(np.median(off))
    assert np.abs(off[600:-1200]).max() < 1 / 10


def test_blocks_may_have_another_length(recorded, monkeypatch):
    activity, above, true, readings = recorded
    monkeypatch.setattr(following, "BLOCK_S", 0.5)
    found = follow(HOPPER_SENSOR, activity, readings, 1225.0, 120.0, above)
    off = (found.instants() - true.instants()[: found.count]) * 1225.0
    off -= np.round(np.median(off))
    assert np.abs(off[600:-1200]).max() < 1 / 10
