"""Advice on operators far from the best rates of their GPU: where they are, and silence where they are near them."""

import pytest

from jouletrace.analysis.advice import FAR, advice_of
from jouletrace.analysis.checks import outcomes
from jouletrace.profiler import ProfileSettings, profile_workload
from jouletrace.report.advice import lines
from jouletrace.run import Parts, load
from jouletrace.workloads import ObjectWorkload
from places import REPOSITORY

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.thorough

RATES = {"flops_per_s": {"fp16": 650e12}, "bytes_per_s": 2.7e12}
"""Of a simulated H100, as its calibration times them."""


def advised(run, rates=RATES):
    """The advice on a profile of a GPU with these best rates, and its figures."""
    for device in run.devices:
        run.calibration[device.id] = {"rates": rates} if rates else {}
    parts = Parts(run)
    return [one for one in advice_of(run, parts, outcomes(run, parts)) if one.code == FAR]


def profiled(rows, width, layers):
    """A profile of equal linear layers as a graph, without a cap of power."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers))).half()
    settings = ProfileSettings(
        device="sim:h100?seed=5&cap=off", mode="graph", detail="kernel", calibrated=False,
        max_time_s=1.0, warmup_s=0.5, idle_s=0.6, latency_s=0.1, detail_time_s=2.0,
    )  # fmt: skip
    return profile_workload(ObjectWorkload(net, torch.randn(rows, width).half()), settings)


def test_many_small_products_are_far_from_the_rates_that_limit_them():
    run = profiled(256, 256, 12)
    (found,) = advised(run)
    energy = sum(part.get("energy_total_j").value for part in Parts(run).units("op") if part.op == "aten.addmm")
    share = sum(part.get("bytes_moved").value for part in Parts(run).units("op") if part.op == "aten.addmm") / 2.7e12
    share /= sum(part.get("time_s").value for part in Parts(run).units("op") if part.op == "aten.addmm")
    assert share < 0.3
    assert found.energy.value == pytest.approx(energy * (1 - share / 0.3), rel=1e-6)
    assert found.energy.half_width > 0
    (line,) = lines([found], run.kind)
    assert f"addmm at {100 * share:.0f} % of the best copy: try a larger batch" in line
    assert advised(run, None) == [], "no rates were timed"
    assert advised(run, {"flops_per_s": {"bf16": 650e12}, "bytes_per_s": 2.7e12}) == [], "nor that of its format"


def test_large_products_are_near_them():
    assert advised(profiled(4096, 4096, 2)) == []


@pytest.mark.parametrize(
    "path",
    [
        "docs/results/runs/minilm-256-eager-h100.zip",
        "tests/data/runs/segformer-kernels-h200.zip",
        "docs/results/runs/llama-generate-h200.zip",
    ],
)
def test_runs_that_counted_no_work_are_in_no_such_advice(path):
    assert advised(load(REPOSITORY / path)) == []
