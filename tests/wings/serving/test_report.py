"""Prints of a server under load: the verdict, a line a load, the frontier, JSON, CSV, HTML."""

import json

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from jouletrace import report
from jouletrace.analysis import analyse
from jouletrace.report import html, json_schema, tariff
from jouletrace.report.document import Footnotes
from jouletrace.run import Parts, load, save
from jouletrace.wings.serving.report import section
from pages import Page
from places import REPOSITORY
from serving_runs import Truth, level_of, serving_run
from shown import headline_of, name_of, rows, verdict_of

RATES = (1, 3, 6)


def loaded(slots=10**9, slo_s=None, rates=RATES):
    rng = np.random.default_rng(2)
    levels = [level_of(Truth(), rate, 60, (50, 500), (20, 100), rng, slots) for rate in rates]
    names = {k: f"{rate}/s" for k, rate in enumerate(rates)}
    run, _ = serving_run(Truth(), levels, rates=rates, names=names, slo_s=slo_s)
    return analyse(run)


@pytest.fixture(scope="module")
def run():
    return loaded(slo_s={"ttft": 1.0, "tpot": 0.05})


def test_the_cheapest_load_within_the_slo_is_named_first(run):
    lines = verdict_of(run)
    assert lines[0].startswith("at 6/s: ")
    assert "J per request" in lines[0]
    assert "J per output token" in lines[0]
    assert lines[1] == "costs least within the SLO (ttft<1 s, tpot<0.05 s): --rate 6"
    assert headline_of(run) in lines[2:4]


def test_a_load_that_is_not_valid_is_never_the_best():
    run = loaded(slots=3)
    lines = verdict_of(run)
    assert lines[0] == "NOT VALID at 3/s, 6/s: no energy per request or token is stated there"
    assert lines[1].startswith("at 1/s: "), "the price that is stated is that of the valid load"


def test_what_a_load_costs_that_is_not_valid_is_null_with_its_reason():
    run = loaded(slots=1, rates=(4, 8))
    lines = verdict_of(run)
    assert lines[0].startswith("NOT VALID at 4/s, 8/s")
    assert headline_of(run) in lines[1:3]
    assert " J per " not in report.render([run], width=80).replace("\u00a0", " ")
    for one in rows(json.loads(report.render([run], "json")), "request"):
        assert one["other"]["energy_per_request_j"]["reason"] == "load_not_valid"
        assert one["other"]["power_w"]["value"] > 0 if "power_w" in one["other"] else one["power_w"]["value"] > 0


def test_an_slo_that_no_load_meets_is_reported():
    run = loaded(slo_s={"e2e": 0.1})
    lines = verdict_of(run)
    assert lines[0] == "no valid load meets the SLO (e2e<0.1 s for 95% of the requests)"
    assert lines[1].startswith("at 6/s: "), "the cheapest of the valid loads, not the first"
    assert lines[2] == "costs least of the valid loads: --rate 6"


def test_a_price_is_of_a_named_load_or_says_that_there_is_none():
    given = tariff("0.30EUR/kWh", None)
    missed = loaded(slo_s={"e2e": 0.1})
    assert any("per million output tokens at 6/s at 0.3 EUR/kWh" in line for line in verdict_of(missed, given))
    invalid = loaded(slots=1, rates=(4, 8))
    assert "no cost per million output tokens: no load states it" in verdict_of(invalid, given)


def test_a_load_that_is_not_valid_has_no_bills_and_no_parts():
    run = loaded(slots=1, rates=(4, 8))
    results = Parts(run)
    for unit in results.units("load"):
        for name in ("bill_p50_j", "closure_bills", "energy_common_j"):
            assert (results[unit.id].get(name).value, results[unit.id].get(name).reason) == (
                None,
                "load_not_valid",
            )
        assert results[unit.id].get("energy_total_j").value is not None, "that of the GPU is measured"
    assert run.requests["energy_j"].null_count == len(run.requests)


def test_bills_of_requests_have_a_unit_of_their_own_beside_energies_of_windows():
    served = load(REPOSITORY / "docs" / "results" / "runs" / "serving-short-h200.zip")
    headings = [
        column.name.replace("\u00a0", " ") for column in section(served, Parts(served), Footnotes()).shown().columns
    ]
    assert {"energy (kJ)", "decode (kJ)", "bill, median (J)", "bill, p99 (J)"} <= set(headings)


def test_another_rate_than_offered_is_stated(run):
    assert not any("no queue grew" in line for line in verdict_of(run))
    scattered = loaded()
    scattered.workload["serving"]["levels"][0]["rate_per_s"] = 2.0
    (line,) = [line for line in verdict_of(scattered) if line.startswith("answered, though no queue grew: ")]
    assert line.endswith("/s at 1/s")


def test_the_table_fits_eighty_columns_with_a_line_a_load(run):
    lines = report.render([run], width=80, verbose=True).splitlines()
    assert max(map(len, lines)) <= 80
    place = next(n for n, line in enumerate(lines) if line.startswith("Loads, in their steady state"))
    assert [line.split()[0] for line in lines[place:] if line.startswith(("1/s", "3/s", "6/s"))] == [
        "1/s",
        "3/s",
        "6/s",
    ]
    assert next(n for n, line in enumerate(lines) if line.startswith("at 6/s")) < place
    assert report.render([run], width=200, verbose=True).count("±") > 6


@pytest.mark.parametrize("verbose", [False, True])
def test_the_power_of_a_load_stands_in_the_short_and_the_long_table(verbose):
    run = load(REPOSITORY / "docs" / "results" / "runs" / "serving-rates-a-h200.zip")
    assert "power (W)" in report.render([run], width=160, verbose=verbose)


@pytest.mark.parametrize("form", ["csv", "markdown", "latex"])
def test_every_format_has_every_load(run, form):
    text = report.render([run], form, verbose=True)
    assert all(name in text for name in ("1/s", "3/s", "6/s"))


def test_json_has_the_loads_and_validates(run):
    found = json.loads(report.render([run], "json"))
    Draft202012Validator(json.loads(json_schema())).validate(found)
    assert [name_of(row) for row in rows(found, "request")] == ["1/s", "3/s", "6/s"]
    joules = rows(found, "request")[2]["other"]["energy_per_output_token_j"]
    assert joules["low"] < joules["value"] < joules["high"]
    assert found["workload"]["serving"]["levels"][1]["rate_per_s"] == 3.0


def test_a_saved_run_is_shown_the_same(run, tmp_path):
    save(run, tmp_path / "run.zip")
    again = load(tmp_path / "run.zip")
    assert again.requests.equals(run.requests)
    assert report.render([again], verbose=True) == report.render([run], verbose=True)
    assert report.render([analyse(again)], verbose=True) == report.render([run], verbose=True)


def plots(run):
    """The plots of a Run's page by name."""
    return Page(html.render([run])).data()["plots"]


def test_the_frontier_has_a_point_a_load_in_order_of_latency(run):
    spec = plots(run)["frontier"]
    (trace,) = spec["data"]
    assert sorted(trace["text"]) == ["1/s", "3/s", "6/s"]
    assert trace["x"] == sorted(trace["x"])
    assert "output token" in spec["layout"]["yaxis"]["title"]["text"]
    assert "frontier" not in plots(loaded(rates=(2,)))


def test_the_page_draws_the_frontier_and_lists_the_loads(run, tmp_path):
    page = html.write([run], tmp_path / "page.html").read_text()
    assert 'data-plots="frontier"' in page
    assert "Loads, in their steady state" in page
