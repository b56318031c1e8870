"""Budgets of uncertainties add up to the intervals that figures state, and hold what no interval does."""

import json
import math

import pytest

from jouletrace.analysis import OFFSET_W, analyse, budgets
from jouletrace.bundled import bundled_runs
from jouletrace.errors import BadInputError
from jouletrace.report import budget as shown
from jouletrace.run import MODEL_UNIT, load
from jouletrace.stats import Z95, expanded
from places import REPOSITORY

pytestmark = pytest.mark.usefixtures("fits_once")


@pytest.fixture(scope="module")
def windows():
    """A profile of a whole model, on an H100."""
    return analyse(next(one.run for one in bundled_runs() if not len(one.run.activity)))


@pytest.fixture(scope="module")
def program(fits_once):
    """A training program on an H200."""
    return analyse(load(REPOSITORY / "docs" / "results" / "runs" / "resnet50-run-h200.zip"))


def test_the_budget_of_a_whole_is_its_interval_with_gain_and_offset_beside_it(windows):
    found, *_ = budgets(windows)
    seconds = windows.result("iteration_time_s").value
    stated = math.sqrt(sum(term.u**2 for term in found.terms if term.stated))
    assert found.figure.half_width / 2.5 < stated <= found.figure.half_width / 1.96  # Student's t for few windows
    beside = {term.source.partition(" ")[0]: term.u for term in found.terms if not term.stated}
    assert beside["gain"] == pytest.approx(0.05 * found.figure.value / math.sqrt(3))
    assert beside["offset"] == pytest.approx(OFFSET_W * seconds / math.sqrt(3))
    assert found.expanded == pytest.approx(
        expanded(found.figure.half_width, [math.sqrt(3) * u for u in beside.values()])
    )
    assert found.expanded < found.figure.half_width + math.sqrt(3) * sum(beside.values()), "beyond all limits"
    assert found.combined == pytest.approx(math.hypot(stated, *beside.values()))


def test_power_and_energy_above_idle_have_budgets_of_their_own(windows):
    energy, power, *above = budgets(windows)
    assert [one.metric for one in above] == [f"energy_active_over_{idle}_idle_j" for idle in ("context", "deep")]
    for one in (power, *above):
        assert one.figure == windows.result(one.metric)
        stated = math.sqrt(sum(term.u**2 for term in one.terms if term.stated))
        assert one.figure.half_width / 2.5 < stated <= one.figure.half_width / 1.96
        beside = {term.source.partition(" ")[0]: term.u for term in one.terms if not term.stated}
        assert beside["gain"] == pytest.approx(0.05 * one.figure.value / math.sqrt(3))
        # total and baseline have one offset
        assert beside["offset"] == pytest.approx(OFFSET_W / math.sqrt(3) if one is power else 0.0)
    seconds = windows.result("iteration_time_s").value
    for one, idle in zip(above, ("context", "deep"), strict=True):
        level = windows.result(f"baseline_{idle}_idle_w")
        assert {"idle power": level.half_width / 1.96 * seconds}.items() <= {
            term.source: pytest.approx(term.u, rel=1e-3) for term in one.terms
        }.items()
    assert all(term.source != "idle power" for one in (energy, power) for term in one.terms)


@pytest.mark.thorough
def test_the_budget_of_a_part_is_its_interval(program):
    rows = [row for row in program.results.to_pylist() if row["metric"] == "energy_total_j" and row["value"]]
    largest = sorted(rows, key=lambda row: -row["value"])[1:6]
    _, *found = budgets(program, [row["unit"] for row in largest])
    assert len(found) >= 4
    for one in found:
        stated = math.sqrt(sum(term.u**2 for term in one.terms if term.stated))
        assert stated == pytest.approx(one.figure.half_width / 1.96, rel=1e-3)
        assert "noise of the readings" in {term.source for term in one.terms}
        assert all(term.u > 0 for term in one.terms if term.stated)  # what adds nothing is no term
    every = {term.source for one in found for term in one.terms}
    assert {"noise of the readings", "response of the sensor"} <= every


@pytest.mark.thorough
def test_the_budget_of_a_program_is_that_of_its_window(program):
    (found,) = budgets(program)
    assert found.unit == MODEL_UNIT
    stated = math.sqrt(sum(term.u**2 for term in found.terms if term.stated))
    assert stated == pytest.approx(found.figure.half_width / Z95)


def test_the_offsets_of_several_gpus_add_up():
    """Each has a sensor of its own; all may be at the same limit."""
    run = analyse(load(REPOSITORY / "docs" / "results" / "runs" / "ddp-run-h200.zip"))
    (found,) = budgets(run)
    (offset,) = (term.u for term in found.terms if term.source.startswith("offset"))
    assert offset == pytest.approx(2 * OFFSET_W * run.result("iteration_time_s").value / math.sqrt(3))


def test_a_budget_is_printed_and_given_as_json(windows):
    found = budgets(windows)
    text = shown.render("deit", found, "table")
    assert text.splitlines()[2].startswith("deit-base, energy: 4.712")
    assert "gain of the sensor" in text
    assert "95 %" in text
    stated, *_ = json.loads(shown.render("deit", found, "json"))
    assert {term["in_interval"] for term in stated["terms"]} == {True, False}
    assert stated["expanded_95"] == found[0].expanded
    for nothing, form in (([], "table"), (found, "csv")):
        with pytest.raises(BadInputError):
            shown.render("deit", nothing, form)
