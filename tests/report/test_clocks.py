"""Clocks as people and programs read them: reported, and measured where they were."""

import json

import pytest
from jsonschema import Draft202012Validator

from jouletrace.report import json_schema, render, to_json_object
from jouletrace.run import tables
from make_runs import GPU, START, cpu_run, profile_run
from shown import fact_of


def profile(counted=1652.0, reported=1790.0):
    """A profile whose driver reported one clock all the time; ``counted`` of each of its windows, or of all."""
    run = profile_run()
    rows = [row for row in run.samples.to_pylist() if row["channel"] != "clock_sm_mhz"]
    if reported is not None:
        times = [START + i * 100_000_000 for i in range(120)]
        rows += [{"time_ns": at, "device": GPU, "channel": "clock_sm_mhz", "value": reported} for at in times]
    run.samples = tables.from_rows(rows, "samples")
    rows = run.windows.to_pylist()
    values = counted if isinstance(counted, list) else [counted] * len(rows)
    rows = [{**row, "counted_mhz": mhz} for row, mhz in zip(rows, values, strict=True)]
    run.windows = tables.from_rows(rows, "windows")
    return run


def clocks(run):
    return fact_of(run, "Clocks")


def test_both_clocks_are_reported_where_both_are_known():
    assert clocks(profile()) == "SM 1790 MHz reported, 1652 MHz measured · memory 2619 MHz"


def test_a_clock_that_moved_has_its_range():
    counted = [1652.0] * 10 + [1646.0, 1658.0]
    assert clocks(profile(counted)) == "SM 1790 MHz reported, 1652 MHz (1646–1658) measured · memory 2619 MHz"


@pytest.mark.parametrize(
    ("counted", "reported", "said"),
    [
        (None, 1790.0, "SM 1790 MHz · memory 2619 MHz"),
        (1652.0, None, "SM 1652 MHz measured · memory 2619 MHz"),
        (None, None, "memory 2619 MHz"),
    ],
)
def test_what_is_not_known_is_left_out(counted, reported, said):
    assert clocks(profile(counted, reported)) == said


def test_without_clocks_there_is_no_line():
    assert clocks(cpu_run()) is None


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["table", "markdown", "html"])
def test_both_are_in_what_is_printed(form):
    if form == "html":
        pytest.importorskip("plotly")
        from jouletrace.report.html import render as page

        text = page([profile()])
    else:
        text = render([profile()], form, verbose=True)
    said = " ".join(text.replace("\N{NO-BREAK SPACE}", " ").split())
    assert "1790 MHz reported, 1652 MHz measured" in said


def test_the_json_object_has_both():
    validator = Draft202012Validator(json.loads(json_schema()))
    for run in (profile(), profile(None), cpu_run()):
        found = to_json_object(run)
        assert not list(validator.iter_errors(found))
    spread = {"mean": 1652.0, "min": 1652.0, "max": 1652.0}
    assert to_json_object(profile())["conditions"]["clocks_mhz"]["sm_measured"] == spread
    assert to_json_object(profile(None))["conditions"]["clocks_mhz"]["sm_measured"] is None
