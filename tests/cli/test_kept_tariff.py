"""A price and a carbon intensity stay with the Run: which of them counts, what is listed, and what is never changed."""

import csv
import io
import json
from pathlib import Path

import pytest

from commands import command, done
from jouletrace.run import load, save, tables
from make_runs import monitor_run, profile_run

BOTH = ("--price", "0.30EUR/kWh", "--carbon", "400g/kWh")


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A Run of a log that keeps both; "plain" is one of the same log that keeps none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "220")
    rows = [f"{n / 10},{100 + 200 * (n > 100) + n % 3}" for n in range(400)]
    Path("log.csv").write_text("\n".join(["time_s,power_w", *rows]))
    done("import", "log.csv", "-o", "plain")
    done("import", "log.csv", "-o", "kept", *BOTH)
    return "kept"


def words_of(*arguments):
    return " ".join(done("show", *arguments).out.replace("\u00a0", " ").split())


def cost_of(*arguments):
    return json.loads(done("show", *arguments, "--json").out).get("cost")


def table_of(*arguments):
    return list(csv.DictReader(io.StringIO(done("show", *arguments, "--format", "csv").out)))


def stating(name, price, currency):
    run = monitor_run()
    run.settings |= {"price_per_kwh": price, "currency": currency}
    save(run, name)
    return name


def test_every_output_states_the_cost_without_the_option(kept):
    settings, joules = load(kept).settings, load(kept).result("energy_total_j").value
    assert (settings["price_per_kwh"], settings["currency"], settings["carbon_g_per_kwh"]) == (0.3, "EUR", 400.0)
    cost = cost_of(kept)
    assert cost["cost"]["value"] == pytest.approx(joules / 3.6e6 * 0.3)
    assert (cost["currency"], cost["in_place_of"]) == ("EUR", None)
    row = table_of(kept)[0]
    assert [float(row[f"cost{end}"]) for end in ("_low", "", "_high")] == [
        cost["cost"][e] for e in ("low", "value", "high")
    ]
    assert float(row["co2e_g"]) == cost["co2e_g"]["value"]
    assert (row["per"], row["currency"], row["price_per_kwh"], row["carbon_g_per_kwh"]) == (
        "Run",
        "EUR",
        "0.3",
        "400.0",
    )
    done("report", kept, "-o", "page.html", "--no-open")
    for text in (done("show", kept).out, str(load(kept)), Path("page.html").read_text()):
        assert "0.3 EUR/kWh, 400 g/kWh" in " ".join(text.replace("\u00a0", " ").split())


def test_an_option_counts_before_the_run_and_the_environment_last(kept, monkeypatch):
    monkeypatch.setenv("JOULETRACE_PRICE", "2DKK/kWh")
    monkeypatch.setenv("JOULETRACE_CARBON", "50g")

    def tariff(*arguments):
        cost = cost_of(*arguments)
        return cost["price_per_kwh"], cost["currency"], cost["carbon_g_per_kwh"]

    assert tariff("plain") == (2.0, "DKK", 50.0)
    assert tariff("plain", "--carbon", "300g") == (2.0, "DKK", 300.0)
    assert tariff(kept) == (0.3, "EUR", 400.0)
    assert tariff(kept, "--price", "0.4USD") == (0.4, "USD", 400.0)
    done("import", "log.csv", "-o", "again")
    assert "price_per_kwh" not in load("again").settings, "what holds here isn't of the Run"


def test_another_price_is_named_and_leaves_the_run_as_it_is(kept):
    before = Path("kept/run.json").read_bytes()
    text = words_of(kept, "--price", "0.4USD")
    assert "at 0.4 USD/kWh, 400 g/kWh (given, not measured;" in text
    assert "the Run states 0.3 EUR/kWh)" in text
    assert "the Run states" not in words_of(kept, "--price", "0.3EUR")
    assert cost_of(kept, "--price", "0.4USD")["in_place_of"] == "0.3 EUR/kWh"
    assert "; Runs state 0.3 EUR/kWh)" in words_of(kept, "plain", "--price", "0.4USD")
    assert Path("kept/run.json").read_bytes() == before


def test_the_environment_refuses_nothing_but_what_it_states_wrongly(kept, capsys, monkeypatch):
    run = profile_run(kernels=4)
    save(run, "kernels")
    monkeypatch.setenv("JOULETRACE_PRICE", "0.3EUR")
    assert command(capsys, "show", "kernels", "--by", "kernel").code == 0
    assert "write a price" not in command(capsys, "show", "plain").err
    monkeypatch.setenv("JOULETRACE_PRICE", "cheap")
    for arguments in (("show", "plain"), ("monitor", "-d", "sim:h100", "--duration", "2")):
        said = command(capsys, *arguments)
        assert (said.code, said.complaint[:40]) == (2, "jouletrace: JOULETRACE_PRICE 'cheap': wr")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("place", "arguments"),
    [
        ("run", ("monitor", "--duration", "3")),
        ("run.zip", ("monitor", "--duration", "3")),
        ("run", ("profile", "resnet50", "--warmup", "0.2", "--max-time", "1")),
        ("run", ("run", "true")),
    ],
    ids=["monitor", "zip", "profile", "run"],
)
def test_what_is_recorded_keeps_it_and_is_whole(kept, place, arguments):
    name, *others = arguments
    done(name, "-d", "sim:h100", "-o", place, *BOTH, *others)
    done("verify", place)
    assert cost_of(place)["currency"] == "EUR"
    assert cost_of(place)["carbon_g_per_kwh"] == 400.0


@pytest.mark.thorough
def test_the_points_of_a_sweep_keep_it(kept):
    done(
        "sweep",
        "resnet50",
        "--batch",
        "1,8",
        "-d",
        "sim:h100",
        "--warmup",
        "0.2",
        "--max-time",
        "1",
        "-o",
        "grid",
        *BOTH,
    )
    done("verify", "grid")
    text = words_of("grid/points")
    assert "cost per million samples at 0.3 EUR/kWh, 400 g/kWh" in text
    assert [row["currency"] for row in table_of("grid/points") if row["level"] == "model"] == ["EUR", "EUR"]


def test_several_currencies_stand_apart(kept):
    dollars = stating("dollars", 0.25, "USD")
    text = done("show", kept, dollars, "plain").out
    head = next(line for line in text.splitlines() if line.startswith("file"))
    assert [word for word in ("time", "energy", "power", "cost (EUR)", "cost (USD)", "CO2e") if word not in head] == []
    assert "cost per Run at the tariff of each" in " ".join(text.split())
    rows = [line for line in text.splitlines() if line.startswith(("kept", "plain"))]
    assert len(rows) == 2, "a row each, of one device"
    whole = [row for row in table_of(kept, dollars, "plain") if row["level"] == "model"]
    assert [(row["file"], row["currency"]) for row in whole] == [("kept", "EUR"), ("dollars", "USD"), ("plain", "")]
    assert float(whole[1]["cost"]) == pytest.approx(float(whole[1]["energy_total_j"]) / 3.6e6 * 0.25)
    stated = ("time_s", *(f"{name}{end}" for name in ("energy_total_j", "power_w") for end in ("_low", "", "_high")))
    assert all(row[name] for row in whole for name in stated)
    objects = json.loads(done("show", kept, dollars, "plain", "--json").out)
    assert [one.get("cost", {}).get("currency") for one in objects] == ["EUR", "USD", None]
    done("report", kept, dollars, "plain", "-o", "page.html", "--no-open")
    together = Path("page.html").read_text().partition('class="together"')[2].partition("</section>")[0]
    for text in ("cost (EUR)", "cost (USD)", ">dollars<", "cost per Run at the tariff of each"):
        assert text in together


def test_the_cost_of_several_gpus_is_listed_once(kept):
    first, other = stating("first", 0.3, "EUR"), stating("other", 0.3, "EUR")
    text = done("show", first, other).out.replace("\u00a0", " ")
    rows = [line for line in text.splitlines() if line.startswith(("first", "other"))]
    assert ["0.00236 ±" in row for row in rows] == [True, False, False] * 2, "of each the whole, then two GPUs"


def test_profiles_beside_other_runs_say_of_what_their_costs_are(kept):
    save(profile_run(), "profile")
    text = " ".join(done("show", "profile", kept, *BOTH).out.split())
    assert "per million" in text
    assert "time and energy of a profile are those of an iteration" in text


def test_a_run_of_an_older_version_has_a_price_without_a_currency(kept):
    run = monitor_run()
    run.settings["price_per_kwh"] = 0.36
    cost = {"unit": 0, "metric": "cost", "value": 1.0, "low": 1.0, "high": 1.0, "n": 1, "method": "record"}
    run.results = tables.from_rows([*run.results.to_pylist(), cost], "results")
    save(run, "old")
    assert "at 0.36/kWh (given" in words_of("old")
    joules = load("old").result("energy_total_j").value
    assert float(table_of("old")[0]["cost"]) == pytest.approx(joules / 3.6e6 * 0.36)
    assert cost_of("old", "--price", "1EUR")["in_place_of"] == "0.36/kWh"


def test_a_hostile_currency_is_text_everywhere(kept, capsys):
    stating("hostile", 0.3, "<b>&")
    stating("formula", 0.3, "=A1\x1b")
    done("report", "hostile", kept, "-o", "page.html", "--no-open")
    assert "<b>&" not in Path("page.html").read_text()
    text = done("show", "formula", "hostile").out + done("show", "formula", "-f", "csv").out
    assert "\x1b" not in text
    assert ",=A1" not in text
    header = json.loads(Path("hostile/run.json").read_text())
    header["settings"]["currency"] = "more than four"
    Path("hostile/run.json").write_text(json.dumps(header))
    said = command(capsys, "show", "hostile")
    assert said.code == 2
    assert "currency" in said.complaint
