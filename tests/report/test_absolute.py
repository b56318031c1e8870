"""``--absolute``: gain and offset of the sensor in the intervals of energies and powers, and in nothing else."""

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import jouletrace.bundled
from commands import command, done
from jouletrace.analysis import analyse
from jouletrace.formats.importers import read_files
from jouletrace.report import json_schema, render, to_json_object
from jouletrace.run import Estimate, save, tables
from jouletrace.run.metrics import ENERGY_CPU, GPUS_AND_HOST
from jouletrace.stats import expanded
from make_runs import e, profile_run, result
from places import REPOSITORY
from shipped import ABSENT

LAYERS = Path(jouletrace.bundled.__file__).parent / "deit-b-64-layers-h200.zip"
TWO_GPUS = REPOSITORY / "docs" / "results" / "runs" / "ddp-run-h200.zip"

LEVELS_W = np.repeat([100.0, 300.0, 100.0], [50, 100, 50])
"""Power that a GPU draws in each second."""

GAIN, OFFSET_W = 0.05, 3.0

SMI = pytest.mark.skipif("logs" in ABSENT, reason="logs of nvidia-smi aren't read without the wing")


def log(path, gain=0.0, offset_w=0.0, head="power.draw [W]", name="NVIDIA H100 80GB HBM3"):
    """A log as of nvidia-smi by a sensor that is off by a gain and an offset."""
    noise = np.random.default_rng(1).normal(0, 0.5, len(LEVELS_W))
    rows = [
        f"2026/01/01 00:{k // 60:02}:{k % 60:02}.000, 0, {name}, {watts:.2f} W"
        for k, watts in enumerate((1 + gain) * LEVELS_W + offset_w + noise)
    ]
    path.write_text("\n".join([f"timestamp, index, name, {head}", *rows]) + "\n")
    return path


def shown(path, *words):
    found = json.loads(done("show", str(path), "--json", *words).out)
    assert list(Draft202012Validator(json.loads(json_schema())).iter_errors(found)) == []
    return found


def half(figure):
    return (figure["high"] - figure["low"]) / 2


def figures(found, *keys):
    """All figures below some keys of an object, by path."""
    if isinstance(found, dict) and {"low", "high"} <= found.keys():
        yield keys, found
    elif isinstance(found, dict | list):
        for key, below in found.items() if isinstance(found, dict) else enumerate(found):
            yield from figures(below, *keys, key)


@SMI
@pytest.mark.parametrize("gain", [-0.045, -0.02, 0.02, 0.045])
def test_the_energy_of_a_gpu_whose_sensor_is_off_is_in_the_interval(tmp_path, gain):
    run = analyse(read_files([log(tmp_path / "smi.csv", gain)], None))
    truth_j = LEVELS_W[1:].sum()
    for absolute in (False, True):
        run.settings["absolute"] = absolute
        found = to_json_object(run)
        assert found["absolute"] == absolute
        stated = [
            found["headline"]["figure"],
            found["parts"]["whole"][0]["energy_j"],
            found["model"]["energy_j"]["total"],
        ]
        assert {figure["low"] <= truth_j <= figure["high"] for figure in stated} == {absolute}
        power = found["parts"]["whole"][1]["power_w"]
        assert (power["low"] <= truth_j / (len(LEVELS_W) - 1) <= power["high"]) == absolute


@SMI
@pytest.mark.thorough
def test_intervals_hold_the_energy_of_95_percent_of_sensors(tmp_path):
    """Gains and offsets are anywhere within their limits: of 40 sensors at least 34 hold (98 % of such tests would)."""
    rng, holds, truth_j = np.random.default_rng(3), 0, LEVELS_W[1:].sum()
    for gain, offset_w in rng.uniform(-1, 1, (40, 2)) * (GAIN, OFFSET_W):
        run = analyse(read_files([log(tmp_path / "smi.csv", gain, offset_w)], None))
        run.settings["absolute"] = True
        energy = to_json_object(run)["headline"]["figure"]
        holds += energy["low"] <= truth_j <= energy["high"]
    assert 34 <= holds < 40


def test_no_time_share_or_check_takes_them():
    without, absolute = shown(LAYERS), shown(LAYERS, "--absolute")
    assert (without["absolute"], absolute["absolute"]) == (False, True)
    assert without["trust"] == absolute["trust"]
    wide, beside = dict(figures(absolute)), dict(figures(without))
    assert wide.keys() == beside.keys()
    for path, figure in beside.items():
        of_sensor = path[-1].endswith(("_j", "_w")) or {"energy_j", "baseline_w"} & set(path) or path[0] == "headline"
        if figure["low"] is None or not of_sensor or path[0] in ("checks", "cost"):
            assert wide[path] == figure, path
        else:
            assert wide[path]["value"] == figure["value"]
            assert half(wide[path]) > max(half(figure), 0.9499 * GAIN * abs(figure["value"])), path


def test_rows_are_those_of_the_headline_by_the_method_of_budgets():
    for by in ([], ["--by", "phase,op"]):
        without, absolute = shown(LAYERS, *by), shown(LAYERS, "--absolute", *by)
        first = absolute["headline"]
        assert half(first["figure"]) == pytest.approx(without["headline"]["absolute"], rel=1e-6)
        assert first["absolute"] == without["headline"]["absolute"]
        (name,) = without["parts"].keys() - {"whole"} if by else ["code"]
        for narrow, wide in zip(without["parts"][name], absolute["parts"][name], strict=True):
            energy, power = narrow["energy_j"], narrow["power_w"]["value"]
            seconds = narrow["time_s"]["value"]
            if energy["low"] is not None and seconds:
                limits = [GAIN * abs(energy["value"]), OFFSET_W * seconds]
                assert half(wide["energy_j"]) == pytest.approx(expanded(half(energy), limits), rel=1e-3)
                assert power is None or half(wide["power_w"]) >= 0.9499 * GAIN * power
                assert {"gain of the sensor, ± 5 %", "offset of the sensor, ± 3 W"} <= wide["energy_j"]["budget"].keys()


def test_sensors_of_two_gpus_may_be_off_alike():
    whole, *gpus = shown(TWO_GPUS, "--absolute")["parts"]["whole"]
    relative = [half(row["energy_j"]) / row["energy_j"]["value"] for row in (whole, *gpus)]
    assert relative[0] >= min(relative[1:]) > 0.0475
    assert half(whole["power_w"]) > 0.0475 * whole["power_w"]["value"]


def test_the_table_says_what_its_intervals_hold():
    absolute, without = (done("show", str(LAYERS), "-v", *words).out for words in (["--absolute"], []))
    assert "± is of this run, with the sensor's gain, ± 5 %, and offset, ± 3 W" in absolute
    assert "4.54 ± 0.25 J per iteration: 71.0 ± 3.9 mJ per sample, 689 ± 38 W" in absolute
    assert "% absolute)" in without
    assert "% absolute)" not in absolute
    by = done("show", str(LAYERS), "--by", "op", "--absolute").out
    assert "± with the sensor's gain, ± 5 %, and offset, ± 3 W" in by
    both = done("show", str(LAYERS), str(TWO_GPUS), "--absolute").out
    assert "± with the sensor's gain, ± 5 %, and offset, ± 3 W" in both
    assert "22.4 ± 1.2" in both


def test_csv_has_the_ends_of_json_and_says_so():
    found = shown(LAYERS, "--absolute")["model"]
    rows = list(csv.DictReader(io.StringIO(done("show", str(LAYERS), "-f", "csv", "--absolute").out)))
    assert {row["absolute"] for row in rows} == {"true"}
    assert float(rows[0]["energy_total_j_low"]) == found["energy_j"]["total"]["low"]
    assert float(rows[0]["power_w_high"]) == found["power_w"]["high"]
    assert "absolute" not in done("show", str(LAYERS), "-f", "csv").out.splitlines()[0]
    by = done("show", str(LAYERS), "--by", "op", "-f", "csv", "--absolute").out.splitlines()
    assert by[0].endswith(",absolute")
    assert by[1].endswith(",true")


def test_cost_has_them_once():
    words = ("--price", "0.30EUR/kWh", "--carbon", "400g/kWh")
    without, absolute = shown(LAYERS, *words), shown(LAYERS, *words, "--absolute")
    assert without["cost"] == absolute["cost"]
    costs = [done("show", str(LAYERS), *words, "-f", "csv", *more).out.splitlines()[1] for more in ([], ["--absolute"])]
    header = done("show", str(LAYERS), *words, "-f", "csv").out.splitlines()[0].split(",")
    stated = [dict(zip(header, next(csv.reader([line])), strict=False))["cost_high"] for line in costs]
    assert stated[0] == stated[1]


@SMI
def test_an_import_states_them_in_its_headline_and_on_demand_in_all(tmp_path, capsys):
    path = log(tmp_path / "smi.csv")
    assert "± 5.3 % absolute)" in command(capsys, "import", str(path), "-o", str(tmp_path / "a")).out
    said = command(capsys, "import", str(path), "-o", str(tmp_path / "b"), "--absolute", "-v").out
    assert "39.9 ± 2.2 kJ in 199 s, 200 ± 11 W on average" in said
    assert "with the sensor's gain" in said
    assert "gain error ±5 % in the intervals" in " ".join(said.split())
    said = command(capsys, "import", str(path), "-o", str(tmp_path / "c"), "--absolute", "--json")
    assert json.loads(said.out)["report"]["absolute"]
    assert not shown(tmp_path / "c")["absolute"], "a Run keeps no way of printing"


def test_the_gain_of_a_meter_isnt_known(tmp_path):
    (tmp_path / "meter.csv").write_text("time_s,power_w\n" + "".join(f"{k},{w}\n" for k, w in enumerate(LEVELS_W)))
    run = analyse(read_files([tmp_path / "meter.csv"], None))
    without = to_json_object(run)
    run.settings["absolute"] = True
    assert to_json_object(run) == without
    assert "the sensor's gain is not known, and not in it" in " ".join(render([run]).split())


def test_the_offset_of_a_figure_is_over_its_own_time(tmp_path):
    run, time_s = profile_run(), Estimate(6.712e-3, 6.711e-3, 6.713e-3, 12, "windows")
    step = [result(0, "energy_per_step_j", e(2.0, 0.01)), result(0, "iteration_time_s", time_s)]
    run.results = tables.from_rows(run.results.to_pylist() + step, "results")
    save(run, tmp_path / "run")
    found = shown(tmp_path / "run", "--absolute")["model"]
    step_j, idle_w = found["other"]["energy_per_step_j"], found["baseline_w"]["context_idle"]
    assert half(step_j) == pytest.approx(expanded(0.01, [GAIN * 2.0, OFFSET_W * 2.0 / 693.1]))
    assert half(idle_w) == pytest.approx(expanded(0.8, [GAIN * 125.0, OFFSET_W]))
    above_j = found["energy_j"]["active_over_context_idle"]
    assert half(above_j) == pytest.approx(expanded(0.022, [GAIN * above_j["value"]]))


def test_two_sides_on_one_gpu_and_what_the_host_took_have_none_of_it(tmp_path):
    run = profile_run()
    host = [
        result(0, ENERGY_CPU, Estimate(2.0, 1.9, 2.1, 1, "rapl")),
        result(0, GPUS_AND_HOST, Estimate(6.652, 6.552, 6.752, 1, "sum")),
    ]
    run.results = tables.from_rows(run.results.to_pylist() + host, "results")
    save(run, tmp_path / "run")
    other = shown(tmp_path / "run", "--absolute")["model"]["other"]
    assert half(other[ENERGY_CPU]) == pytest.approx(0.1)
    total = shown(tmp_path / "run")["headline"]["figure"]["value"]
    offset_j = OFFSET_W * total / run.result("power_w").value
    assert half(other[GPUS_AND_HOST]) == pytest.approx(expanded(0.1, [GAIN * total, offset_j]), rel=1e-3)
    run.kind, run.settings["absolute"] = "ab", True
    assert not to_json_object(run)["absolute"]


@pytest.mark.thorough
def test_the_interval_of_a_sum_of_errors_is_that_of_its_draws():
    """Monte Carlo of the energy of a Run: readings normal, gain and offset anywhere within limits; 10⁶ draws."""
    without, absolute = (shown(LAYERS, *words)["headline"]["figure"] for words in ([], ["--absolute"]))
    run_s = shown(LAYERS)["parts"]["whole"][0]["time_s"]["value"]
    rng, n = np.random.default_rng(7), 10**6
    errors = half(without) / 1.959964 * rng.standard_normal(n) + OFFSET_W * run_s * rng.uniform(-1, 1, n)
    errors += GAIN * without["value"] * rng.uniform(-1, 1, n)
    assert np.mean(abs(errors) <= half(absolute)) == pytest.approx(0.95, abs=9e-4)
    assert half(absolute) < math.hypot(half(without), 1.959964 / math.sqrt(3) * GAIN * without["value"])
