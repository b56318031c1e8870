"""Cost and emissions: at factors that the user gives, with the interval of the energy, and none without them."""

import json
import re

import pytest
from jsonschema import Draft202012Validator

from jouletrace import report
from jouletrace.errors import BadInputError
from jouletrace.report import html, json_schema, tariff
from jouletrace.report.tariffs import Tariff
from jouletrace.run import STORED_SCATTER, Estimate, tables
from make_runs import cpu_run, monitor_run, profile_run

GIVEN = tariff("0.30EUR/kWh", "400g/kWh")


@pytest.mark.parametrize(
    ("price", "carbon", "found"),
    [
        ("0.30EUR", "400g", Tariff(0.3, "EUR", 400.0)),
        ("0.30 EUR/kWh", "0.4 kg/kWh", Tariff(0.3, "EUR", 400.0)),
        ("€0.30", "400 gCO2eq/kWh", Tariff(0.3, "€", 400.0)),
        ("12 ct/kWh", "0 g", Tariff(12.0, "ct", 0.0)),
        (None, "25g", Tariff(None, "", 25.0)),
    ],
)
def test_factors_are_read_as_people_write_them(price, carbon, found):
    assert tariff(price, carbon) == found
    assert tariff(None, None) is None


@pytest.mark.parametrize(
    ("price", "carbon"),
    [
        *[("cheap", None), ("-1", None), ("0.3 EUR/MWh", None), (None, "400 g/MJ"), ("9" * 400 + "EUR", None)],
        *[("0.30", None), ("0.30/kWh", None), (None, "400"), (None, "380kg"), (None, "380kg/kWh")],
    ],
)
def test_what_is_no_factor_is_refused_in_a_line(price, carbon):
    with pytest.raises(BadInputError, match=r"--price|--carbon"):
        tariff(price, carbon)


def test_an_interval_is_that_of_the_energy():
    energy = Estimate(3.6e6, 3.5e6, 3.7e6, 9, "windows")
    assert GIVEN.line(energy).replace("\u00a0", " ") == (
        "≈ 1.00 kWh, 0.300 ± 0.009 EUR, 400 ± 12 g CO2e at 0.3 EUR/kWh, 400 g/kWh (given, not measured)"
    )

    left_out = Estimate(3.6e6, 3.5e6, 3.7e6, 9, "record", flags=("covered_alone",))
    assert GIVEN.line(left_out).endswith("(given, not measured; without the record's holes)")


def test_money_holds_the_gain_of_the_sensor_and_three_digits():
    """An absolute figure: ± 0.05 % of a sensor that may be 5 % off would be a promise that none can keep."""
    energy = Estimate(14.588e6, 13.858e6, 15.318e6, 9, "windows")
    assert GIVEN.line(energy).replace("\u00a0", " ").startswith("≈ 4.05 kWh, 1.22 ± 0.07 EUR, 1.62 ± 0.09 kg")
    small = GIVEN.line(energy.scaled(1e-7)).replace("\u00a0", " ")
    assert "≈ 0.000405 Wh, 0.000000122 ± 0.000000007 EUR" in small
    run = profile_run()
    run.channels[0].gain_pct = 5.0
    cost = json.loads(report.render([run], "json", tariff=GIVEN))["cost"]["cost"]
    stated = json.loads(report.render([run], "json"))["headline"]
    assert (cost["high"] - cost["low"]) / 2 / cost["value"] == pytest.approx(
        stated["absolute"] / stated["figure"]["value"]
    )
    assert stated["absolute"] >= 0.95 * 0.05 * stated["figure"]["value"]


def test_a_run_is_priced_in_every_format_and_only_if_asked():
    run = profile_run()
    assert "per million iterations at 0.3 EUR/kWh, 400 g/kWh" in " ".join(report.render([run], tariff=GIVEN).split())
    assert "per million" in report.render([run], "markdown", tariff=GIVEN)
    assert "EUR" in html.page.render([run], tariff=GIVEN)
    found = json.loads(report.render([run], "json", tariff=GIVEN))
    Draft202012Validator(json.loads(json_schema())).validate(found)
    joules = run.result("energy_total_j").value
    assert found["cost"]["cost"].keys() == found["model"]["energy_j"]["total"].keys()
    assert found["cost"]["cost"]["value"] == pytest.approx(joules * 1e6 / 3.6e6 * 0.3)
    assert "cost" not in json.loads(report.render([run], "json"))
    assert "CO2" not in report.render([run])


def test_a_cost_is_of_what_its_energy_is_of():
    run = profile_run()
    run.results = tables.from_rows([{**row, "flags": STORED_SCATTER} for row in run.results.to_pylist()], "results")
    found = json.loads(report.render([run], "json", tariff=GIVEN))
    assert found["cost"]["cost"]["of"] == found["model"]["energy_j"]["total"]["of"] == "workload"


def test_what_was_watched_is_priced_as_a_whole():
    text = report.render([monitor_run()], tariff=GIVEN)
    assert "≈" in text
    assert "per million" not in text


def test_without_an_energy_there_is_no_cost():
    assert "≈" not in report.render([cpu_run()], tariff=GIVEN)
    found = json.loads(report.render([cpu_run()], "json", tariff=GIVEN))["cost"]
    assert found["cost"]["reason"] is not None


def test_several_runs_have_a_cost_each_in_columns():
    runs = [profile_run(name="one"), profile_run(name="two")]
    text = report.render(runs, tariff=GIVEN, width=160)
    assert re.search(r"^workload .* cost \(EUR\) +CO2e \(g\)$", text, re.M)
    line = report.render(runs[:1], tariff=GIVEN, width=200)
    energy = re.search(r"≈ .* (\S+) ± \S+ EUR, (\S+) ± \S+ g CO2e", line.replace("\u00a0", " "))
    for name in ("one", "two"):
        row = re.search(rf"^{name} .* (\S+) ± \S+ +(\S+) ± \S+$", text, re.M)
        assert [float(one) for one in row.groups()] == pytest.approx([float(one) for one in energy.groups()], rel=0.01)
    assert text.count("(given, not measured; ± with the sensor's gain)") == 1
