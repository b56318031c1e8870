"""The fast readings of a search against ``sampler.read_out``, sample by sample."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from jouletrace.sensor import HOPPER, HOPPER_SENSOR, SampleResponse, read_out
from jouletrace.sensor.phases import GRID_S, SETTLE_S, ReadingSeries, designs, responded

FIRST, START, END = 0.999, 1.0, 3.0
EDGES = np.arange(FIRST, END + 2e-3, GRID_S)


@cache
def load():
    """Shares of two columns in each bin of the grid: on for 0.1 to 4 ms, in turn."""
    rng = np.random.default_rng(0)
    change = np.cumsum(rng.integers(10, 400, 4000))
    on = np.searchsorted(change, np.arange(len(EDGES) - 1)) % 3
    return np.column_stack([on == 0, on == 1]).astype(float)


@cache
def seen():
    return responded(HOPPER, load())


def test_a_sample_sees_what_its_response_weighs():
    assert seen().shape == load().shape
    for at in (5_000, 123_456, 199_000):
        moment = EDGES[at] + GRID_S / 2
        within = HOPPER.within(moment - EDGES[at - 60 : at + 61])
        assert seen()[at] == pytest.approx((within[:-1] - within[1:]) @ load()[at - 60 : at + 60], abs=1e-5)
    whole = responded(HOPPER, np.ones((500, 1)))
    assert whole[50:-50] == pytest.approx(np.ones((400, 1)), abs=1e-5)


@pytest.mark.parametrize("shift", [-7, 0, 5])
def test_a_response_far_to_one_side_moves_what_is_seen(shift):
    """One entry that is wholly before, at or after the moment of the sample."""
    narrow = SampleResponse(shift * GRID_S, np.ones(1))
    values = load()
    seen = responded(narrow, values)
    moved = np.zeros_like(values)
    inside = slice(max(0, shift), len(values) + min(0, shift))
    moved[inside] = values[max(0, -shift) : len(values) - max(0, shift)]
    assert np.allclose(seen, moved, atol=1e-6)


def readings(missing=()):
    return np.delete(1.0071 + 0.0200004 * np.arange(97), list(missing))


@pytest.mark.parametrize(("averages", "rate"), [(8, 1203.0), (16, 1237.7), (32, 1225.0)])
@pytest.mark.parametrize("missing", [(), (40, 41, 80)], ids=["all", "some"])
def test_readings_are_those_of_a_recursive_average_at_any_phase(averages, rate, missing):
    sensor = replace(HOPPER_SENSOR, averages=averages)
    time = readings(missing)
    phases = np.array([0.0, 0.3, 0.85])
    found = designs(sensor, seen(), FIRST, np.array([1230.0, rate]), phases, ReadingSeries.from_times(time, START))[1]
    assert found.shape == (3, len(time), 2)
    # what was before the start is forgotten by e^-4.6 at least
    settled = time > START + SETTLE_S + (0.1 if averages == 32 else 0.0)
    for k, phase in enumerate(phases):
        at = START + (np.arange(int((END - START) * rate) - 1) + phase) / rate
        sampled = seen()[((at - FIRST) / GRID_S).astype(int)].astype(float)
        read = read_out(sensor, sampled, at, time)
        moment = time - sensor.delay_s
        # a sample within 15 us of the moment counts in part there, and wholly or not at all here
        near = np.abs(moment[:, None] - at).min(axis=1) < 20e-6
        off = (found[k] - read)[settled & ~near]
        assert np.abs(off).max() < 6e-3  # a sample may be looked up 10 us beside
        assert np.sqrt(np.mean(off**2)) < 6e-4
        assert len(off) > 60


def test_a_long_record_is_averaged_in_pieces_without_a_seam():
    """Four hundred readings: more than a decay holds in one."""
    edges = np.arange(0.999, 9.1, GRID_S)
    values = (np.sin(edges[:-1] * 40) > 0).astype(float)[:, None]
    table = responded(HOPPER, values)
    time = 1.0071 + 0.02 * np.arange(400)
    found = designs(HOPPER_SENSOR, table, 0.999, np.array([1225.0]), np.zeros(1), ReadingSeries.from_times(time, 1.0))[
        0, 0
    ]
    at = 1.0 + np.arange(int(8.05 * 1225) - 1) / 1225.0
    read = read_out(HOPPER_SENSOR, table[((at - 0.999) / GRID_S).astype(int)].astype(float), at, time)
    near = np.abs((time - HOPPER_SENSOR.delay_s)[:, None] - at).min(axis=1) < 20e-6
    assert found[10:][~near[10:]] == pytest.approx(read[10:][~near[10:]], abs=3e-3)


def test_readings_before_the_first_sample_have_that_sample():
    values = np.ones((len(EDGES) - 1, 1))
    time = 0.99 + 0.02 * np.arange(20)
    found = designs(
        HOPPER_SENSOR,
        responded(HOPPER, values),
        FIRST,
        np.array([1225.0]),
        np.zeros(2),
        ReadingSeries.from_times(time, START),
    )
    assert found[0, :, 2:] == pytest.approx(np.ones((2, 18, 1)), abs=1e-4)
