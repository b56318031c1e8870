"""The split of variance against truths that it isn't given."""

import numpy as np
import pytest

from covering import fewest, most
from jouletrace.wings.fleet import split
from jouletrace.wings.fleet.variance import DRAWS, LEVELS, Split


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
    found = Split((), np.arange(9), means, np.ones(9, int), np.ones((DRAWS, 9))).true_means()
    assert found.mean(axis=1).std() > 0.95 / 3


def test_where_nothing_differs_every_variance_is_nothing():
    found = split(np.full(48, 2.0), *labels(2, 2, 3, 4))
    assert [part.sd.value for part in found.components] == [0.0] * 4
    assert {part.share.reason for part in found.components} == {"no_spread"}
    assert np.ptp(found.true_means()) == 0


def test_a_level_that_nothing_reports_of_is_null_with_a_reason():
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


def test_runs_whose_windows_lie_between_one_another_in_the_table_are_distinguished():
    rng = np.random.default_rng(1)
    node, gpu, run = labels(1, 2, 4, 10)
    values = 1 + rng.normal(0, 0.01, 80)
    mixed = np.argsort(np.tile(np.arange(10), 8), kind="stable")
    one, other = split(values, node, gpu, run), split(values[mixed], node[mixed], gpu[mixed], run[mixed])
    for part, again in zip(one.components, other.components, strict=True):
        assert again.sd.value == (None if part.sd.value is None else pytest.approx(part.sd.value))


@pytest.mark.thorough
def test_what_windows_of_a_run_have_in_common_counts_as_a_difference_between_runs():
    """Successive windows correlated by 0.9: the means of GPUs are as uncertain as their runs scatter."""
    rng = np.random.default_rng(5)
    node, gpu, run = labels(1, 8, 10, 20)
    hits = 0
    for i in range(60):
        steps = rng.normal(0, 0.006, (80, 20))
        for k in range(1, 20):
            steps[:, k] = 0.9 * steps[:, k - 1] + np.sqrt(1 - 0.9**2) * steps[:, k]
        own = rng.normal(0, 0.004, 8)
        found = split(1 + own[gpu] + steps.ravel(), node, gpu, run, seed=i)
        low, high = np.quantile(np.ptp(found.true_means(i), axis=1), [0.025, 0.975])
        hits += low <= np.ptp(own) <= high
    assert hits >= fewest(60)
