"""A log of power and a latency: from files to figures."""

import numpy as np
import pytest

from import_logs import with_levels, write
from jouletrace.analysis.imported import add_imported
from jouletrace.run.figures import Figures
from jouletrace.stats import Z95

WATTS = [61] * 30 + [75] + [87] * 60 + [70] + [61] * 20
LOG = "time_s,power_w,utilization_gpu_pct\n" + "".join(f"{k},{w},{40 * (w > 61)}\n" for k, w in enumerate(WATTS))
DEVICE_UNIT = 1


def test_a_log_and_a_latency_give_the_energy_of_an_inference(tmp_path):
    run = with_levels(write(tmp_path, LOG), latency_s=4.37e-3)
    figures = {"power_idle_w": 61.0, "power_working_w": 87.0, "power_difference_w": 26.0}
    assert {name: run.result(name, DEVICE_UNIT).value for name in figures} == pytest.approx(figures)
    energy = run.result("energy_per_inference_j")
    assert energy.value == pytest.approx(113.62e-3)
    assert energy.method == "levels x latency"


def test_readings_in_whole_watts_leave_their_rounding_in_the_interval(tmp_path):
    idle = with_levels(write(tmp_path, LOG)).result("power_idle_w", DEVICE_UNIT)
    least = Z95 / np.sqrt(12)
    assert least * (1 - 1e-9) <= idle.half_width < 1.05 * least


def test_without_a_latency_there_are_levels_and_no_energy_of_an_inference(tmp_path):
    run = with_levels(write(tmp_path, LOG))
    assert run.result("power_difference_w", DEVICE_UNIT).value == pytest.approx(26.0)
    assert "energy_per_inference_j" not in run.results["metric"].to_pylist()


def test_a_figure_computed_again_is_the_same(tmp_path):
    run = with_levels(write(tmp_path, LOG), latency_s=4.37e-3)
    results, units = run.results.to_pylist(), run.units.to_pylist()
    figures = Figures()
    add_imported(run, figures)
    figures.become(run)
    assert (run.results.to_pylist(), run.units.to_pylist()) == (results, units)
