import numpy as np
import pytest

from jouletrace.attribution import Kind, activity_of
from jouletrace.attribution.activity import LONG_S, TURNS, slowness_of
from jouletrace.errors import BadInputError
from jouletrace.sensor import HOPPER

A, B, C = Kind("a"), Kind("b"), Kind("c")


def of(*kernels, kinds=(A, B, C)):
    """Kernels as (start, end, kind), in us."""
    start, end, kind = (np.array(column) for column in zip(*kernels, strict=True))
    return activity_of(start * 1000, end * 1000, kind, kinds, 0)


def test_idle_is_what_kernels_leave():
    activity = of((0, 10, 0), (20, 50, 1), (90, 100, 0))
    assert activity.seconds == pytest.approx([20e-6, 30e-6, 50e-6])


def test_kernels_that_overlap_are_a_kind_of_their_own():
    activity = of((0, 40, 0), (20, 60, 1), (60, 80, 2))
    assert activity.members == ((0,), (1,), (2,), (0, 1))
    assert activity.seconds == pytest.approx([20e-6, 20e-6, 20e-6, 20e-6, 0])


def test_three_at_once_and_one_twice_are_distinguished():
    activity = of((0, 100, 0), (10, 50, 1), (20, 40, 2), (60, 80, 0))
    times = dict(zip(activity.members, activity.seconds * 1e6, strict=False))
    assert times[(0, 1, 2)] == pytest.approx(20)
    assert times[(0, 1)] == pytest.approx(20)
    assert times[(0, 0)] == pytest.approx(20)
    assert times[(0,)] == pytest.approx(40)


@pytest.mark.thorough
def test_many_sets_of_kinds_at_once_share_time_equally_without_columns_of_their_own():
    rng, kinds = np.random.default_rng(4), tuple(Kind(str(number)) for number in range(40))
    start = np.sort(rng.integers(0, 200_000, 4000))
    end, kind = start + rng.integers(20, 60, 4000), rng.integers(0, 40, 4000)
    activity = activity_of(start * 1000, end * 1000, kind, kinds, 0)
    assert len(activity.members) < 60
    assert (activity.start_s[1:] >= activity.end_s[:-1]).all()
    running_s, beside_s = np.zeros(40), np.zeros(40)
    for at in range(start[0], end.max()):
        among = kind[(start <= at) & (at < end)]
        np.add.at(running_s, among, 1e-6 / max(len(among), 1))
        np.add.at(beside_s, among, 1e-6 * (len(among) > 1) / max(len(among), 1))
    assert activity.seconds[:-1] @ activity.shares == pytest.approx(running_s, rel=1e-6)
    assert activity.beside_s == pytest.approx(beside_s, rel=1e-6)


@pytest.mark.thorough
def test_intervals_of_many_streams_are_as_many_as_kernels_and_share_time_equally():
    """A turn of each kernel in each of the intervals would make 2 × 32 of them for each kernel."""
    rng, count, streams = np.random.default_rng(5), 500, 32
    length = rng.integers(50_000, 900_000, (streams, count))
    end = (np.cumsum(length + 10_000, axis=1) + rng.integers(0, 900_000, (streams, 1))).ravel()
    start, kind = end - length.ravel(), rng.integers(0, 12, streams * count)
    activity = activity_of(start, end, kind, tuple(Kind(str(number)) for number in range(12)), 0)
    assert len(activity.start_s) < 3 * 2 * TURNS * len(start), "long kernels are three intervals"
    assert (activity.start_s[1:] >= activity.end_s[:-1]).all()
    edges = np.unique(np.r_[start, end])
    for low, high in ((0, len(edges) - 1), (5000, 5200), (9000, 9050)):
        part_s = np.zeros(12)
        for left, right in zip(edges[low:high], edges[low + 1 : high + 1], strict=True):
            among = kind[(start <= left) & (end >= right)]
            np.add.at(part_s, among, 1e-9 * (right - left) / max(len(among), 1))
        found_s = [
            np.diff(activity.integral(edges[[low, high]] / 1e9, activity.shares[activity.column, k]))[0]
            for k in range(12)
        ]
        # The turns of one kernel at most, of those at each end, are on the other side of it.
        assert found_s == pytest.approx(part_s, abs=0.0 if high - low > 1000 else 5e-5, rel=1e-6)


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


@pytest.mark.thorough
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
    ran = activity.timeline.seconds(at[[0, -1]])[0] / (at[-1] - at[0])
    assert seen.mean(axis=0) == pytest.approx(np.append(ran, 1 - ran.sum()), abs=0.02)


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


def irregular(seed=0, count=300):
    """Kernels of three kinds, one of them repeated, some of which overlap; of 5 to 150 us."""
    rng = np.random.default_rng(seed)
    start = np.cumsum(rng.integers(20, 120, count))
    kinds = (A, B, Kind("a", repeat=True))
    kernels = [(int(s), int(s + rng.integers(5, 150)), int(rng.integers(0, 3))) for s in start]
    return of(*kernels, kinds=kinds)


def running(activity, at_s):
    """Number of the interval at each time; -1 between them."""
    which = np.searchsorted(activity.start_s, at_s, side="right") - 1
    inside = (which >= 0) & (at_s < activity.end_s[np.maximum(which, 0)])
    return np.where(inside, which, -1)


def test_integrals_are_those_of_what_runs_at_each_moment():
    activity = irregular()
    step = 1e-7
    at = np.arange(activity.begin_s - 5e-5, activity.finish_s + 5e-5, step) + step / 2
    which = running(activity, at)
    value = np.random.default_rng(1).normal(size=len(activity.column))
    in_the_last = int(np.searchsorted(at, (activity.start_s[-1] + activity.end_s[-1]) / 2))
    asked = np.array([7, 12_345, 30_000, 30_000, 100_000, in_the_last, len(at) - 1])
    total, edges = activity.integral(at[asked] + step / 2, value), np.append(at[0] - step, at[asked] + step / 2)
    table = np.cumsum(activity.timeline.seconds(edges), axis=0)
    for row, until in enumerate(asked):
        seen = which[: until + 1]
        mine = np.bincount(activity.column[seen[seen >= 0]], minlength=len(activity.members)) * step
        assert table[row] == pytest.approx(mine, abs=5e-6)
        assert total[row] == pytest.approx(value[seen[seen >= 0]].sum() * step, abs=5e-6)


def test_bins_of_a_grid_have_the_share_of_each_column_and_what_is_between():
    activity = irregular()
    edges = np.linspace(activity.begin_s, activity.finish_s, 200)
    value = np.random.default_rng(1).normal(size=len(activity.column))
    fine = np.linspace(edges[0], edges[-1], 199 * 500 + 1)
    middle = (fine[1:] + fine[:-1]) / 2
    which = running(activity, middle).reshape(199, 500)
    mean = np.where(which >= 0, value[which], 0.0).mean(axis=1)
    assert activity.power(edges, value)[0] == pytest.approx(mean, abs=0.02)

    table = activity.table(edges, 2)
    assert table.shape == (199, 2 + 3)
    assert table[:, :-1].sum(axis=1) == pytest.approx(np.ones(199))
    busy = (which >= 0).mean(axis=1)
    assert table[:, -2] == pytest.approx(1 - busy, abs=0.01)
    # the two largest: repeats count as their kernels
    groups = {}
    for column, key in enumerate(zip(activity.originals, activity.part, strict=True)):
        groups.setdefault(key, []).append(column)
    sizes = sorted(groups.values(), key=lambda columns: -activity.seconds[columns].sum())
    for k in range(2):
        share = (np.isin(activity.column, sizes[k])[which] & (which >= 0)).mean(axis=1)
        assert table[:, k] == pytest.approx(share, abs=0.01)


def test_a_part_of_a_timeline_has_its_intervals_and_its_span():
    activity = irregular()
    begin, finish = activity.start_s[40], activity.end_s[90]
    part = activity.between(begin, finish)
    assert part.start_s.tolist() == activity.start_s[40:91].tolist()
    assert part.column.tolist() == activity.column[40:91].tolist()
    assert (part.begin_s, part.finish_s) == (begin, finish)
    assert part.seconds.sum() == pytest.approx(finish - begin)
    assert len(activity.between(begin + 1e-9, finish - 1e-9).column) == 49


def test_kernels_whole_have_one_column_from_start_to_end():
    activity = of(*[(1000 * i, 1000 * i + (300 if i % 2 else 50), i % 2) for i in range(10)])
    whole = activity.whole()
    assert whole.members == ((0,), (1,))
    assert whole.part == (0, 0)
    assert whole.seconds == pytest.approx([5 * 50e-6, 5 * 300e-6, activity.seconds[-1]])


def test_heads_and_tails_are_a_third_at_most_of_a_kernel():
    kernels = [(0, 30, 0), (1000, 1200, 0), (2000, 2090, 0)]  # 107 us on average: long, the first of 30 us too
    activity = of(*kernels)
    edges_us = (np.round(1e6 * one).astype(int).tolist() for one in (activity.start_s, activity.end_s))
    parts = {(s, e): activity.part[c] for s, e, c in zip(*edges_us, activity.column, strict=True)}
    assert parts == {
        (0, 10): 1, (10, 20): 0, (20, 30): 2,
        (1000, 1040): 1, (1040, 1140): 0, (1140, 1200): 2,
        (2000, 2030): 1, (2030, 2060): 0, (2060, 2090): 2,
    }  # fmt: skip


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize(("length", "parts"), [(60, {0}), (61, {0, 1, 2})])
def test_kernels_above_60_us_are_long(length, parts, count):
    assert set(of(*[(1000 * i, 1000 * i + length, 0) for i in range(count)]).part) == parts


@pytest.mark.parametrize(("late", "apart"), [(3, False), (5, True)])
def test_overlaps_of_two_in_a_thousand_are_cut_off_and_larger_ones_kept(late, apart):
    activity = of((0, 1000, 0), (1000 - late, 2000 - late, 1))
    assert ((0, 1) in activity.members) == apart
    assert activity.seconds[:-1].sum() == pytest.approx((2000 - late) * 1e-6)


def test_a_kernel_within_another_is_no_gap():
    activity = of((0, 10_000, 0), (100, 110, 1), (10_000, 10_100, 1))
    assert activity.seconds[-1] == pytest.approx(0.0, abs=1e-12)


def test_members_count_repeats_as_their_kernels():
    a, b = Kind("a"), Kind("a", repeat=True)
    activity = of((0, 40, 0), (50, 90, 1), (100, 140, 2), (120, 160, 1), kinds=(a, b, C))
    assert activity.members == ((0,), (1,), (2,), (1, 2))
    assert activity.originals == ((0,), (0,), (2,), (0, 2))
    assert activity.repeated.tolist() == [False, True, False, True]


def test_slowness_needs_a_hundred_kernels_alike_and_a_hundredth_of_the_time():
    """Classes of 8 % apart are kept apart; those that scatter, of few kernels or of little time say nothing."""

    def slowness(length, kind, step=200):
        start = 1e-6 * step * np.arange(len(length))
        return slowness_of(start, start + 1e-6 * np.asarray(length, float), np.asarray(kind))

    swing = 1 + 0.02 * np.sin(np.arange(400) / 60)
    assert np.std(slowness(100 * swing, np.zeros(400, int))) == pytest.approx(0.0141, rel=0.1)
    assert not slowness(100 * swing[:99], np.zeros(99, int)).any()
    assert slowness(100 * swing[:100], np.zeros(100, int)).any()
    # two shapes of one kind in turn, 50 and 100 us: each has its own mean
    shapes = np.where(np.arange(400) % 2, 50.0, 100.0) * swing
    assert np.std(slowness(shapes, np.zeros(400, int))) == pytest.approx(0.0141, rel=0.1)
    # a kind of less than a hundredth of the time
    for length, says in ((0.4, False), (1.5, True)):
        small = np.where(np.arange(400) % 2, length * swing, 100.0)
        assert (np.abs(slowness(small, np.arange(400) % 2)).max() > 1e-12) == says
    # durations that scatter evenly, by 5 and by 8 %
    for spread, says in ((0.05, True), (0.08, False)):
        even = 100 * np.exp(np.sqrt(3) * spread * np.linspace(-1, 1, 400))
        assert slowness(np.random.default_rng(0).permutation(even), np.zeros(400, int)).any() == says
    # 100 and 107 us are one class, which scatters by less than 6 %, 100 and 109 us two
    for other, spread in ((107.0, 0.0338), (109.0, 0.0)):
        pairs = np.where(np.arange(400) // 200, other, 100.0)
        assert np.std(slowness(pairs, np.zeros(400, int))) == pytest.approx(spread, abs=2e-3)


def test_slowness_is_a_mean_over_10_ms_of_mean_0():
    start = 190e-6 * np.arange(2000)
    length = np.where(np.arange(2000) == 1000, 104e-6, 100e-6)
    found = slowness_of(start, start + length, np.zeros(2000, np.int64))
    # one kernel of 53 within 5 ms to either side is 4 % longer
    there = np.flatnonzero(found > found.max() / 2)
    assert (there[0], there[-1]) == (974, 1026)
    assert found.max() - found.min() == pytest.approx(np.log(1.04) * 1.04 / (52 + 1.04), rel=1e-3)
    assert (found * length).sum() == pytest.approx(0.0, abs=1e-15)
