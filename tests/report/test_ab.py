"""A Run of ``ab`` as it is shown: how its two sides compare comes first; and footnotes through a whole output."""

import re

import pytest

from jouletrace import load, report
from jouletrace.report.document import Footnotes
from jouletrace.run import tables
from make_runs import GPU, cpu_run, monitor_run, profile_run
from places import REPOSITORY
from shown import fact_of

AB = REPOSITORY / "docs" / "results" / "runs" / "eager-graph-h100.zip"


@pytest.fixture
def two_sides():
    return load(AB)


def words(text):
    return re.sub(r"[\\~\s\u00a0]+", " ", text)


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["table", "markdown"])
def test_what_was_compared_comes_before_the_figures_of_the_run(form, two_sides):
    text = words(report.render([two_sides], form, verbose=True))
    assert 0 <= text.index("better") < text.index("Throttling")
    assert "A against B" not in words(report.render([profile_run()], form, verbose=True))


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_of_several_runs_each_says_what_it_compared(form, two_sides):
    text = words(report.render([profile_run(), two_sides], form, verbose=True))
    assert text.count("detectable") <= 1
    assert text.index("B takes") < text.index("2 runs")


def test_a_warning_of_both_is_reported_once(two_sides):
    two_sides.warn("target_not_met", "9 blocks were wanted, 4 fitted the time")
    assert words(report.render([two_sides], verbose=True)).count("9 blocks were wanted") == 1


def test_a_comparison_that_was_interrupted_says_so_first_and_once(two_sides):
    two_sides.complete = False
    two_sides.warn("interrupted", "the run ended early")
    text = words(report.render([two_sides], verbose=True))
    assert text.count("the run ended early") == 1
    assert text.index("INCOMPLETE: the run ended early") < text.index("verdict")


def test_equal_remarks_share_a_letter_in_all_tables_and_others_go_on_in_the_alphabet():
    first = Footnotes()
    second = Footnotes(first)
    assert [first.mark("x"), first.mark("y"), second.mark("z"), second.mark("x")] == ["[a]", "[b]", "[c]", "[a]"]
    assert first.lines() == ["[a] x", "[b] y"]
    assert second.lines() == ["[a] x", "[c] z"]


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["table", "markdown"])
def test_a_letter_means_one_thing_through_a_whole_output(form, two_sides):
    meant = {}
    runs = [two_sides, profile_run(kernels=2), cpu_run(), monitor_run()]
    text = report.render(runs, form, detail="kernel", verbose=True)
    for letter, remark in re.findall(r"^\\?\[([a-z]+)\\?\] (.{0,12})", text, re.M):
        assert meant.setdefault(letter, remark) == remark
    assert len(meant) > 1
    assert len(set(meant.values())) == len(meant)


@pytest.mark.parametrize(
    ("heat", "said"),
    [
        ((35.0, 35.3, 35.2), "35 °C"),
        ((45.0, 52.4, 52.0), "45 to 52 °C"),
        ((52.0, 60.0, 45.0), "52 to 45 °C, at most 60 °C"),
        ((35.0, 41.0, 35.0), "35 °C, at most 41 °C"),
    ],
)
def test_a_temperature_says_no_number_twice(heat, said):
    run = profile_run()
    rows = [row for row in run.samples.to_pylist() if row["channel"] != "temperature_c"]
    inside = next(row for row in run.spans.to_pylist() if (row["kind"], row["name"]) == ("phase", "energy"))
    times = [inside["start_ns"] + n * 10**6 for n in range(len(heat))]
    values = dict(zip(times, heat, strict=True))
    rows += [{"time_ns": at, "device": GPU, "channel": "temperature_c", "value": c} for at, c in values.items()]
    run.samples = tables.from_rows(rows, "samples")
    assert fact_of(run, "Temperature") == said
