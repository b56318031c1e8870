"""A line of docs/results/any-model-h200.md, from its recording."""

import pytest

from jouletrace.analysis import analyse
from jouletrace.run import MODEL_UNIT, SAMPLE_RATE, load
from places import REPOSITORY

pytestmark = pytest.mark.slow  # another recording for the same analysis: one is in test_program

RUN = REPOSITORY / "tests" / "data" / "runs" / "segformer-kernels-h200.zip"


def test_the_page_says_of_segformer_what_its_recording_says():
    run = load(RUN)
    run.stored[SAMPLE_RATE] = {
        run.devices[0].id: {"value": run.result(SAMPLE_RATE).value}
    }  # looked for near what it was
    analyse(run)
    ops = [unit for unit in run.units.to_pylist() if unit["level"] == "op" and unit["parent"] == MODEL_UNIT]
    found = {unit["id"]: run.result("energy_total_j", unit["id"]) for unit in ops if unit["name"] != "idle"}
    total = sum(energy.value for energy in found.values() if energy.value is not None)
    single = [found[unit["id"]] for unit in ops if unit["op"] and found[unit["id"]].value]
    fine = [energy for energy in single if energy.half_width <= 0.1 * energy.value]
    assert len(fine) == pytest.approx(46, abs=2)
    assert sum(energy.value for energy in fine) / total == pytest.approx(0.90, abs=0.04)
    large = [energy for energy in single if energy.value >= 0.05 * total]
    assert sum(energy.half_width <= 0.05 * energy.value for energy in large) >= len(large) - 1 >= 4
    closure = run.result("closure_kernels")
    assert closure.value == pytest.approx(1.0150, abs=0.002)
    assert run.result("residual_w").value < 5.0
