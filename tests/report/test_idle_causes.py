"""The time of a program in which no kernel runs, by its causes and by its GPUs: in the terminal, the page and JSON."""

import json

import pytest
from jsonschema import Draft202012Validator

from jouletrace import report
from jouletrace.report import json_schema, to_json_object
from jouletrace.report.html.tables import of_parts
from jouletrace.run import Estimate, Parts, Run, load, tables
from make_runs import e, result
from places import REPOSITORY
from shown import leaves, name_of, nodes_of, rows


def program(**idle_by: float) -> Run:
    """A program that took 100 J: 80 J in one kernel, 20 J while none ran."""
    units = [
        {"id": 1, "level": "model", "name": "train.py"},
        {"id": 2, "parent": 1, "level": "kernel", "name": "gemm", "count": 3},
        {"id": 3, "parent": 1, "level": "op", "name": "idle", "count": 1},
    ]
    rows = [result(1, "energy_total_j", e(100, 1)), result(1, "iteration_time_s", Estimate(1.0))]
    for unit, joules, seconds in ((2, 80, 0.4), (3, 20, 0.6)):
        rows += [result(unit, "energy_total_j", e(joules, 1)), result(unit, "share", e(joules / 100, 0.01))]
        rows += [result(unit, "time_s", Estimate(seconds)), result(unit, "power_w", e(joules / seconds, 1))]
    causes = {name.replace("_", " "): share for name, share in idle_by.items()}
    run = Run(kind="program", workload={"name": "train.py", "recordings": [{"idle_by": causes}]})
    run.units, run.results = tables.from_rows(units, "units"), tables.from_rows(rows, "results")
    return run


CAUSES = {"data_loading": 0.7, "host": 0.2, "between_launches": 0.1, "synchronisation": 0.0}


def test_large_causes_stand_below_the_time_without_a_kernel_and_all_of_them_with_v():
    text = report.render([program(**CAUSES)], width=100)
    assert "waiting for the data loader   " in text, "14 % of the whole"
    assert "between launches" not in text, "2 % of the whole"
    everything = report.render([program(**CAUSES)], width=100, verbose=True)
    kernels = everything[everything.index("Operators and kernels") :].splitlines()
    at = next(n for n, line in enumerate(kernels) if line.startswith("no kernel running"))
    names = [line[:30].strip() for line in kernels[at + 1 : at + 4]]
    assert names == ["waiting for the data loader", "waiting for the host", "between launches"]
    assert sum(line.startswith("no kernel running") for line in kernels) == 1


def test_causes_are_in_json_and_make_the_whole_of_idle():
    found = to_json_object(program(**CAUSES))
    Draft202012Validator(json.loads(json_schema())).validate(found)
    causes = {name_of(row): row for row in rows(found, "code", "cause")}
    assert set(causes) == {"waiting for the data loader", "waiting for the host", "between launches"}
    assert causes["waiting for the data loader"]["energy_j"]["value"] == pytest.approx(14)
    assert causes["waiting for the data loader"]["power_w"]["value"] == pytest.approx(20 / 0.6)
    assert sum(one["energy_j"]["value"] for one in causes.values()) == pytest.approx(20)
    assert sum(one["time_s"]["value"] for one in causes.values()) == pytest.approx(0.6)
    assert {name_of(row) for row in leaves(found, "code")} == {"gemm", *causes}, "each joule once"
    assert rows(to_json_object(program()), "code", "cause") == []


def test_the_page_has_causes_in_its_table_and_its_tree():
    run = program(**CAUSES)
    (table,) = (one for one in of_parts(run, Parts(run)) if one.id == "kernel")
    assert "no kernel running: waiting for the host" in [row[0].full for row in table.rows]
    assert {"waiting for the data loader", "between launches"} <= {node.label for node in nodes_of(run)}


def test_a_run_of_two_gpus_says_what_a_wait_is_of_and_that_no_kernel_ran():
    run = load(REPOSITORY / "docs" / "results" / "runs" / "ddp-run-h200.zip")
    text = " ".join(report.render([run], width=100).split())
    assert "rank-0 waits longest, 1.388 s in all, which takes 212.3 ± 7.7 J ±" in text, "not per collective"
    assert "rank-0 no kernel running" in text
    assert "idle" not in text
