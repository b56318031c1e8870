"""A power log and a latency, and a power log beside a timeline: from files to figures."""

import numpy as np
import pytest

from import_logs import TORCH, TRTEXEC_PROFILE, dmon, query, write
from jouletrace.analysis.imported import add_imported
from jouletrace.formats.importers import read_files
from jouletrace.formats.importers.base import ImportOptions
from jouletrace.run.figures import Figures
from jouletrace.stats.interval import Z95

LOG = dmon([61] * 30 + [75] + [87] * 60 + [70] + [61] * 20)
DEVICE_UNIT = 1


def imported(*paths, **options):
    run = read_files(paths, ImportOptions(**options))
    figures = Figures()
    add_imported(run, figures)
    figures.become(run)
    return run


def test_a_log_and_a_latency_give_the_energy_of_an_inference(tmp_path):
    run = imported(write(tmp_path, LOG), latency_s=4.37e-3)
    figures = {"power_idle_w": 61.0, "power_working_w": 87.0, "power_difference_w": 26.0}
    assert {name: run.result(name, DEVICE_UNIT).value for name in figures} == pytest.approx(figures)
    energy = run.result("energy_per_inference_j")
    assert energy.value == pytest.approx(113.62e-3)
    assert energy.method == "levels x latency"


def test_readings_in_whole_watts_leave_their_rounding_in_the_interval(tmp_path):
    idle = imported(write(tmp_path, LOG)).result("power_idle_w", DEVICE_UNIT)
    least = Z95 / np.sqrt(12)
    assert least * (1 - 1e-9) <= idle.half_width < 1.05 * least


def test_the_latency_may_come_from_the_benchmarks_own_output(tmp_path):
    run = imported(write(tmp_path, LOG), write(tmp_path, TORCH, "bench.txt"))
    assert run.result("energy_per_inference_j").value == pytest.approx(113.62e-3)


def test_without_a_latency_there_are_levels_and_no_energy_of_an_inference(tmp_path):
    run = imported(write(tmp_path, LOG))
    assert run.result("power_difference_w", DEVICE_UNIT).value == pytest.approx(26.0)
    assert "energy_per_inference_j" not in run.results["metric"].to_pylist()


def test_energy_over_assumed_times_says_so(tmp_path):
    run = imported(write(tmp_path, LOG))
    assert "interval_assumed" in run.result("energy_total_j", DEVICE_UNIT).flags
    stamped = imported(write(tmp_path, query([61.0] * 100)))
    seconds = stamped.result("time_s", DEVICE_UNIT).value
    assert seconds == pytest.approx(9.9, abs=0.5)
    assert stamped.result("energy_total_j", DEVICE_UNIT).value == pytest.approx(61 * seconds)
    assert stamped.result("energy_total_j", DEVICE_UNIT).flags == ("nominal_response",)


def test_a_figure_computed_again_is_the_same(tmp_path):
    files = [write(tmp_path, text, name) for text, name in ((LOG, "a"), (TORCH, "b"), (TRTEXEC_PROFILE, "d"))]
    run = imported(*files)
    results, units = run.results.to_pylist(), run.units.to_pylist()
    figures = Figures()
    add_imported(run, figures)
    figures.become(run)
    assert (run.results.to_pylist(), run.units.to_pylist()) == (results, units)
    assert "Conv_0 + Relu_1" in set(run.units["name"].to_pylist())
