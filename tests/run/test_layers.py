"""Equal layers as one row below a verdict: which are equal, and how well their sum is known."""

import json
import re

import numpy as np
import pytest

import jouletrace as jt
from jouletrace import report
from jouletrace.run import Parts, tables
from jouletrace.run.layers import folded
from jouletrace.run.recording_names import OUTSIDE
from jouletrace.run.sums import Sums
from places import REPOSITORY

RECORDED = REPOSITORY / "src" / "jouletrace" / "bundled" / "deit-b-64-layers-h200.zip"
"""A recorded DeiT-B with twelve equal layers."""


def changed(table, change):
    """The table "divided" or "units" of the recording after a change of each row."""
    run = jt.load(RECORDED)
    setattr(
        run, table, tables.from_rows([{**row, **change(run, row)} for row in getattr(run, table).to_pylist()], table)
    )
    return run


def within(run, *modules):
    """Ids of the sites of modules."""
    rows = run.units.to_pylist()
    return {row["id"] for row in rows if row["level"] == "site" and (row["module"] or "").startswith(modules)}


def slower(by, module="deit.layers.5."):
    """The recording with all launches of a module taking ``by`` times their time."""
    sites = within(jt.load(RECORDED), module)
    return changed("divided", lambda _, row: {"seconds": row["seconds"] * (by if row["site"] in sites else 1)})


def labels(run, **options):
    """The labels of the rows of the table of layers, with their indents."""
    lines = (
        report.render([run], detail="layer", width=100, **options).split("Layers\n")[1].split("\n\n")[0].splitlines()
    )
    shown = [line.replace("\u00a0", " ") for line in lines]
    return (
        [re.split(r"(?<=\S) {2,}", line)[0] for line in shown[shown.index("─" * len(shown[2])) + 1 :]] if shown else []
    )


def rows_of(run):
    return {part.name: part for part in folded(run, Parts(run))}


def test_equal_layers_are_one_row_and_those_inside_them_too():
    run = jt.load(RECORDED)
    parts, found = Parts(run), folded(run, Parts(run))
    assert len(parts.units("layer")) == 151
    assert "layers.* ×12" in [part.name for part in found]
    assert len([part for part in found if part.name.endswith("q_proj")]) == 1
    assert len(found) == 18
    stored = {part.name: part for part in parts.units("layer")}
    layers, whole = next(part for part in found if "×" in part.name), stored["deit.layers"]
    assert {name: one for name, one in layers.figures.items() if name in whole.figures} == whole.figures
    own = sum(part.get("energy_own_j").value for part in parts.units("layer") if part.parent == whole.id)
    assert layers.get("energy_own_j").value == pytest.approx(own)
    assert all(part.figures == stored[part.name].figures for part in found if "layers" not in part.name)


@pytest.mark.thorough
def test_a_table_lists_equal_layers_once_and_each_with_v_and_in_files():
    run = jt.load(RECORDED)
    shown = labels(run)
    assert [label for label in shown if "layers" in label] == ["  layers.* ×12"]
    assert shown.count("    layernorm_before") == 1
    assert [label for label in labels(run, verbose=True) if label.strip().isdecimal()] == [
        f"    {n}" for n in range(12)
    ]
    found = [row["path"] for row in json.loads(report.render([run], "json"))["parts"]["module"]]
    assert sum(path[-1]["kind"] == "module" for path in found) == 151
    text = report.render([run], "csv", detail="layer")
    assert {int(n) for n in re.findall(r"\bdeit\.layers\.(\d+),", text)} == set(range(12))


@pytest.mark.thorough
@pytest.mark.parametrize("by", [1.05, 1.3])
def test_layers_whose_times_differ_are_not_equal(by):
    found = rows_of(slower(by))
    assert ("0–4,6–11 ×11" in found) == (by > 1.2)
    assert ("deit.layers.5" in found) == (by > 1.2)
    assert ("layers.* ×12" in found) == (by < 1.2)


def test_layers_one_of_whose_kernels_takes_longer_are_not_equal():
    """Their times differ by 3 %, the times of the kernel by 20 %."""
    assert "0–4,6–11 ×11" in rows_of(slower(1.2, "deit.layers.5.mlp.fc1"))


@pytest.mark.parametrize("change", [{"count": 2}, {"module": "deit.layers.5.other"}, {"call": "0.0.0.0.1"}])
def test_layers_with_other_launches_are_not_equal(change):
    sites = within(jt.load(RECORDED), "deit.layers.5.mlp.fc1")
    assert sites
    run = changed("units", lambda _, row: change if row["id"] in sites else {})
    assert "0–4,6–11 ×11" in rows_of(run)


def test_equal_layers_of_different_names_are_listed_each():
    names = [part.name.rpartition(".")[2] for part in folded(jt.load(RECORDED), Parts(jt.load(RECORDED)))]
    assert {"q_proj", "k_proj", "v_proj", "o_proj"} <= set(names)


@pytest.mark.thorough
def test_errors_of_equal_layers_add_up():
    """Equal kernels share a power: what is wrong with one is wrong with all, so that no error averages out."""
    run = slower(1.3)
    stored = {part.name: part for part in Parts(run).units("layer")}
    found = rows_of(run)
    members = [stored[f"deit.layers.{n}"] for n in range(12) if n != 5]
    for metric in ("energy_total_j", "energy_active_j", "energy_own_j", "share"):
        each, one = [part.get(metric) for part in members], found["0–4,6–11 ×11"].get(metric)
        assert one.value == pytest.approx(sum(figure.value for figure in each), rel=1e-3)
        assert one.half_width == pytest.approx(sum(figure.half_width for figure in each), rel=0.01)
        assert one.half_width > 3 * np.linalg.norm([figure.half_width for figure in each])
    row = found["0–4,6–11 ×11"]
    assert row.get("time_s").value == pytest.approx(sum(part.get("time_s").value for part in members), rel=1e-6)
    assert row.get("power_w").value == pytest.approx(row.get("energy_total_j").value / row.get("time_s").value)
    inner = [stored[f"deit.layers.{n}.mlp.fc1"].get("energy_total_j") for n in range(12) if n != 5]
    fc1 = next(part for part in found.values() if part.name.endswith("mlp.fc1") and part.get("time_s").value > 1e-3)
    assert fc1.get("energy_total_j").half_width == pytest.approx(sum(one.half_width for one in inner), rel=0.01)


@pytest.mark.thorough
def test_the_error_of_the_idle_power_is_in_active_energy():
    run = slower(1.3)
    narrow = rows_of(run)["0–4,6–11 ×11"]
    wide = {"low": 110.0, "high": 130.0}
    run.results = tables.from_rows(
        [{**row, **(wide if row["metric"] == "baseline_context_idle_w" else {})} for row in run.results.to_pylist()],
        "results",
    )
    found, idle = rows_of(run)["0–4,6–11 ×11"], 10.0 * narrow.get("time_s").value
    expected = np.hypot(narrow.get("energy_total_j").half_width, idle)
    assert found.get("energy_active_j").half_width == pytest.approx(expected, rel=0.01)
    assert expected > 1.1 * narrow.get("energy_active_j").half_width


@pytest.mark.thorough
def test_small_layers_that_are_not_resolved_are_listed_together():
    run = jt.load(RECORDED)
    names = ("deit.layernorm", "classifier", "deit.layers.3.layernorm_before", "deit.layers.3.layernorm_after")
    ids = {row["id"] for row in run.units.to_pylist() if row["level"] == "layer" and row["name"] in names}
    blank = {"value": None, "low": None, "high": None, "reason": "not_resolved"}
    run.results = tables.from_rows(
        [
            {**row, **(blank if row["unit"] in ids and row["metric"] == "energy_total_j" else {})}
            for row in run.results.to_pylist()
        ],
        "results",
    )
    run.divided = slower(1.3, "deit.layers.3.").divided
    shown = labels(run)
    assert "      2 not resolved" in shown
    assert shown.count("      layernorm_before") == 1  # that of the others
    assert {"  layernorm", "classifier"} <= set(shown)  # each the only one of its parent
    parts, sums = Parts(run), Sums(run, Parts(run))
    folded(run, parts, sums, each=True)
    stored = {part.name: part for part in parts.units("layer")}
    together = sums.together([stored[name] for name in names[2:]], "")
    times = [stored[name].get("time_s").value * 1.3 for name in names[2:]]
    assert together.get("time_s").value == pytest.approx(sum(times), rel=1e-6)
    assert together.get("energy_total_j").value == pytest.approx(sum(times) * 404, rel=0.02)


@pytest.mark.thorough
def test_without_a_stored_division_each_layer_is_listed():
    run = jt.load(RECORDED)
    for name in tables.SOLVED:
        setattr(run, name, tables.empty(name))
    assert len(folded(run, Parts(run))) == 151
    assert "    0" in labels(run)


@pytest.mark.thorough
def test_own_operators_are_listed_however_little_they_take():
    run = jt.load(RECORDED)
    assert labels(run).count("    (own operators)") == 2
    run.results = tables.from_rows(
        [{**row, "value": 1e-7} if row["metric"] == "time_own_s" else row for row in run.results.to_pylist()], "results"
    )
    assert labels(run).count("    (own operators)") == 2


def test_what_no_module_calls_is_listed_by_operator():
    """The embeddings of the recording, as if no module had called them."""

    def outside(_, row):
        is_layer = row["level"] == "layer" and row["name"] == "deit.embeddings"
        if row["level"] == "site" and (row["module"] or "").startswith("deit.embeddings"):
            return {"module": None, "call": None}
        return {"name": OUTSIDE, "module": OUTSIDE} if is_layer else {}

    found = folded(run := changed("units", outside), Parts(run))
    (whole,) = (part for part in found if part.name == OUTSIDE)
    inside = [part for part in found if part.parent == whole.id]
    assert [part.name for part in inside] == ["convolution", "cat", "add"]
    for metric in ("time_s", "energy_total_j"):
        total = sum(part.get(metric).value for part in inside)
        assert total == pytest.approx(whole.get(metric).value, rel=1e-6)


def test_a_pool_is_called_by_what_it_holds():
    parts = Parts(jt.load(REPOSITORY / "tests" / "frozen" / "programs" / "jax_train.zip"))
    (pool,) = (part for part in parts.all() if part.name == "149 kernels together")
    inside = [part for part in parts.all() if part.parent == pool.id]
    longest = max(inside, key=lambda part: part.get("time_s").value)
    assert pool.holds == f"{longest.name} and 148 more"
