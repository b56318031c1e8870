"""Windows are as long as the record is restless."""

import numpy as np
import pytest

from jouletrace.experiments.window_length import spread_within, window_length

PERIOD_NS = 20_000_000
SECOND = 1_000_000_000


def record(swing, beat_s=0.11, seconds=10):
    """Readings every 20 ms that swing around 300 W, and windows of half a second."""
    stamps = np.arange(0, seconds * SECOND, PERIOD_NS)
    power = 300 * (1 + swing * np.sqrt(2) * np.sin(2 * np.pi * stamps / 1e9 / beat_s))
    return stamps, power, [(i * SECOND // 2, (i + 1) * SECOND // 2) for i in range(2 * seconds)]


def test_the_swing_of_readings_is_found():
    assert spread_within(*record(0.054), 2 * PERIOD_NS) == pytest.approx(0.054, rel=0.05)


def test_what_was_before_a_window_is_left_out():
    stamps, power, edges = record(0.0)
    power[[start // PERIOD_NS + 1 for start, _ in edges]] = 100.0
    assert spread_within(stamps, power, edges, 2 * PERIOD_NS) == 0.0


def test_without_readings_nothing_is_known_and_windows_stay_short():
    assert spread_within(np.array([], np.int64), np.array([]), [(0, SECOND)], PERIOD_NS) == 0.0
    assert window_length(0.5, 0.0, 150.0) == 0.5


def test_windows_are_longer_where_readings_swing_but_never_so_long_that_few_are_left():
    assert window_length(0.5, 0.014, 150.0) == 0.5
    assert window_length(0.5, 0.054, 150.0) == pytest.approx(1.35)
    assert window_length(0.5, 0.2, 150.0) == 1.5
    assert window_length(0.5, 0.054, 60.0) == pytest.approx(0.75)
    assert window_length(0.5, 0.054, 20.0) == 0.5


def test_a_longer_window_leaves_less_of_a_beat_over_than_as_many_short_ones():
    rng = np.random.default_rng(0)

    def off(window_s, windows):
        """Standard deviation of the mean over windows, each beginning at a phase of its own."""
        means = []
        for _ in range(400):
            phases = rng.uniform(0, 0.11, windows)
            times = np.arange(0, window_s, 1e-3)
            means.append(np.mean([np.sin(2 * np.pi * (times + phase) / 0.11).mean() for phase in phases]))
        return np.std(means)

    assert off(1.32, 1) < 0.7 * off(0.48, 3)
