"""``show --by``: energy divided by any steps of the paths of kernels."""

import csv
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import jouletrace.bundled
from commands import command
from jouletrace.analysis import analyse
from jouletrace.report import json_schema
from jouletrace.run import load, save, tables
from make_runs import profile_run
from places import REPOSITORY

LAYERS = Path(jouletrace.bundled.__file__).parent / "deit-b-64-layers-h200.zip"
TWO_GPUS = REPOSITORY / "tests" / "data" / "fsdp-two-h200.zip"
PROGRAMS = REPOSITORY / "tests" / "frozen" / "programs"
JAX = PROGRAMS / "jax_train.zip"
TRAINING = PROGRAMS / "unet_train.zip"

pytestmark = pytest.mark.thorough


@pytest.fixture
def by(capsys):
    def divided(kinds, path=LAYERS, *more):
        said = command(capsys, "show", str(path), "--by", kinds, "--json", *more)
        assert said.code == 0, said.err
        found = json.loads(said.out)
        assert list(Draft202012Validator(json.loads(json_schema())).iter_errors(found)) == []
        assert found["trust"]["level"] in ("yes", "with care")
        return found["parts"][kinds.replace("layer", "module")]

    return divided


def named(rows):
    return {tuple(step["name"] for step in row["path"]): row["energy_j"] for row in rows}


def half(energy):
    return (energy["high"] - energy["low"]) / 2


def together(rows):
    return sum(row["energy_j"]["value"] for row in rows)


@pytest.mark.parametrize("path", [LAYERS, TWO_GPUS], ids=["profile", "two GPUs"])
def test_a_run_that_stores_its_division_says_what_it_says_solved_again(by, monkeypatch, tmp_path, path):
    """Older versions store none; nothing is solved where one is."""
    run = load(path)
    for name in tables.SOLVED:
        setattr(run, name, tables.empty(name))
    save(run, tmp_path / "older.zip")
    before = {kinds: by(kinds, tmp_path / "older.zip") for kinds in ("device,phase", "layer,op,shapes,kernel")}
    save(analyse(run), tmp_path / "run.zip")
    monkeypatch.setitem(sys.modules, "scipy.linalg", None)
    monkeypatch.setattr("jouletrace.analysis.kernel_powers.attribute_program", None)  # nor is one remembered
    for kinds, rows in before.items():
        after = by(kinds, tmp_path / "run.zip")
        assert [row["path"] for row in after] == [row["path"] for row in rows]
        for one, other in zip(after, rows, strict=True):
            ends = ("value", "low", "high")
            assert [one["energy_j"][end] for end in ends] == pytest.approx(
                [other["energy_j"][end] for end in ends], rel=1e-6
            )
            budgets = [row["energy_j"]["budget"] for row in (one, other)]
            assert budgets[0] == pytest.approx(budgets[1], abs=5e-3 * half(other["energy_j"]))


def test_a_sum_has_the_covariance_of_its_rows(by):
    """Products share few powers: what is wrong with one of them is wrong with all."""
    by_module = {path: e for path, e in named(by("op,layer")).items() if path[:1] == ("addmm",)}
    whole = named(by("op"))[("addmm",)]
    assert len(by_module) >= 6
    assert sum(e["value"] for e in by_module.values()) == pytest.approx(whole["value"], rel=1e-9)
    apart = sum(half(e) ** 2 for e in by_module.values()) ** 0.5
    assert half(whole) > 1.05 * apart, "as independent ones they would seem better known"
    assert half(whole) < sum(half(e) for e in by_module.values())


def test_every_division_comes_to_the_same_sum(by):
    sums = [together(by(kinds)) for kinds in ("op", "layer", "phase", "device")]
    assert sums == pytest.approx([sums[0]] * len(sums), rel=1e-9)
    assert sums[0] == pytest.approx(load(LAYERS).result("energy_total_j").value, rel=0.005)


@pytest.mark.parametrize(
    "name",
    [
        "gnn_train",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("jax_train", "encoder", "lora_accum", "mamba_infer")),
    ],
)
def test_rows_make_up_the_whole_whatever_it_is_divided_by(by, tmp_path, name):
    """Be what is left one path or many; no row is null where the powers are known."""
    run = analyse(load(PROGRAMS / f"{name}.zip"))
    path = save(run, tmp_path / "run")
    sums = [together(by(kinds, path)) for kinds in ("op", "layer", "device", "kernel", "phase,layer,op,shapes")]
    assert sums == pytest.approx([sums[0]] * len(sums), rel=1e-9)
    rows = named(by("op", path))
    before, left = (rows[name,]["value"] for name in ("before the first kernel", "in no part"))
    whole = run.result("energy_total_j").value
    assert sums[0] == pytest.approx(whole, rel=1e-9)
    assert (whole - left - before) / (whole - before) == pytest.approx(run.result("closure_kernels").value, abs=0.001)


def test_a_remainder_of_one_path_has_its_name_and_what_is_left(by, tmp_path):
    """It isn't resolved: the regression puts a power below zero."""
    run = profile_run(kernels=2)
    first, *others = run.powers.to_pylist()
    run.powers = tables.from_rows([first | {"watts": -40.0}, *others], "powers")
    save(run, tmp_path / "run")
    listed, rest, left = by("shapes", tmp_path / "run")
    second, one = (run.result("time_s", unit).value for unit in (4, 2))
    assert (listed["energy_j"]["value"], rest["energy_j"]["value"]) == pytest.approx((300 * second, -40 * one))
    assert (rest["path"][0]["name"], rest["time_s"]["value"]) == ("f16[12608,768] f16[768,768]", pytest.approx(one))
    assert half(rest["energy_j"]) > 0
    whole = run.result("energy_total_j").value
    assert left["path"][0]["name"] == "in no part"
    assert left["energy_j"]["value"] == pytest.approx(whole - 300 * second + 40 * one)


def test_what_comes_before_a_first_kernel_is_of_the_one_gpu(by, capsys):
    names = set(named(by("device", JAX)))
    gpu = "NVIDIA H100 80GB HBM3"
    assert names == {(gpu,), (gpu, "idle"), (gpu, "before the first kernel"), ("in no part",)}
    assert (
        f"{gpu}, before the first kernel" in command(capsys, "show", str(JAX), "--by", "device", "--format", "csv").out
    )


@pytest.mark.parametrize("kind", ["op", "phase", "shapes"])
def test_what_has_no_such_step_has_a_name(by, kind):
    name = {"op": "(no operator)"}.get(kind, f"(no {kind})")
    assert (name,) in named(by(kind, JAX))


def test_gpus_of_one_name_have_the_index_of_their_host(by, tmp_path):
    run = analyse(load(TWO_GPUS))
    run.devices[0].index, run.devices[1].index = 3, 5
    for about in run.workload["recordings"]:
        for key in ("name", "collectives", "last"):
            about.pop(key, None)
    save(run, tmp_path / "run")
    assert {path[0] for path in named(by("device", tmp_path / "run"))} == {
        "NVIDIA H200 #3",
        "NVIDIA H200 #5",
        "in no part",
    }


def test_a_sum_over_gpus_has_the_flags_of_each(by, capsys):
    (product,) = (row for row in by("op", TWO_GPUS) if row["path"][-1]["name"] == "mm")
    assert product["flags"] == ["overlapped"]
    said = command(capsys, "show", str(TWO_GPUS), "--by", "op").out
    assert any(line.startswith("mm ") and line.endswith("[a]") for line in said.splitlines())
    assert "[a] other kernels ran at the same time" in said
    rows = csv.DictReader(io.StringIO(command(capsys, "show", str(TWO_GPUS), "--by", "op", "--format", "csv").out))
    assert next(row["flags"] for row in rows if row["op"] == "mm") == "overlapped"


def test_gpus_of_one_kind_share_the_error_of_a_nominal_response(by, tmp_path):
    """It adds up; other errors are each one's own."""
    each = [e for path, e in named(by("device,op", TWO_GPUS)).items() if path[-1] == "mm"]
    of_both = named(by("op", TWO_GPUS))[("mm",)]
    for cause, u in of_both["budget"].items():
        own = [e["budget"].get(cause, 0.0) for e in each]
        add = sum(own) if cause == "response of the sensor" else sum(one**2 for one in own) ** 0.5
        assert u == pytest.approx(add)
    apart = sum(half(e) ** 2 for e in each) ** 0.5
    assert 1.03 * apart < half(of_both) < sum(map(half, each))
    run = analyse(load(TWO_GPUS))
    for channel in run.channels:
        channel.origin = "calibrated"
    save(run, tmp_path / "run")
    assert half(named(by("op", tmp_path / "run"))[("mm",)]) == pytest.approx(apart, rel=0.01)


def test_what_is_resolved_is_listed_and_the_rest_says_that_it_is_not(by):
    """A row isn't given up so that the rest may have an energy."""
    *listed, rest, idle = by("phase,layer,op,shapes,kernel")
    assert all(row["energy_j"]["value"] is not None for row in listed)
    assert half(rest["energy_j"]) > 0, "what is left to it, whatever its interval"
    assert sum(row["share"]["value"] for row in (*listed, rest, idle)) == pytest.approx(1, abs=0.01)


def test_rows_are_those_that_the_run_states_of_the_same_parts(by):
    """Rows by operator and module in the Run are one row of a division by these."""
    run = analyse(load(LAYERS))
    found = named(by("layer,op,shapes"))
    known = 0
    for unit in run.units.to_pylist():
        stated = run.result("energy_total_j", unit["id"]) if unit["level"] == "op" and unit["op"] else None
        if stated is None or stated.value is None:
            continue
        energy = found[unit["module"], unit["op"].removeprefix("aten."), unit["shapes"]]
        assert energy["value"] == pytest.approx(stated.value, rel=1e-4)
        assert half(energy) == pytest.approx(stated.half_width, rel=1e-2)
        known += 1
    assert known >= 8


def test_the_budget_of_a_row_makes_its_interval(by):
    """By cause, such as the noise of the readings; what several rows have in common isn't counted once for each."""
    for row in by("op"):
        combined = sum(u**2 for u in row["energy_j"]["budget"].values()) ** 0.5
        assert 1.95 * combined < half(row["energy_j"]) < 2.6 * combined, "Student's factor, of few readings more"
        assert "noise of the readings" in row["energy_j"]["budget"]


def test_what_is_not_listed_is_one_row_with_its_own_interval(by):
    rows = by("kernel", LAYERS, "--top", "3")
    *listed, rest, idle = rows
    assert len(listed) == 3
    assert rest["path"] == [{"kind": "pool", "name": f"{rest['count']} more, together"}]
    assert rest["count"] > 3
    assert idle["path"] == [{"kind": "idle", "name": "idle"}]
    assert rest["energy_j"]["low"] is not None
    assert together(rows) == pytest.approx(together(by("op")), rel=1e-9)


def test_a_program_has_its_operators_whatever_module_calls_them(by):
    rows = by("op", TRAINING)
    assert len(rows) > 3
    assert together(rows) <= load(TRAINING).result("energy_total_j").value * 1.02


@pytest.mark.parametrize("form", ["table", "csv", "markdown", "latex"])
def test_other_formats_hold_the_same_rows(capsys, form):
    said = command(capsys, "show", str(LAYERS), "--by", "op", "--format", form)
    assert said.code == 0, said.err
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(said.out)))
        assert rows[0]["op"] == "addmm"
        assert float(rows[0]["energy_total_j_low"]) < float(rows[0]["energy_total_j"])
        return
    assert "addmm" in said.out
    assert "no kernel running" in said.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--by", "colour"], "no level 'colour' here; there is device, phase, layer, op, shapes, kernel"),
        (["--by", ""], "no level '' here"),
        (["--by", "op", "--detail", "layer"], "without --detail"),
        (["--by", "op", "--budget"], "without --detail"),
        (["--by", "op", "--price", "0.3EUR/kWh"], "without --detail"),
        (["--by", "op,op"], "each level once"),
        ([str(LAYERS), "--by", "op"], "a view of one Run"),
    ],
)
def test_what_cannot_be_divided_is_refused_in_one_line(capsys, arguments, words):
    said = command(capsys, "show", str(LAYERS), *arguments)
    assert said.code == 2
    assert words in said.complaint


def test_control_characters_of_names_are_spelt_out(capsys, tmp_path):
    run = load(LAYERS)
    run.workload["name"] = "evil\x1b[31m"
    run.save(str(tmp_path / "run"))
    for form in ("table", "markdown", "latex", "csv"):
        said = command(capsys, "show", str(tmp_path / "run"), "--by", "op", "--format", form)
        assert said.code == 0, said.err
        assert "\x1b" not in said.out


def test_a_run_without_kernels_says_how_to_record_them(capsys):
    said = command(capsys, "show", str(LAYERS.with_name("deit-b-64-graph-h100.zip")), "--by", "op")
    assert said.code == 2
    assert "profile with --detail kernel" in said.complaint


SHIPPED = REPOSITORY / "docs" / "results" / "runs"


@pytest.mark.parametrize(
    ("place", "detail"), [(SHIPPED / "minilm-1-eager-h200.zip", "kernel"), (SHIPPED / "ddp-run-h200.zip", "phase")]
)
def test_a_run_saved_without_its_kernels_says_so_and_what_it_still_shows(capsys, place, detail):
    said = command(capsys, "show", str(place), "--by", "op")
    assert said.code == 2
    assert f"it was saved without the one that it had: --detail {detail} shows" in said.complaint
    assert "profile with" not in said.complaint
    assert command(capsys, "show", str(place), "--detail", detail).code == 0


def test_kernels_that_were_asked_for_and_not_measured_are_not_asked_for_again(capsys, tmp_path):
    run = profile_run()
    run.settings["detail"] = "kernel"
    run.save(str(tmp_path / "run"))
    said = command(capsys, "show", str(tmp_path / "run"), "--by", "op")
    assert (said.code, "--detail kernel was asked for and not measured" in said.complaint) == (2, True)


def test_kernels_of_a_recording_are_divided_where_they_lie(capsys, tmp_path):
    save(replace(profile_run(), kind="record"), tmp_path / "run")
    save(load(LAYERS), tmp_path / "run" / "kernels")
    said = command(capsys, "show", str(tmp_path / "run"), "--by", "op")
    assert said.code == 2
    words = said.complaint.partition(": jouletrace ")[2].split()
    assert words == ["show", str(tmp_path / "run" / "kernels"), "--by", "op"]
    assert command(capsys, *words).code == 0


def test_a_simulated_run_is_marked(capsys, tmp_path):
    run = load(LAYERS)
    run.devices = [replace(device, simulated=True) for device in run.devices]
    save(run, tmp_path / "run")
    for form, mark in (("table", "SIMULATED: a simulated GPU"), ("markdown", "**SIMULATED"), ("csv", ",true")):
        assert mark in command(capsys, "show", str(tmp_path / "run"), "--by", "op", "-f", form).out
