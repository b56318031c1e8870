"""The GPU's power divided among slices: exact sums, honest intervals, and truth on simulated GPUs."""

import math

import numpy as np
import pytest

from jouletrace.run import Estimate
from jouletrace.simulator.boards import SimulatedGpu
from jouletrace.wings.mig.bench import SimulatedBench
from jouletrace.wings.mig.jobs import Slice, read_jobs
from jouletrace.wings.mig.point import PointSettings, latency_figures, measure_point
from jouletrace.wings.mig.simulated import profiles
from jouletrace.wings.mig.split import divided, factors_alone

pytestmark = pytest.mark.thorough


def above(watts):
    return Estimate(watts, watts - 1, watts + 1, 1, "windows")


def of_slices(watts):
    """Draws of slices that were fully active alone, and drew as much together."""
    active = np.ones(len(watts))
    return factors_alone([above(float(one)) for one in watts], active, above(float(np.sum(watts))), active)


def test_parts_add_up_to_the_gpu_exactly_whatever_is_divided():
    rng = np.random.default_rng(0)
    for _ in range(100):
        count = int(rng.integers(1, 8))
        watts = float(rng.uniform(1, 400))
        found = divided(of_slices(rng.uniform(1, 200, count)), above(watts), rng.uniform(0.01, 1, count))
        assert sum(one.value for one in found) == pytest.approx(watts, rel=1e-12)
        assert all(one.method == "modelled" for one in found)


def test_each_slice_alone_shows_what_it_has_at_once_and_their_sum_how_well():
    alone, at_once = [above(180.0), above(40.0)], np.array([1.0, 0.5])
    for watts, half in ((200.0, 1.0), (190.0, 2.6)):  # ± 1 W, and 5 % of either, which leaves 0.7 % of the larger part
        found = divided(factors_alone(alone, np.ones(2), above(watts), at_once), above(watts), at_once)
        assert [one.value for one in found] == pytest.approx([0.9 * watts, 0.1 * watts])
        assert found[0].half_width == pytest.approx(half, rel=0.1)
    idle = factors_alone(alone, np.array([1.0, 0.0]), above(200.0), at_once)
    assert divided(idle, above(200.0), at_once)[0].reason == "no_activity"


def test_an_activity_that_is_not_known_gives_no_power_and_not_zero():
    found = divided(of_slices([80.0, 50.0]), above(130.0), [1.0, math.nan])
    assert [one.reason for one in found] == ["no_activity"] * 2


def test_power_without_any_activity_is_nobodys():
    found = divided(of_slices([80.0, 50.0]), above(20.0), [0.0, 0.0])
    assert [one.value for one in found] == [0.0, 0.0]


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
