"""The verdict: what was measured stands alone, fits 80 columns, and one table follows."""

import json
import re
from dataclasses import replace

import pytest
from jsonschema import Draft202012Validator

from commands import done
from compare_runs import side
from jouletrace import compare, report
from jouletrace.report import comparison, json_schema, to_json_object
from jouletrace.run import MODEL_UNIT, STORED_SCATTER, Estimate, Run, load, tables
from make_runs import cpu_run, monitor_run, profile_run, simulated_run
from places import REPOSITORY
from thinned import thinned

RECORDED = [
    *(REPOSITORY / "src" / "jouletrace" / "bundled").glob("*.zip"),
    *(REPOSITORY / "docs" / "results" / "runs").glob("*.zip"),
]


RUNS = REPOSITORY / "docs" / "results" / "runs"


def short(run, **how):
    return report.render([run], width=80, **how).replace("\u00a0", " ")


def with_items(items):
    run = profile_run()
    run.workload["items"] = items
    return run


def test_a_profile_states_energy_power_and_time_in_one_line():
    line = " ".join(short(with_items(64)).split("\n\n")[1].split())
    said = "4.652 ± 0.021 J per iteration (± 4.8 % absolute): 72.69 ± 0.33 mJ per sample, "
    assert line.startswith(said)
    assert "per sample" not in short(with_items(1)), "an iteration is a sample"


def test_power_and_time_have_their_intervals():
    run = profile_run()
    rough = {"power_w": Estimate(693.0, 620.0, 766.0, 9, "windows")}
    rows = [
        {**row, **rough[row["metric"]].to_dict()} if row["metric"] in rough else row for row in run.results.to_pylist()
    ]
    run.results = tables.from_rows(rows, "results")
    text = short(run).replace("\u00a0", " ")
    assert "per iteration (± 4.8 % absolute): 693 ± 73 W, 6.7120 ± 0.0041 ms" in " ".join(text.split())


def test_tokens_stand_in_the_place_of_samples():
    run = with_items(4)
    rows = run.results.to_pylist()
    token = Estimate(0.5, 0.49, 0.51, 9, "windows").to_dict()
    rows.append({**dict.fromkeys(rows[0]), "unit": MODEL_UNIT, "metric": "energy_per_token_j", **token})
    run.results = tables.from_rows(rows, "results")
    assert "500 ± 10 mJ per new token" in short(run)
    assert "per sample" not in short(run)


def test_the_rest_is_context_idle():
    assert re.search(r"\d+ % of it active, \d+ % is context idle \([\d.]+ ± [\d.]+ W\)", short(profile_run()))


@pytest.mark.parametrize(
    ("capped", "said"),
    [(8, "at the power cap (700 W) 80 % of the time"), (10, "at the power cap (700 W) all the time"), (0, "")],
)
def test_a_profile_of_one_gpu_says_for_how_long_its_power_cap_acts(capped, said):
    run = profile_run()
    run.devices = [replace(run.devices[0], power_limit_w=700.0)]
    bits = [{"device": run.devices[0].id, "channel": "throttle_bits", "value": 4.0 * (k < capped)} for k in range(10)]
    run.spans = tables.empty("spans")
    run.samples = tables.from_rows([{**row, "time_ns": k + 1} for k, row in enumerate(bits)], "samples")
    found = " ".join(short(run).split())
    assert said in found
    assert ("at the power cap" in found) == bool(said)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("minilm-1-eager-h200", True),  # 97 % idle power, no kernel for 93 % of the time
        ("minilm-256-eager-h100", False),  # no kernel for 27 % of the time
        ("minilm-256-compile-h100", False),
        ("llama-generate-h200", False),  # 68 % idle power, and nothing says what the GPU waited for
    ],
)
def test_a_profile_that_waits_for_the_host_says_what_to_try(name, said):
    run = load(REPOSITORY / "docs" / "results" / "runs" / f"{name}.zip")
    text = " ".join(short(run).split())
    assert ("the GPU waits for the host: try --mode graph, or a larger --batch" in text) == said
    assert ("338.95 ± 0.48 mJ at stake (90 %), the GPU waits" in text) == said
    run.settings["mode"] = "graph"
    assert "waits for the host" not in short(run)


@pytest.mark.thorough
def test_advice_stands_below_the_verdict_in_json_and_of_side_b_and_can_be_turned_off():
    eager, compiled = (str(RUNS / f"minilm-256-{mode}-h100.zip") for mode in ("eager", "compile"))
    said = "1.790 ± 0.064 J at stake (46 %), attention runs as products and softmax: try scaled_dot_product_attention"
    for command, whose in (("show", compiled), ""), (("compare", eager, compiled), "B: "):
        text = " ".join(done(*command).out.split()).replace("\u00a0", " ")
        assert text.index(f"{whose}{said}") > text.index("trust: ")
        assert "at stake" not in done(*command, "--advice", "none").out
        found = json.loads(done(*command, "--json").out)["advice"]
        assert [(one["code"], round(one["energy_j"]["value"], 3)) for one in found] == [("math_attention", 1.79)]
        assert json.loads(done(*command, "--json", "--advice", "none").out)["advice"] == []
    assert "at stake" not in done("compare", compiled, eager).out, "B is the eager one"
    assert "advice" not in json.loads(done("show", compiled, "--json", "--schema", "2").out)
    Draft202012Validator(json.loads(json_schema())).validate(to_json_object(load(compiled)))
    with pytest.raises(AssertionError, match="--advice all: brief or none"):
        done("show", compiled, "--advice", "all")


@pytest.mark.thorough
@pytest.mark.parametrize("place", thinned(RECORDED, 2), ids=lambda place: place.stem)
def test_time_without_a_kernel_is_not_called_idle(place):
    """Idle is the power of a GPU that does nothing; both stood beside each other."""
    run = load(place)
    detail = report.default_detail(run)
    for text in (report.render([run], width=80, detail=detail), report.render([run], width=120, verbose=True)):
        assert not re.search(r"^\s*idle\b|, idle \d", text, re.M)
    if "idle" in run.units["name"].to_pylist():
        assert "no kernel running" in report.render([run], width=120, detail=detail, verbose=True)
        assert re.search(r'"name": "(rank-\d+: )?idle"', report.render([run], "json")), "files keep the name"


def test_a_line_states_what_the_interval_leaves_out():
    gain = "± is of this run; absolute: with the sensor's gain and offset (show --budget)"
    for run in (profile_run(), monitor_run(), simulated_run()):
        assert gain in " ".join(short(run).split())
        assert re.search(r"\(± [\d.]+ % absolute\)", short(run))
    assert "sensor's gain" not in short(cpu_run()), "it has no energy"
    same = comparison.render(compare(side(0.99, 1.0, 1.01), side(0.79, 0.8, 0.81)))
    assert "sensor's gain" not in same, "it cancels on one GPU"


def flagged(run, *metrics, unit=MODEL_UNIT):
    """The Run, whose figures hold a stored scatter between runs."""
    rows = run.results.to_pylist()
    for row in rows:
        if row["unit"] == unit and row["metric"] in metrics:
            row["flags"] = ",".join(filter(None, [row["flags"], STORED_SCATTER]))
    run.results = tables.from_rows(rows, "results")
    return run


WHOLE = ("energy_total_j", "energy_active_over_context_idle_j", "energy_active_over_deep_idle_j")


def test_the_line_says_what_the_interval_is_of():
    rest = "absolute: with the sensor's gain and offset (show --budget)"
    alone = flagged(profile_run(), *WHOLE)
    assert f"± is of this workload on this GPU; {rest}" in " ".join(short(alone).split())
    repeated = profile_run()
    repeated.settings["repeats"] = 3
    assert f"± is of this workload on this GPU; {rest}" in " ".join(short(repeated).split())
    parts = flagged(profile_run(kernels=3), *WHOLE)
    said = f"± is of this workload on this GPU, that of parts of this run; {rest}"
    assert said in " ".join(short(parts).split())


def test_the_line_and_the_object_state_the_same_measurand():
    for run in (profile_run(), flagged(profile_run(), *WHOLE)):
        of = report.contract.to_json_object(run)["model"]["energy_j"]["total"]["of"]
        assert ("this workload" in short(run)) is (of == "workload")


def test_without_power_the_time_is_stated_and_why_there_is_no_energy():
    text = short(cpu_run())
    assert "per iteration; energy unknown: " in text
    assert "trust: with care" in text
    assert "jouletrace doctor" in text


def test_a_simulated_run_says_so_in_its_first_line():
    assert short(simulated_run()).startswith("SIMULATED: ")


def test_devices_that_were_watched_are_added_up():
    assert re.search(
        r"^[\d.]+ (± [\d.]+ )?k?J \(± [\d.]+ % absolute\) in [\d.]+ k?s, [\d.]+ ± [\d.]+ W on average",
        short(monitor_run()),
        re.M,
    )


def test_power_together_is_that_of_each_device_over_its_own_time():
    run = monitor_run()
    rows = run.table("results").to_pylist()
    for row in rows:
        if row["unit"] == 2 and row["metric"] in ("energy_total_j", "time_s"):
            row.update({name: row[name] / 2 for name in ("value", "low", "high") if row[name] is not None})
    powers = sum(row["value"] for row in rows if row["metric"] == "power_w" and row["value"])
    text = " ".join(short(replace(run, results=tables.from_rows(rows, "results"))).split())
    assert f"in 60 s, {powers:.2f} ± 0.98 W on average, 2 devices together" in text


def test_a_verdict_has_one_table_and_no_footnotes_but_that_of_shared_powers():
    run = profile_run(kernels=30)
    text = short(run, detail="kernel")
    assert re.findall(r"^\[[a-z]\] one power was|^\[[a-z]\]", text, re.M) == ["[a] one power was"]
    assert text.count("──")
    assert len(re.findall(r"^─+$", text, re.M)) == 1
    assert re.search(r"^\d+ mor", text, re.M), "the rest is counted"


@pytest.mark.thorough
@pytest.mark.parametrize("place", thinned(RECORDED, 2), ids=lambda place: place.stem)
def test_recorded_runs_fit_a_terminal(place):
    run = load(place)
    text = report.render([run], width=80, detail=report.default_detail(run))
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("trust: ") + text.count("no figure") == 1
    assert len(text.splitlines()) <= 45


def test_printing_a_run_in_python_prints_the_same():
    run = profile_run()
    assert str(run) == report.render([run]).rstrip("\n")
    assert repr(run).startswith("Run(profile ")
    assert "nothing" not in str(Run())
    assert str(Run())


def test_everything_is_printed_on_request():
    run = profile_run()
    text = report.render([run], width=120, verbose=True)
    for words in ("Latency, median", "Sensor", "order statistics", "trust: yes", "Passed"):
        assert words in text


def test_colours_and_bars_are_for_terminals(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    run = profile_run(kernels=4)
    assert "\x1b" not in short(run, detail="kernel")
    assert "\x1b" in short(run, detail="kernel", colour=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in short(run, detail="kernel", colour=True)


def test_a_comparison_says_how_b_differs_and_whether_that_is_better():
    found = compare(side(0.99, 1.0, 1.01), side(0.79, 0.8, 0.81))
    text = comparison.render(found).replace("\u00a0", " ")
    assert re.search(
        r"^B takes (20\.\d|19\.\d+|20) (± [\d.]+ |\(.*\))?% less energy per iteration: better$", text, re.M
    )
    assert "trust: " in text
    assert "Method" not in text
    assert "Method" in comparison.render(found, verbose=True)


def test_several_times_as_much_is_no_percentage():
    text = comparison.render(compare(side(0.99, 1.0, 1.01), side(3.99, 4.0, 4.01))).replace("\u00a0", " ")
    assert re.search(r"^B takes 4(\.\d+)? (± [\d.]+ |\(.*\) )?times the energy per iteration of A: worse$", text, re.M)


def test_an_open_verdict_says_what_to_do():
    text = " ".join(comparison.render(compare(side(1.0)[:1], side(1.001)[:1])).replace("\u00a0", " ").split())
    said = "energy per iteration: inconclusive, equal in these runs; 2"
    assert said in text
    assert "trust: with care" in text
    assert "profile both with --repeats 3, or use jouletrace ab" in text


def test_programs_are_compared_in_all_and_repeated_by_hand():
    """They iterate nothing, and ``jouletrace run`` has no --repeats."""
    sides = [side(1.0)[:1], side(1.001)[:1]]
    for ((run, _),) in sides:
        run.kind = "program"
    text = " ".join(comparison.render(compare(*sides)).replace("\u00a0", " ").split())
    assert "energy in all: inconclusive, equal in these runs" in text
    assert "give more runs a side: jouletrace compare A1,A2,A3 B1,B2,B3" in text
    for wrong in ("energy per iteration", "back to back", "--repeats"):
        assert wrong not in text


RUNS = REPOSITORY / "docs" / "results" / "runs"


def test_a_skewed_interval_that_excludes_zero_is_never_stated_as_one_that_holds_it():
    runs = (RUNS / f"minilm-256-{mode}-h100.zip" for mode in ("eager", "compile"))
    text = done("compare", *map(str, runs)).out
    assert "± 32" not in text
    assert re.search(r"B takes 2\d(\.\d)? % \(0\.\d+ % to 6\d(\.\d)? %\)\s+more\s+time", text)


def test_print_of_a_comparison_of_two_sides_begins_with_it():
    run = load(RUNS / "fp32-fp16-h100.zip")
    assert str(run).splitlines()[0].startswith("A: deit-base")
    assert "less energy per iteration: better" in str(run)


def test_the_budget_is_named_where_there_is_one_to_show():
    run = monitor_run()
    assert "show --budget" in " ".join(short(run).split())
    run.results = tables.from_rows([{**row, "method": "counter"} for row in run.results.to_pylist()], "results")
    said = " ".join(short(run).split())
    assert "gain and offset" in said
    assert "--budget" not in said


@pytest.mark.thorough
def test_the_time_of_a_program_is_that_of_its_verdict():
    run = load(REPOSITORY / "docs/results/runs/resnet50-run-h200.zip")
    assert f"in {run.result('time_s').value:.2f} s" in " ".join(short(run).split())
