"""The split of variance against truths that are hidden from it."""

import numpy as np
import pytest

from covering import fewest, most
from jouletrace.addons.fleet.autocorrelation import autocorrelation, inflation
from jouletrace.addons.fleet.variance import DRAWS, LEVELS, Split, split


def labels(nodes, gpus, runs, windows):
    n, g, r, _ = np.meshgrid(*map(np.arange, (nodes, gpus, runs, windows)), indexing="ij")
    node, gpu = n.ravel(), (n * gpus + g).ravel()
    return node, gpu, ((n * gpus + g) * runs + r).ravel()


def drawn(rng, sds, shape=(8, 4, 10, 6), keep=1.0):
    """Readings with hidden coefficients, some runs of which are lost."""
    node, gpu, run = labels(*shape)
    parts = [
        rng.normal(0, sd, n) for sd, n in zip(sds[:3], (node.max() + 1, gpu.max() + 1, run.max() + 1), strict=True)
    ]
    values = 1 + parts[0][node] + parts[1][gpu] + parts[2][run] + rng.normal(0, sds[3], len(node))
    left = (rng.random(run.max() + 1) < keep)[run]
    means = 1 + parts[0][node] + parts[1][gpu]
    truth = np.array([means[gpu == g][0] for g in np.unique(gpu[left])])
    return values[left], node[left], gpu[left], run[left], truth


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sds", "keep"),
    [
        pytest.param((0.01, 0.012, 0.004, 0.006), 1.0, marks=pytest.mark.slow),
        ((0.003, 0.012, 0.006, 0.006), 1.0),
        ((0.01, 0.012, 0.004, 0.006), 0.85),
    ],
)
def test_intervals_of_all_levels_hold_the_truth_as_often_as_they_say(sds, keep):
    rng = np.random.default_rng(11)
    fleets = 100
    hits, shares = np.zeros(4), np.zeros(4)
    whole = sum(sd**2 for sd in sds)
    for i in range(fleets):
        found = split(*drawn(rng, sds, keep=keep)[:4], seed=i)
        for k, part in enumerate(found.components):
            hits[k] += part.sd.low <= sds[k] <= part.sd.high
            shares[k] += part.share.low <= sds[k] ** 2 / whole <= part.share.high
    for held in (*hits, *shares):
        assert fewest(fleets) <= held <= most(fleets)


@pytest.mark.thorough
def test_means_are_drawn_towards_one_another_and_their_range_holds_the_truth():
    rng = np.random.default_rng(3)
    hits = best = observed = 0
    for i in range(120):
        values, node, gpu, run, truth = drawn(rng, (0.0, 0.002, 0.004, 0.006), (1, 8, 3, 20))
        found = split(values, node, gpu, run, seed=i)
        draws = found.true_means(i)
        ranges = draws.max(axis=1) / draws.min(axis=1) - 1
        low, high = np.quantile(ranges, [0.025, 0.975])
        hits += low <= truth.max() / truth.min() - 1 <= high
        observed += found.means.max() / found.means.min() - 1 > truth.max() / truth.min() - 1
        first = int(found.means.argmin())
        gain = 1 - draws[:, first] / np.delete(draws, first, axis=1).mean(axis=1)
        low, high = np.quantile(gain, [0.025, 0.975])
        best += low <= 1 - truth[first] / np.delete(truth, first).mean() <= high
    assert hits >= fewest(120)
    assert best >= fewest(120), "the GPU that came out first isn't credited with its luck"
    assert observed >= 90, "what is measured is too far apart: so there is something to take out"


def test_the_mean_of_all_gpus_is_known_no_better_than_their_noise_lets_it_be():
    """Nine GPUs, each mean uncertain by 1, that came out nearly alike: that of all is uncertain by a third."""
    means = 100 + 0.1 * np.linspace(-1, 1, 9)
    alone = autocorrelation(np.zeros(18), np.repeat(np.arange(9), 2))
    found = Split((), np.arange(9), means, np.ones(9, int), np.ones((DRAWS, 9)), alone).true_means()
    assert found.mean(axis=1).std() > 0.95 / 3


def test_where_nothing_differs_every_variance_is_nothing():
    found = split(np.full(48, 2.0), *labels(2, 2, 3, 4))
    assert [part.sd.value for part in found.components] == [0.0] * 4
    assert {part.share.reason for part in found.components} == {"no_spread"}
    assert np.ptp(found.true_means()) == 0


def test_a_level_of_which_nothing_is_known_is_null_with_a_reason():
    rng = np.random.default_rng(0)
    for shape, level, reason in (
        ((1, 4, 3, 5), "node", "one_node"),
        ((4, 1, 3, 5), "gpu", "one_gpu_a_node"),
        ((2, 2, 1, 5), "run", "one_run_a_gpu"),
        ((2, 2, 3, 1), "within", "one_window_a_run"),
    ):
        found = split(rng.normal(1, 0.01, np.prod(shape)), *labels(*shape))
        parts = {part.level: part.sd for part in found.components}
        assert parts[level].value is None
        assert parts[level].reason == reason
        assert all(parts[other].value is not None for other in LEVELS if other != level)


def test_without_readings_there_is_no_split():
    nothing = np.zeros(0, dtype=int)
    assert split(np.zeros(0), nothing, nothing, nothing) is None


# --- windows that resemble one another ------------------------------------------------------------------


def series(rng, runs, windows, rho, sd=1.0):
    """Runs of windows, each correlated by ``rho`` with the one before it, shape (runs, windows)."""
    found = rng.normal(0, sd, (runs, windows))
    found[:, 1:] *= np.sqrt(1 - rho**2)
    for k in range(1, windows):
        found[:, k] += rho * found[:, k - 1]
    return found


def about_mean(windows):
    return autocorrelation(
        (windows - windows.mean(axis=1, keepdims=True)).ravel(), np.repeat(np.arange(len(windows)), windows.shape[1])
    )


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.7, 0.95])
def test_the_variance_of_a_mean_of_correlated_windows_is_the_sum_of_their_correlations(rho):
    for n in (1, 2, 7, 40):
        correlations = rho ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
        assert inflation(rho, np.array([n]))[0] == pytest.approx(correlations.mean() * n)
        each = np.array([rho])
        centred = correlations - correlations.mean(axis=0) - correlations.mean(axis=1)[:, None] + correlations.mean()
        if n > 1:
            found = about_mean(series(np.random.default_rng(n), 9, n, rho))
            assert found.expected(each) == pytest.approx(8 * np.trace(centred)), "a course was taken out of 9 runs"
            of_squares = np.trace(centred @ centred)
            assert found.freedom(each) == pytest.approx(8 * np.trace(centred) ** 2 / of_squares, rel=0.2)


@pytest.mark.parametrize("windows", [6, 20])
@pytest.mark.parametrize("rho", [0.0, 0.3, 0.7])
def test_the_autocorrelation_is_estimated_though_each_run_is_short(windows, rho):
    """Windows less their own mean look less alike: by 0.5 and 0.2 here, without the correction."""
    rng = np.random.default_rng(7)
    found = [about_mean(series(rng, 40, windows, rho)) for _ in range(60)]
    assert np.median([one.rho.value for one in found]) == pytest.approx(rho, abs=0.04)
    held = [one.rho.low <= rho <= one.rho.high for one in found]
    assert sum(held) >= fewest(len(held))
    seen = np.mean([one.seen for one in found])
    assert seen <= 0.08 if rho == 0 else seen >= (0.95 if rho == 0.7 or windows == 20 else 0.3)


@pytest.mark.parametrize(("run_sd", "least"), [(0.0, 0.9), (0.004, 0.88)])
def test_correlated_windows_are_not_taken_for_differences_between_runs(run_sd, least):
    """Correlated by 0.7, 20 windows determine a run's mean no better than 4; as 20 they made 0.27 % out of nothing."""
    rng = np.random.default_rng(5)
    node, gpu, run = labels(1, 8, 10, 20)
    sds = (0.0, 0.012, run_sd, 0.006)
    fleets, hits, values = 60, np.zeros(4), []
    for i in range(fleets):
        own = rng.normal(0, sds[1], 8)[gpu] + rng.normal(0, sds[2], 80)[run]
        found = split(1 + own + series(rng, 80, 20, 0.7, sds[3]).ravel(), node, gpu, run, seed=i)
        assert found.correlation.seen
        assert 3 < found.correlation.effective < 6
        hits += [
            part.sd.value is not None and part.sd.low <= sd <= part.sd.high
            for part, sd in zip(found.components, sds, strict=True)
        ]
        values.append(found.components[2].sd.value)
    assert (hits[1:] / fleets >= least).all(), hits
    assert np.median(values) <= 0.0012 if run_sd == 0 else np.median(values) == pytest.approx(run_sd, rel=0.1)


def test_what_is_not_known_of_the_correlation_widens_the_interval_between_runs():
    rng = np.random.default_rng(2)
    node, gpu, run = labels(1, 4, 4, 8)
    alike = 1 + series(rng, 16, 8, 0.8, 0.006).ravel()
    assert split(alike, node, gpu, run).components[2].sd.high > 1.5 * np.sqrt(0.006**2 / 8)


def test_a_course_that_all_runs_have_in_common_is_no_correlation():
    """As GPUs that warm up in each run: it moves the means of runs alike."""
    rng = np.random.default_rng(4)
    node, gpu, run = labels(1, 4, 10, 20)
    plain = 1 + rng.normal(0, 0.001, 40)[run] + rng.normal(0, 0.002, 800)
    warm = plain + np.tile(np.linspace(-0.01, 0.01, 20), 40)
    before, after = split(plain, node, gpu, run), split(warm, node, gpu, run)
    assert not after.correlation.seen
    for one, other in zip(before.components, after.components, strict=True):
        assert one.sd.value == (None if other.sd.value is None else pytest.approx(other.sd.value))


def test_runs_whose_windows_lie_between_one_another_in_the_table_are_distinguished():
    rng = np.random.default_rng(1)
    node, gpu, run = labels(1, 2, 4, 10)
    values = 1 + series(rng, 8, 10, 0.7, 0.01).ravel()
    mixed = np.argsort(np.tile(np.arange(10), 8), kind="stable")
    one, other = split(values, node, gpu, run), split(values[mixed], node[mixed], gpu[mixed], run[mixed])
    assert one.correlation.rho == other.correlation.rho
    assert [part.sd for part in one.components] == [part.sd for part in other.components]
