"""Plain integration: exact to the nanosecond, vectorised, never a number for what wasn't seen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energy_signals import T0
from jouletrace.sensor import integrate


def by_hand(time, power, start, end):
    """The definition, one interval after the other, in exact integers of W·ns."""
    total = 0
    for i in range(1, len(time)):
        total += int(power[i]) * max(0, min(int(time[i]), end) - max(int(time[i - 1]), start))
    return total * 1e-9


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 50_000_000), min_size=1, max_size=30),
    st.integers(0, 2**32),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_any_window_equals_the_definition(gaps, seed, x, y):
    time = T0 + np.cumsum([0, *gaps])
    power = np.random.default_rng(seed).integers(0, 1000, len(time))
    start, end = (int(time[0]) + round(f * int(time[-1] - time[0])) for f in sorted((x, y)))
    energy = integrate(time, power, [start], [end])[0]
    assert energy == pytest.approx(by_hand(time, power, start, end), rel=1e-12, abs=1e-9)


def test_a_nanosecond_counts_at_the_size_of_epoch_stamps():
    time = T0 + np.arange(5) * 20_000_000
    power = np.full(5, 1e9)  # one joule a nanosecond
    energy = integrate(time, power, [T0 + 7, T0 + 7], [T0 + 8, T0 + 1_000_007])
    assert energy == pytest.approx([1.0, 1e6], rel=1e-9)


def test_windows_outside_the_record_are_nan():
    time = T0 + np.arange(5) * 20_000_000
    energy = integrate(time, np.full(5, 100.0), time[[0, 0, 2]] + [-1, 0, 5], time[[4, 4, 2]] + [0, 1, 1])
    assert np.isnan(energy).tolist() == [True, True, True]  # too early, too late, upside down


def test_adjacent_windows_add_up_to_the_whole():
    rng = np.random.default_rng(0)
    time = T0 + np.cumsum(rng.integers(9_000_000, 35_000_000, 200_000))
    power = rng.uniform(70, 700, len(time))
    cuts = np.sort(rng.integers(time[0], time[-1], 150_000))
    parts = integrate(time, power, cuts[:-1], cuts[1:])
    assert parts.sum() == pytest.approx(integrate(time, power, cuts[:1], cuts[-1:])[0], rel=1e-11)
