"""Latencies that another tool printed, beside a log of power."""

import pytest

from commands import command
from import_logs import TORCH, TRTEXEC_PROFILE, with_levels, write
from jouletrace.analysis.imported import add_imported
from jouletrace.run import load
from jouletrace.run.figures import Figures

WATTS = [61] * 30 + [75] + [87] * 60 + [70] + [61] * 20
LOG = "time_s,power_w,utilization_gpu_pct\n" + "".join(f"{k},{w},{40 * (w > 61)}\n" for k, w in enumerate(WATTS))


@pytest.mark.thorough
def test_the_latency_may_come_from_the_benchmarks_own_output(tmp_path):
    run = with_levels(write(tmp_path, LOG), write(tmp_path, TORCH, "bench.txt"))
    assert run.result("energy_per_inference_j").value == pytest.approx(113.62e-3)


def test_a_figure_computed_again_is_the_same(tmp_path):
    files = [write(tmp_path, text, name) for text, name in ((LOG, "a"), (TORCH, "b"), (TRTEXEC_PROFILE, "d"))]
    run = with_levels(*files)
    results, units = run.results.to_pylist(), run.units.to_pylist()
    figures = Figures()
    add_imported(run, figures)
    figures.become(run)
    assert (run.results.to_pylist(), run.units.to_pylist()) == (results, units)
    assert "Conv_0 + Relu_1" in set(run.units["name"].to_pylist())


@pytest.mark.thorough
def test_latency_comes_from_what_the_benchmark_printed(workspace, capsys):
    (workspace / "log.csv").write_text(LOG)
    (workspace / "bench.txt").write_text(TORCH)
    said = command(capsys, "import", "log.csv", "bench.txt", "-o", "by-benchmark")
    assert said.code == 0, said.err
    run = load("by-benchmark")
    assert run.result("latency_s").value == pytest.approx(4.37e-3)
    assert run.result("energy_per_inference_j").value == pytest.approx(113.62e-3)
