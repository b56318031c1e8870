"""A Run of a wing that isn't here: it loads, and prints say in one line what they lack."""

import pytest

import jouletrace as jt
from jouletrace import wing
from jouletrace.analysis import analyse
from jouletrace.report import render
from jouletrace.run import load
from places import REPOSITORY

RUNS = REPOSITORY / "docs" / "results" / "runs"
LACKS = "needs the wing serving, which is missing: its figures are as stored (-v), without verdict and price"


@pytest.fixture(autouse=True)
def no_wings(monkeypatch):
    monkeypatch.setattr(wing, "wings", dict)


@pytest.fixture
def run():
    return jt.load(RUNS / "serving-rates-a-h200.zip")


def test_one_line_says_what_a_print_lacks(run):
    text = render([run], width=200)
    assert text.count(LACKS) == 1
    assert len(text.splitlines()) < 10
    assert "16/s" in render([run], verbose=True, width=200)


def test_figures_stay_as_they_are_stored(run):
    assert analyse(run).results.equals(load(RUNS / "serving-rates-a-h200.zip").results)


@pytest.mark.parametrize("form", ["json", "csv", "markdown"])
def test_every_form_has_the_stored_loads(run, form):
    assert "16/s" in render([run], form)


def test_its_report_is_written(run, tmp_path):
    assert LACKS in run.report(tmp_path / "r.html").read_text()


def test_two_of_them_compare(run):
    other = jt.load(RUNS / "serving-rates-b-h200.zip")
    assert {row.level for row in jt.compare(run, other).rows} == {"load"}
