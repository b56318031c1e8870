"""Work of the core on Runs of loads on servers: analysis, budgets, prints, imports, options."""

import json
import math
import re
from copy import deepcopy
from dataclasses import fields

import numpy as np
import pyarrow as pa
import pytest

import jouletrace as jt
from commands import command
from jouletrace import report
from jouletrace.analysis import OFFSET_W, analyse, budgets
from jouletrace.analysis.analyse import analysed
from jouletrace.report import to_json_object
from jouletrace.run import Run, load, tables
from jouletrace.stats import Z95, expanded
from places import REPOSITORY
from serving_runs import Truth, level_of, serving_run, vllm_object
from walk import FORMS, entered

RUNS = REPOSITORY / "docs" / "results" / "runs"


def test_figures_come_with_their_warnings_and_leave_the_run_as_it_was():
    run = load(RUNS / "serving-short-h200.zip")
    whole = {one.name: getattr(run, one.name) for one in fields(Run) if one.init}
    facts = deepcopy({name: value for name, value in whole.items() if name not in tables.TABLES})
    found = analysed(run)
    assert {name: getattr(run, name) for name in facts} == facts
    assert all(getattr(run, name) is whole[name] for name in tables.TABLES)
    assert found.warnings is not run.warnings
    assert len(found.results)
    assert found.results is not run.results


def test_a_valid_load_has_a_budget_and_no_other():
    run = load(REPOSITORY / "docs" / "results" / "runs" / "serving-rates-a-h200.zip")
    status = ["error" if row["level"] == 0 and row["id"] == 5 else "ok" for row in run.requests.to_pylist()]
    run.requests = tables.changed(run.requests, "status", pa.array(status, run.requests.schema.field("status").type))
    found = budgets(analyse(run))
    assert [one.name for one in found] == ["4/s", "8/s", "16/s"]
    for one in found:
        stated = math.sqrt(sum(term.u**2 for term in one.terms if term.stated))
        assert stated == pytest.approx(one.figure.half_width / Z95)
        (offset,) = (term.u for term in one.terms if term.source.startswith("offset"))
        assert offset == pytest.approx(OFFSET_W * run.result("time_s", one.unit).value / math.sqrt(3))
    first = to_json_object(analyse(run))["headline"]
    share = found[-1].figure.value / first["figure"]["value"]
    limits = [math.sqrt(3) * term.u / share for term in found[-1].terms if not term.stated]
    half = (first["figure"]["high"] - first["figure"]["low"]) / 2
    assert first["absolute"] == pytest.approx(expanded(half, limits), rel=1e-3)
    assert "(show --budget)" in report.render([run], width=120)


def test_figures_are_what_they_were():
    """As ``analysis/test_as_before.py`` compares those of other Runs."""
    before = json.loads((REPOSITORY / "tests" / "data" / "as_before.json").read_text())["serving-short-h200"]
    rows = analyse(load(RUNS / "serving-short-h200.zip")).results.to_pylist()
    found = {f"{row['unit']} {row['metric']}": [row["value"], row["low"], row["high"]] for row in rows}
    assert set(before) <= {*found, "windows energy_j", "windows sd_statistical_j", "windows sd_model_j"}
    for key, now in found.items():
        np.testing.assert_allclose(np.array(now, float), np.array(before[key], float), 1e-4, err_msg=key)


@pytest.mark.thorough
@pytest.mark.parametrize("name", FORMS)
def test_a_print_enters_few_packages_of_the_core(name):
    """As ``report/test_walk.py`` counts them, without the wing itself."""
    FORMS[name](jt.load(RUNS / "serving-rates-a-h200.zip"))  # modules are imported
    run = jt.load(RUNS / "serving-rates-a-h200.zip")
    stays, tour = entered(lambda: FORMS[name](run), passed="wings")
    assert stays <= 7
    assert tour <= 33


def test_an_import_leads_with_requests_and_latencies(workspace, capsys):
    served, _ = serving_run(Truth(), [level_of(Truth(), 4, 60, (50, 500), (20, 100), np.random.default_rng(0))])
    (workspace / "load.json").write_text(json.dumps(vllm_object(served.requests.to_pylist())))
    words = " ".join(command(capsys, "import", "load.json").out.split())
    assert re.search(r"[\d.]+ requests/s; first token p50 .* p95 .*; end to end p50", words)
    assert "energy unknown" not in words


@pytest.mark.parametrize("option", ["--rate ٣", "--rate 1 --input-tokens ٣"])
def test_numbers_are_written_in_ascii_digits(capsys, workspace, option):
    said = command(capsys, "bench", "http://127.0.0.1:9", *option.split())
    assert said.code == 2
    assert "jouletrace: " in said.err.splitlines()[-1]
    assert not (workspace / "runs").exists()
