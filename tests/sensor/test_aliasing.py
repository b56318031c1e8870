"""Loads that repeat themselves, seen by a sensor that takes samples."""

import numpy as np
import pytest

from jouletrace.sensor.aliasing import aliased, read_in_step, share_kept
from jouletrace.sensor.calibration.response import StepResponse

SAMPLING_S = 0.8e-3


@pytest.mark.parametrize("period_ms", [0.7974, 0.798, 0.8, 0.8005, 0.803, 0.399, 0.4, 1.2, 1.6])
def test_a_load_synchronous_with_the_samples_is_aliased_with_them(period_ms):
    for total_s in (1.0, 10.0, 60.0, 600.0):
        assert aliased(period_ms / 1e3, SAMPLING_S, total_s)


@pytest.mark.parametrize("period_ms", [0.5, 0.7, 0.86, 0.9, 1.0, 1.5, 3.1, 26.0])
def test_another_does_not(period_ms):
    assert not aliased(period_ms / 1e3, SAMPLING_S, 10.0)


def test_nothing_is_reported_where_the_sampling_or_the_load_is_not_known():
    assert not aliased(0.8e-3, None, 10.0)
    assert not aliased(0.0, SAMPLING_S, 10.0)
    assert not aliased(float("nan"), SAMPLING_S, 10.0)
    assert not aliased(0.8e-3, SAMPLING_S, 0.0)


@pytest.mark.parametrize("period_ms", [0.76, 0.84, 0.87, 1.26, 0.43])
def test_no_more_of_a_swing_is_left_than_said(period_ms):
    # A swing of three harmonics that fall as 1/h, from whatever phase the window begins.
    samples = np.arange(round(0.5 / SAMPLING_S)) * SAMPLING_S / (period_ms / 1e3)
    seen = max(
        abs(np.mean([np.cos(2 * np.pi * h * (samples + begin)) / h for h in (1, 2, 3)], axis=1)).max()
        for begin in np.linspace(0, 1, 20)
    )
    assert seen <= 1.05 * share_kept(period_ms / 1e3, SAMPLING_S, 0.5) + 2 / len(samples)
    assert seen >= 0.02 * share_kept(period_ms / 1e3, SAMPLING_S, 0.5)


@pytest.mark.parametrize(("turns", "harmonic", "off"), [(0.95, 1, 0.05), (1.9, 1, 0.1), (2.8, 1, 0.2), (0.55, 2, 0.1)])
def test_a_rate_that_is_not_known_is_taken_to_be_the_worst_that_it_may_be(turns, harmonic, off):
    """Of the harmonic that is left most: its distance to a whole number of turns less what it is not known by."""
    sure = 0.01
    off -= sure * harmonic * turns
    found = share_kept(SAMPLING_S / turns, SAMPLING_S, 0.5, sure)
    assert found == pytest.approx(1 / harmonic / (np.pi * 0.5 / SAMPLING_S * off))
    assert share_kept(SAMPLING_S / turns, SAMPLING_S, 1.0, sure) == pytest.approx(found / 2)


def test_harmonics_beyond_three_and_a_half_samples_swing_less():
    assert share_kept(SAMPLING_S / 3.49, SAMPLING_S, 0.5) > 0
    assert share_kept(SAMPLING_S / 3.51, SAMPLING_S, 0.5) == 0.0
    assert share_kept(SAMPLING_S, SAMPLING_S, 0.5) == 1.0


HOPPER = StepResponse(0.02, rise_s=0.0127, lag_s=0.003)


def seen_less_true(period_s, phase, seconds):
    """Mean of readings less mean power, of a load that is on for half of each period, over its swing."""
    edges = np.arange(-0.2 + phase * period_s, seconds, period_s / 2)
    jumps = np.resize([1.0, -1.0], len(edges))
    readings = np.arange(0.0, seconds, HOPPER.period_s)
    return float((HOPPER.step(readings[:, None] - edges) @ jumps).mean() - 0.5)


@pytest.mark.parametrize(("period_ms", "flagged"), [(20, True), (19.9, True), (10, True), (15, False), (13, False)])
def test_a_load_synchronous_with_the_readings_is_seen_at_one_phase(period_ms, flagged):
    worst = max(abs(seen_less_true(period_ms / 1e3, phase, 2.0)) for phase in np.linspace(0, 1, 21))
    assert (worst > 0.02) == flagged
    assert read_in_step(period_ms / 1e3, HOPPER, 2.0) == flagged


def test_a_sensor_that_misses_nothing_is_synchronous_with_no_load():
    assert not read_in_step(0.02, StepResponse(0.02, window_s=0.02), 2.0)
    assert not read_in_step(0.0, HOPPER, 2.0)
