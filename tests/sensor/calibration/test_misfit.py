"""Judges of a calibration: residuals about edges, stragglers, a gain that moves."""

import numpy as np
import pytest

from jouletrace.sensor.calibration import edge_misfit, gain_swings
from jouletrace.sensor.calibration.fit import EdgeMisfit, fit_flags, stragglers

PERIOD, MEMORY, STEP_W = 0.02, 0.2, 300.0


def about(edges, share, noise_w=0.0, memory=MEMORY):
    """Misfit of readings every millisecond, off by a share of the jump for half of a memory after each edge."""
    edges = np.asarray(edges, float)
    time = np.arange(0.5005, edges[-1] + 1, 1e-3)
    at = np.searchsorted(edges, time)
    model = np.where(at % 2, 420.0, 120.0)
    since = time - np.append(-1e3, edges)[at]
    error = np.where((since > 0) & (since < MEMORY / 2), STEP_W * np.asarray(share)[at], 0.0)
    error += noise_w * np.random.default_rng(0).normal(size=len(time))
    return edge_misfit(time, error, model, edges, PERIOD, STEP_W, memory)


def test_an_answer_that_is_late_has_the_area_of_its_delay():
    """A twentieth of each jump is missing for 0.1 s: as if the answer came 5 ms late."""
    for edges, share in (([1.0], [0, 0.05]), ([1.0, 2.0, 3.0, 4.0], [0, 0.05, -0.05, 0.05, -0.05])):
        found = about(edges, share)
        assert found.area_s == pytest.approx(0.05 * MEMORY / 2)
        assert found.worst == pytest.approx(0.05)
        assert found.worst_se == pytest.approx(0.0, abs=1e-6)
        assert found.rms == pytest.approx(0.05 / np.sqrt(2))


def test_a_sensor_that_errs_in_opposite_ways_is_seen_though_its_delay_is_right():
    found = about([1.0, 2.0, 3.0, 4.0], [0, 0.05, 0.05, 0.05, 0.05])
    assert found.area_s == pytest.approx(0.0, abs=1e-9)
    assert found.worst == pytest.approx(0.05)
    assert found.rms == pytest.approx(0.05 / np.sqrt(2))


def test_an_edge_within_the_memory_of_another_says_nothing():
    alone = about([1.0, 2.0], [0, 0.05, -0.05])
    near = about([1.0, 2.0, 2.1, 2.2], [0, 0.05, -0.05, 7.0, 7.0])
    assert near.worst == pytest.approx(alone.worst)
    assert about([1.0, 1.1, 1.2, 1.3], [0, 0, 7.0, 7.0, 7.0]).worst < 0.01  # the first alone counts


def test_chance_is_in_the_standard_error_and_not_in_the_misfit():
    edges = np.arange(1.0, 41.0)
    found = about(edges, np.zeros(41), noise_w=30.0)
    # each way twenty edges, of whose 200 readings each of ten bins has a tenth
    assert found.worst_se == pytest.approx(0.1 / np.sqrt(400), rel=0.2)
    assert found.worst < 5 * found.worst_se
    assert found.rms < found.worst_se


def test_few_readings_and_no_edges_give_no_misfit():
    time = np.array([1.01, 1.03, 1.05])
    assert edge_misfit(time, np.ones(3), np.ones(3), np.array([1.0]), PERIOD, STEP_W, MEMORY) == EdgeMisfit(
        0.0, 0.0, np.inf, 0.0
    )


@pytest.mark.parametrize(("off_w", "share"), [(17.0, 0.2), (16.0, 0.0)])
def test_readings_near_edges_that_nothing_explains_are_counted(off_w, share):
    """Four standard deviations: of the level, a fiftieth of the step, and the stamp with a fiftieth of a period."""
    slope = np.where(np.arange(100) < 50, -1000.0, 0.0)
    error = np.where(np.arange(100) % 50 < 10, off_w, 0.1)
    sd = np.sqrt(2.0**2 + 2.0**2 + (1000 * np.hypot(0.003, 0.0004)) ** 2)
    assert 16.0 < 4 * sd < 17.0
    assert stragglers(error, slope, PERIOD, 100.0, np.full(100, 2.0), 0.003) == pytest.approx(share)


@pytest.mark.parametrize(("slope", "found"), [(500.0, 0.0), (501.0, 1.0)])
def test_readings_are_near_an_edge_where_they_change_by_a_tenth_of_the_step_in_a_period(slope, found):
    assert stragglers(np.full(20, 99.0), np.full(20, slope), PERIOD, 100.0, np.ones(20), 0.0) == found
    assert stragglers(np.full(19, 99.0), np.full(19, slope), PERIOD, 100.0, np.ones(19), 0.0) == 0.0


def levels(n=1200):
    return np.where(np.arange(n) // 10 % 2, 400.0, 100.0)


def test_a_gain_that_moves_is_measured():
    model = levels()
    gain = np.repeat([0.03, -0.03], 600)
    swings, _ = gain_swings(gain * (model - 100.0), model, 1.0)
    assert swings == pytest.approx(0.03)


def test_chance_swings_as_much_as_noise_makes_it():
    found = np.array([gain_swings(5 * np.random.default_rng(k).normal(size=1200), levels(), 1.0) for k in range(40)])
    assert np.sqrt(np.mean(found[:, 0] ** 2)) == pytest.approx(np.sqrt(np.mean(found[:, 1] ** 2)), rel=0.1)
    error = 5 * np.random.default_rng(0).normal(size=1200)
    assert gain_swings(error, levels(), 4.0)[1] == pytest.approx(2 * gain_swings(error, levels(), 1.0)[1])


def test_pieces_that_say_nothing_of_a_gain_are_left_out():
    quiet = np.where(np.arange(1200) < 840, 100.0, levels())
    assert gain_swings(0.03 * (quiet - 100.0), quiet, 1.0) == (pytest.approx(0.03), pytest.approx(0.0, abs=0.1))
    assert gain_swings(np.ones(108), levels(108), 1.0) == (0.0, float("inf"))


SOUND = {"misfit": EdgeMisfit(), "strays": 0.0, "drift_w": 0.0, "step_w": 300.0, "swings": (0.0, 0.1), "lost": 0.0}


@pytest.mark.parametrize(
    ("well", "badly", "flag"),
    [
        ({"misfit": EdgeMisfit(0, 0.029, 0.001)}, {"misfit": EdgeMisfit(0, 0.031, 0.001)}, "misfit_at_edges"),
        ({"misfit": EdgeMisfit(0, 0.039, 0.01)}, {"misfit": EdgeMisfit(0, 0.041, 0.01)}, "misfit_at_edges"),
        ({"strays": 0.059}, {"strays": 0.061}, "misfit_at_edges"),
        ({"drift_w": 14.9}, {"drift_w": 15.1}, "drifting"),
        ({"swings": (0.019, 0.0)}, {"swings": (0.021, 0.0)}, "drifting"),
        ({"swings": (0.119, 0.1)}, {"swings": (0.121, 0.1)}, "drifting"),
        ({"lost": 0.049}, {"lost": 0.051}, "drops_samples"),
    ],
)
def test_each_flag_has_its_bound(well, badly, flag):
    assert fit_flags(**{**SOUND, **well}) == ()
    assert fit_flags(**{**SOUND, **badly}) == ("unmodelled", flag)
