"""The GPU's power split over slices: exact sums, honest intervals, and truth on simulated GPUs."""

import math

import numpy as np
import pytest

from jouletrace.addons.mig.bench import SimulatedBench
from jouletrace.addons.mig.jobs import Slice, read_jobs
from jouletrace.addons.mig.point import PointSettings, latency_figures, measure_point
from jouletrace.analysis.split import fit, split
from jouletrace.run import Estimate
from jouletrace.simulator.boards.device import SimulatedGpu
from jouletrace.simulator.boards.mig_state import profiles

pytestmark = pytest.mark.thorough

IDLE_W = 70.0


def total_w(found):
    return sum(one.value or 0.0 for one in found.slices) + sum(found.idle) + found.rest_idle_w + found.unattributed_w


def board(watts):
    return Estimate(watts, watts - 1, watts + 1, 1, "windows")


def test_parts_add_up_to_the_gpu_exactly_whatever_is_split():
    rng = np.random.default_rng(0)
    for _ in range(200):
        count = int(rng.integers(1, 8))
        slices = rng.integers(1, 8, count).tolist()
        activity = rng.random((int(rng.integers(1, 6)), count)) * (rng.random(count) < 0.8)
        model = fit(rng.uniform(60, 400, len(activity)), IDLE_W, activity, slices)
        watts = float(rng.uniform(50, 400))
        found = split(model, board(watts), IDLE_W, activity[-1], max(7, sum(slices)))
        assert total_w(found) == pytest.approx(watts, rel=1e-12)
        assert all(one.low <= one.value <= one.high for one in found.slices)
        assert all(one.method == "modelled" for one in found.slices)


def test_windows_of_one_slice_alone_show_what_each_draws():
    draws = np.array([180.0, 40.0, 12.0])
    activity = np.vstack([np.eye(3), [[0.9, 0.5, 1.0]]])
    model = fit(IDLE_W + activity @ draws, IDLE_W, activity, [3, 2, 1])
    assert model.watts == pytest.approx(draws, rel=0.03)
    found = split(model, board(IDLE_W + activity[-1] @ draws), IDLE_W, activity[-1])
    assert [one.value for one in found.slices] == pytest.approx(activity[-1] * draws, rel=0.03)


def test_windows_that_are_all_alike_split_by_slices_with_a_wide_interval():
    activity = np.ones((4, 2))
    model = fit([270.0] * 4, IDLE_W, activity, [3, 1])
    first, second = split(model, board(270.0), IDLE_W, [1.0, 1.0]).slices
    assert first.value == pytest.approx(150.0)
    assert second.high - second.low > 30, "nothing shows whether the small one draws less or more"
    assert second.low < 25 < 75 < second.high


def test_more_informative_windows_make_the_interval_narrower():
    def width(windows):
        model = fit(IDLE_W + windows @ [120.0, 60.0], IDLE_W, windows, [3, 2])
        one = split(model, board(250.0), IDLE_W, [1.0, 1.0]).slices[0]
        return one.high - one.low

    assert width(np.array([[1.0, 1.0], [1.0, 0.5], [0.5, 1.0]])) < width(np.array([[1.0, 1.0]])) / 3


def test_idle_power_is_shared_by_slices():
    model = fit([200.0], IDLE_W, [[1.0, 1.0]], [3, 2])
    shared = split(model, board(200.0), IDLE_W, [1.0, 1.0])
    assert shared.idle == pytest.approx([IDLE_W * 3 / 7, IDLE_W * 2 / 7])
    assert shared.rest_idle_w == pytest.approx(IDLE_W * 2 / 7), "of the two slices that no one has"


def test_an_activity_that_is_not_known_gives_no_power_and_not_zero():
    model = fit([200.0], IDLE_W, [[1.0, 1.0]], [3, 2])
    found = split(model, board(200.0), IDLE_W, [1.0, math.nan])
    assert [one.reason for one in found.slices] == ["no_activity"] * 2
    assert found.unattributed_w == pytest.approx(130.0)
    assert total_w(found) == pytest.approx(200.0)


def test_power_without_any_activity_is_nobodys():
    model = fit([200.0], IDLE_W, [[1.0, 1.0]], [3, 2])
    found = split(model, board(90.0), IDLE_W, [0.0, 0.0])
    assert [one.value for one in found.slices] == [0.0, 0.0]
    assert found.unattributed_w == pytest.approx(20.0)


def test_windows_with_holes_are_left_out_of_the_fit():
    activity = [[1.0, 0.0], [0.0, 1.0], [math.nan, 1.0]]
    model = fit([170.0, 110.0, 900.0], IDLE_W, activity, [1, 1])
    assert model.n == 2
    assert model.watts == pytest.approx([100.0, 40.0], rel=0.03)


@pytest.mark.parametrize("n", [5, 50, 500])
def test_a_percentile_is_given_only_where_there_are_enough_requests(n):
    found = latency_figures(np.linspace(1, 2, n))
    assert (found["latency_p95_s"] is None) == (n < 20)
    assert (found["latency_p99_s"] is None) == (n < 100)
    assert found["latency_p50_s"] == pytest.approx(1.5)


MIXED = [
    ("sim:a100-80?seed=1", [("3g.40gb", "vit", 16), ("2g.20gb", "resnet50", 8), ("1g.10gb", "bert-base", 4)]),
    pytest.param(
        *("sim:a100-40?seed=2", [("4g.20gb", "swin", 8), ("3g.20gb", "distilbert", 32)]), marks=pytest.mark.slow
    ),
    pytest.param(
        *("sim:h100-80?seed=3", [("2g.20gb", "vit", 8), ("2g.20gb", "minilm", 64), ("3g.40gb", "resnet50", 32)]),
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize(("spec", "loads"), MIXED)
def test_the_split_is_within_10_percent_of_truth_on_mixed_loads(spec, loads):
    # The split sees the GPU's power and how active each slice is; what a slice draws is the simulator's secret.
    pytest.importorskip("transformers")
    gpu = SimulatedGpu(spec)
    table = {one.name: one for one in profiles(gpu.info.details["preset"])}
    slices = [Slice(f"MIG-{n}", table[name], n) for n, (name, _, _) in enumerate(loads)]
    jobs = [read_jobs([model], batches=[batch], mode="graph")[0] for _, model, batch in loads]
    bench = SimulatedBench(gpu, slices)
    rows = measure_point(bench, jobs, PointSettings(seconds=4, solo_s=2, warmup_s=0.5))
    total = rows[0]["board_power_w"] - rows[0]["idle_power_w"]
    truth = bench.caused_j / bench.caused_j.sum() * total
    assert [row["power_active_w"] for row in rows] == pytest.approx(truth, rel=0.10)
    assert sum(row["power_active_w"] for row in rows) == pytest.approx(total, rel=1e-12)
    watts = truth / [one.profile.slices for one in slices]
    assert max(watts) / min(watts) > 1.2, "a split by slices alone would do for loads that are all alike"
