"""Idle levels: what counts, what is stored, and what is reported when neither is there."""

import numpy as np
import pytest

from jouletrace.analysis import idle_energies, idle_level
from jouletrace.run import Estimate
from records import DEVICE, make_run, phases, readings


def level(run, kind="context_idle"):
    return idle_level(run, idle_energies(run, DEVICE), kind)


@pytest.mark.thorough
def test_the_level_is_that_after_the_gpu_has_settled():
    falling = readings(lambda t: 120.0 + 400 * np.exp(-t / 0.05), 3, noise=0.5)
    found = level(make_run(falling, spans=phases(("context idle before", 0.0, 3.0))))
    assert found.value == pytest.approx(120.0, abs=0.3)
    assert found.low <= 120.0 <= found.high
    assert (found.method, found.flags) == ("idle", ())


def test_deep_and_context_idle_are_never_mixed():
    rows = readings(lambda t: np.where(t < 4, 72.0, 122.0), 8, noise=0.3)
    run = make_run(rows, spans=phases(("deep idle", 0.0, 4.0), ("context idle after", 4.0, 8.0)))
    assert level(run, "deep_idle").value == pytest.approx(72.0, abs=0.3)
    assert level(run, "context_idle").value == pytest.approx(122.0, abs=0.3)


def test_what_before_and_after_differ_by_is_in_the_interval():
    rows = readings(lambda t: np.where(t < 4, 120.0, 124.0), 8, noise=0.1)
    run = make_run(rows, spans=phases(("context idle before", 0.0, 4.0), ("context idle after", 4.0, 8.0)))
    found = level(run)
    assert found.value == pytest.approx(122.0, abs=0.1)
    assert found.low <= 120.1
    assert found.high >= 123.9
    assert found.flags == ()


def test_levels_far_apart_are_flagged():
    for after_w, flags in ((140.0, ()), (160.0, ("baseline_drifted",))):  # a hot die leaks; the rest is something else
        rows = readings(lambda t, after_w=after_w: np.where(t < 4, 120.0, after_w), 8)
        run = make_run(rows, spans=phases(("context idle before", 0.0, 4.0), ("context idle after", 4.0, 8.0)))
        assert level(run).flags == flags


@pytest.mark.thorough
def test_several_runs_count_each_side_once():
    rows = readings(120.0, 12, noise=0.5)
    run = make_run(rows, spans=phases(("context idle before", 0, 3), ("context idle after", 3, 6)))
    twice = make_run(
        rows,
        spans=phases(
            ("context idle before", 0, 3),
            ("context idle after", 3, 6),
            ("context idle before", 6, 9),
            ("context idle after", 9, 12),
        ),
    )
    assert level(twice).n > level(run).n
    assert level(twice).half_width < level(run).half_width


def test_a_level_that_no_one_measured_is_null():
    run = make_run(readings(120.0, 3))
    assert level(run).reason == "not_measured"
    assert level(run, "deep_idle").reason == "not_measured"
    assert level(make_run([], channels=[]), "deep_idle").reason == "not_measured"


def test_a_deep_idle_that_cannot_be_seen_says_why():
    run = make_run(readings(120.0, 3), stored={"deep_idle_reason": "context_exists"})
    assert level(run, "deep_idle").reason == "context_exists"


def test_a_stored_deep_idle_is_used_and_flagged():
    stored = Estimate(71.0, 70.5, 71.5, 60, "idle").to_dict() | {"time_ns": 5, "driver": "1"}
    run = make_run(readings(120.0, 3), stored={"deep_idle_reason": "context_exists", "deep_idle": stored})
    found = level(run, "deep_idle")
    assert (found.value, found.low, found.high) == (71.0, 70.5, 71.5)
    assert (found.method, found.flags) == ("stored", ("stored",))


def test_a_seen_deep_idle_goes_before_a_stored_one():
    stored = Estimate(60.0, 59.0, 61.0, 60, "idle").to_dict()
    run = make_run(readings(72.0, 3), spans=phases(("deep idle", 0, 3)), stored={"deep_idle": stored})
    assert level(run, "deep_idle").value == pytest.approx(72.0)
    assert level(run, "deep_idle").flags == ()


@pytest.mark.thorough
def test_the_scatter_of_each_phase_is_in_the_interval_of_their_mean():
    """Of two phases alike the mean is as sure as either over the root of two, and half of what they differ by."""
    rows = readings(120.0, 8, noise=3.0)
    spans = phases(("context idle before", 0.0, 4.0), ("context idle after", 4.0, 8.0))
    both = level(make_run(rows, spans=spans))
    one, other = (level(make_run(rows, spans=spans[k : k + 1])) for k in (0, 1))
    scatter = np.hypot(one.half_width, other.half_width) / 2
    assert both.half_width == pytest.approx(np.hypot(scatter, abs(one.value - other.value) / 2), rel=0.05)
    assert scatter > abs(one.value - other.value)
