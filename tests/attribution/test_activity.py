import numpy as np
import pytest

from jouletrace.attribution.activity import LONG_S, Kind, activity_of
from jouletrace.errors import BadInputError
from jouletrace.sensor.kinds import HOPPER

A, B, C = Kind("a"), Kind("b"), Kind("c")


def of(*kernels, kinds=(A, B, C)):
    """Kernels as (start, end, kind), in us."""
    start, end, kind = (np.array(column) for column in zip(*kernels, strict=True))
    return activity_of(start * 1000, end * 1000, kind, kinds, 0)


def test_idle_is_what_kernels_leave():
    activity = of((0, 10, 0), (20, 50, 1), (90, 100, 0))
    assert activity.seconds == pytest.approx([20e-6, 30e-6, 50e-6])
    assert activity.overlap == 0


def test_kernels_that_overlap_are_a_kind_of_their_own():
    activity = of((0, 40, 0), (20, 60, 1), (60, 80, 2))
    assert activity.members == ((0,), (1,), (2,), (0, 1))
    assert activity.seconds == pytest.approx([20e-6, 20e-6, 20e-6, 20e-6, 0])
    assert activity.overlap == pytest.approx(20 / 100)


def test_three_at_once_and_one_twice_are_distinguished():
    activity = of((0, 100, 0), (10, 50, 1), (20, 40, 2), (60, 80, 0))
    times = dict(zip(activity.members, activity.seconds * 1e6, strict=False))
    assert times[(0, 1, 2)] == pytest.approx(20)
    assert times[(0, 1)] == pytest.approx(20)
    assert times[(0, 0)] == pytest.approx(20)
    assert times[(0,)] == pytest.approx(40)


def test_launches_that_begin_a_little_early_are_no_overlap():
    kernels = [(50 * i, 50 * i + 50 + (i % 20 == 0), i % 2) for i in range(50)]
    activity = of(*kernels)
    assert activity.members == ((0,), (1,))
    assert (activity.end_s[:-1] <= activity.start_s[1:]).all()


def test_long_kernels_have_heads_and_tails():
    length = round(LONG_S * 1e6) + 300
    activity = of(*[(1000 * i, 1000 * i + (length if i % 2 else 50), i % 2) for i in range(10)])
    assert sorted(zip(activity.members, activity.part, strict=True)) == [((0,), 0), ((1,), 0), ((1,), 1), ((1,), 2)]
    assert activity.seconds[:-1].sum() == pytest.approx(5 * (length + 50) * 1e-6)
    assert (np.diff(activity.start_s) > 0).all()


def test_what_a_sample_sees_sums_to_one_and_is_the_mean_of_the_activity():
    rng = np.random.default_rng(0)
    edges = np.cumsum(rng.integers(3, 60, 400))
    activity = of(
        *[(int(a), int(b), int(k)) for a, b, k in zip(edges[::2], edges[1::2], rng.integers(0, 3, 200), strict=True)]
    )
    at = np.arange(activity.begin_s + 5e-4, activity.finish_s - 5e-4, 1e-7)
    none = np.zeros(len(activity.column))
    seen, _, _ = activity.seen(at, HOPPER, none, none)
    assert seen.sum(axis=1) == pytest.approx(np.ones(len(at)))
    table, _ = activity.integrals(at[[0, -1]], none)
    assert seen.mean(axis=0) == pytest.approx((table[1] - table[0]) / (at[-1] - at[0]), abs=0.02)


def test_the_slope_is_the_change_of_what_a_sample_sees():
    activity = of((0, 400, 0), (450, 700, 1), (800, 1500, 2))
    value = np.arange(1.0, len(activity.column) + 1)
    at = np.linspace(1e-4, 1.4e-3, 37)
    _, here, slope = activity.seen(at, HOPPER, value, value)
    _, there, _ = activity.seen(at + 1e-9, HOPPER, value, value)
    assert slope == pytest.approx((there - here) / 1e-9, rel=1e-3, abs=20)


def test_slowness_follows_the_clock():
    rng = np.random.default_rng(0)
    clock = 1 + 0.02 * np.sin(np.arange(20_000) / 800)
    length = np.where(np.arange(20_000) % 2, 90e3, 30e3) / clock * (1 + 0.005 * rng.normal(size=20_000))
    start = np.cumsum(np.append(0, length[:-1] + 1000)).astype(np.int64)
    activity = activity_of(start, start + length.astype(np.int64), np.arange(20_000) % 2, (A, B), 0)
    there = np.interp(activity.start_s, start / 1e9, np.log(clock))
    assert np.std(activity.slowness + there) < 0.002


def test_kinds_that_scatter_say_nothing_of_the_clock():
    rng = np.random.default_rng(0)
    length = rng.integers(10_000, 100_000, 5000)
    start = np.cumsum(np.append(0, length[:-1] + 1000))
    assert np.abs(activity_of(start, start + length, np.zeros(5000, int), (A,), 0).slowness).max() < 1e-9


def test_bad_timelines_are_named():
    with pytest.raises(BadInputError, match="no kernel"):
        activity_of(np.empty(0, int), np.empty(0, int), np.empty(0, int), (A,), 0)
    with pytest.raises(BadInputError, match="kernel 1 ends before it starts"):
        of((0, 10, 0), (20, 15, 1))
