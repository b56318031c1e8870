"""The meaning of "±" in the table of a recording's ranges."""

import re

import pytest

from jouletrace.report import render, to_json_object
from jouletrace.report.html.tables import of_parts as parts
from jouletrace.run import Estimate, Parts, Run, tables
from jouletrace.run.old import add_totals
from make_runs import e, result
from shown import nodes_of

SENSOR = "± of energy: what the sensor leaves open of those that ran, not how they differ"
ALONE = "±: what the sensor leaves open of those that ran, not how they differ"
SPREAD = "±: how they differ from one to the next, steps in blocks of many"


def recording(*ranges, kind="record"):
    """A recording with these ranges: (name, how often, time, energy)."""
    units = [{"id": 0, "level": "model", "name": "mine"}]
    rows = []
    for id, (name, count, time, energy) in enumerate(ranges, start=1):
        above = [unit["id"] for unit in units[1:] if name.startswith(f"{unit['name']}/")]
        units.append({"id": id, "parent": [0, *above][-1], "level": "range", "name": name, "count": count})
        rows += [result(id, "time_s", time), result(id, "energy_total_j", energy)]
    units, rows = tables.from_rows(units, "units"), tables.from_rows(rows, "results")
    run = Run(kind=kind, workload={"name": "mine"}, units=units, results=rows)
    add_totals(run)  # as if an older version had recorded it
    return run


ONCE = ("load", 1, Estimate(1.0, 1.0, 1.0, 1, "clock"), e(100.0, 0.1, 1, "windows"))
STEPS = ("step", 500, e(0.013, 0.001, 500, "clock"), e(5.0, 0.2, 40, "windows"))
SHORT = ("step/forward", 500, e(0.005, 0.0004, 500, "clock"), e(2.5, 0.003, 500, "repeated"))


def shown(run, verbose=True):
    return render([run], width=200, verbose=verbose)


@pytest.mark.parametrize("verbose", [True, False])
def test_energies_whose_interval_is_the_sensors_alone_are_marked_beside_those_of_a_spread(verbose):
    text = shown(recording(ONCE, STEPS, SHORT), verbose)
    cells = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert "[a]" in cells["load"]
    assert "2.5000 ± 0.0030 [a]" in cells["step/forward"]
    assert "[a]" not in cells["step"]
    assert f"[a] {SENSOR}" in text
    assert f"other {SPREAD}" in text


def test_the_energy_of_each_range_is_shown_in_80_columns():
    text = render([recording(("forward", 3, ONCE[2], ONCE[3]), ("backward", 3, STEPS[2], STEPS[3]))], width=80)
    assert "each (J)" in text


def test_one_kind_of_interval_is_reported_once_and_marks_nothing():
    for ranges, said in (([ONCE], ALONE), ([STEPS], SPREAD)):
        lines = shown(recording(*ranges)).splitlines()
        assert said in lines
        assert not any("[a]" in line for line in lines)


def test_a_sum_over_ranks_is_of_the_kind_that_theirs_are():
    long, short = [("rank 0/" + name, *rest) for name, *rest in (STEPS, SHORT)]
    summed = [("all ranks/" + name, *rest, e(5.0, 0.1, 40, "ranks")) for name, *rest, _ in (STEPS, SHORT)]
    text = shown(recording(long, short, *summed))
    marked = {line.split("  ")[0] for line in text.splitlines() if re.match(r"\S+ \d/.*\[a\]|all ranks/.*\[a\]", line)}
    assert marked == {"rank 0/step/forward", "all ranks/step/forward"}


def test_what_another_tool_stated_is_not_explained():
    assert "±:" not in shown(recording(STEPS, kind="import"))


def test_figures_without_an_interval_leave_nothing_to_explain():
    null = ("blink", 1, Estimate(1.0, 1.0, 1.0, 1, "clock"), Estimate.null("sensor_too_slow", "windows"))
    assert "±" not in shown(recording(null))


def test_the_page_says_the_same():
    run = recording(ONCE, STEPS)
    table = next(table for table in parts(run, Parts(run)) if table.id == "range")
    marked = {row[0] for row in table.rows if any("[a]" in cell for cell in row)}
    assert marked == {"load"}
    assert f"[a] {SENSOR}" in table.notes
    assert f"other {SPREAD}" in table.notes


def test_the_picture_of_a_recording_has_its_ranges_as_often_as_they_ran_within_what_its_devices_drew():
    run = recording(ONCE, STEPS, SHORT)
    devices = [{"id": id, "parent": 0, "level": "device", "name": "GPU"} for id in (8, 9)]
    drawn = [result(id, "energy_total_j", e(1700.0, 1.0)) for id in (8, 9)] + [result(9, "time_s", e(8.0, 0.0))]
    run.units = tables.from_rows([*run.units.to_pylist(), *devices], "units")
    run.results = tables.from_rows([*run.results.to_pylist(), *drawn], "results")
    nodes = {node.label: node for node in nodes_of(run)}
    assert "GPU" not in nodes
    assert nodes["step"].energy.value == 500 * 5.0
    assert nodes["step"].time.value == 500 * 0.013
    assert nodes["load"].energy.value == 100.0
    assert nodes["mine"].energy.value == 3400.0
    assert nodes["mine"].time.value == 8.0


def test_ranges_are_listed_with_what_all_took_and_each_in_every_format():
    run = recording(ONCE, STEPS)
    step = next(line.split() for line in shown(run).splitlines() if line.startswith("step"))
    assert step[1:3] == ["500", "6.500"]
    assert {"2.50", "5.00", "0.01300"} <= {*step}
    found = to_json_object(run)["parts"]["range"][1]
    assert (found["count"], found["time_s"]["value"], found["energy_j"]["value"]) == (500, 6.5, 2500.0)
    assert found["other"]["energy_each_j"]["value"] == 5.0
    assert ",500,6.5,6.5,6.5,2500.0,2400.0,2600.0,5.0," in render([run], "csv")
    assert [run.result(name, 2).value for name in ("energy_total_j", "energy_each_j")] == [2500.0, 5.0]
