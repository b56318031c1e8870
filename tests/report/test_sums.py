"""Rows under a row make it up, and outermost ones the whole, as far as printed digits go."""

from dataclasses import replace

import pytest

from frozen import PROGRAMS, STORED
from jouletrace.analysis.divided import divided
from jouletrace.report import render
from jouletrace.report.html.tables import of_parts
from jouletrace.run import Parts, load, tables
from jouletrace.run.layers import OWN_NAME, tree
from jouletrace.run.sums import Sums
from places import REPOSITORY
from printed_sums import TABLES, headline_of, rows_of, sums_of, wholes_of

DIVIDED = [path for path in (*STORED, *PROGRAMS) if len(load(path).divided)]
SHARED = sorted((REPOSITORY.parent / "shared" / "data" / "h100").glob("runs[34]/*.zip"))


@pytest.mark.thorough
@pytest.mark.parametrize("path", DIVIDED, ids=lambda path: path.stem)
def test_printed_rows_make_up_the_row_above_them_and_the_whole(path):
    assert sums_of(load(path)) == []


@pytest.mark.samples
@pytest.mark.slow
@pytest.mark.parametrize("path", SHARED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_printed_rows_of_other_recordings_make_up_their_wholes(path):
    assert sums_of(load(path)) == []


@pytest.mark.thorough
@pytest.mark.parametrize("path", DIVIDED, ids=lambda path: path.stem)
def test_divisions_by_steps_make_up_the_whole(path):
    run = load(path)
    whole = run.result("energy_total_j")
    for kinds, top in ((["op"], 3), (["layer"], None), (["device", "kernel"], 5)):
        rows = divided(run, kinds, top)
        total = sum(one.get("energy_total_j").value or 0.0 for one in rows)
        assert total == pytest.approx(whole.value, rel=1e-8), kinds
        assert sum(one.get("share").value or 0.0 for one in rows) == pytest.approx(1.0, rel=1e-8)


def test_a_rest_that_has_powers_in_part_has_the_energy_of_these_and_no_power():
    """The energy of some kernels over the time of all is no power; ``--by`` and the table state the same energy."""
    run = load(REPOSITORY / "docs" / "results" / "runs" / "loader-run-h100.zip")
    (copies,) = (
        row["id"] for row in run.units.to_pylist() if row["name"] == "memcpy HtoD" and row["level"] == "kernel"
    )
    energy = run.result("energy_total_j", copies).value
    (before,) = (one for one in divided(run, ["kernel"], 1) if one.count)
    rows = [row | ({"kind": None} if row["unit"] == copies else {}) for row in run.divided.to_pylist()]
    run.divided = tables.from_rows(rows, "divided")
    (rest,) = (one for one in divided(run, ["kernel"], 1) if one.count)
    assert rest.get("energy_total_j").value == pytest.approx(before.get("energy_total_j").value - energy)
    assert rest.get("time_s").value == pytest.approx(before.get("time_s").value)
    parts = Parts(run)
    kernels = [part for part in parts.units("kernel") if part.level == "kernel"]
    others = sorted(kernels, key=lambda part: part.get("energy_total_j").value or 0.0)[:-1]
    row = Sums(run, parts).together(others, "others")
    assert row.get("energy_total_j").value == pytest.approx(rest.get("energy_total_j").value)
    assert row.get("time_s").value == pytest.approx(rest.get("time_s").value)
    assert row.get("power_w").value is None


@pytest.mark.thorough
def test_a_folded_layer_has_its_own_operators_and_what_is_left_of_the_whole_a_row():
    run = load(REPOSITORY / "src" / "jouletrace" / "bundled" / "deit-b-64-layers-h200.zip")
    text = render([run], detail="layer", width=400)
    found = rows_of(text, TABLES["layer"])
    assert headline_of(text) == wholes_of(run, text)[""]
    own = [(depth, energy[0]) for _, depth, label, energy in found if label == "(own operators)"]
    stored = [part.get("energy_own_j").value or 0.0 for part in Parts(run).units("layer")]
    assert [depth for depth, _ in own] == [2, 2, 3]
    assert sum(joules for _, joules in own) == pytest.approx(sum(stored), abs=1.5e-3)
    eager = load(REPOSITORY / "docs" / "results" / "runs" / "minilm-1-eager-h200.zip")
    last = rows_of(render([eager], detail="kernel", width=400), TABLES["kernel"])[-1]
    assert last[2] == "in no part"


def test_a_list_of_modules_that_contain_one_another_has_no_sums():
    run = load(REPOSITORY / "src" / "jouletrace" / "bundled" / "deit-b-64-layers-h200.zip")
    text = render([run], detail="layer", top=4, width=200)
    assert "in no part" not in text
    assert "together" not in text
    assert f"{len(Parts(run).units('layer')) - 4} more" in text


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["deit-b-64-layers-h200", "minilm-1-eager-h200", "resnet50-run-h200"])
def test_what_a_module_runs_itself_has_the_figures_of_other_rows(name):
    """Own operators and inner modules together have the share, the active energy and the power of their module."""
    places = (REPOSITORY / "src" / "jouletrace" / "bundled", REPOSITORY / "docs" / "results" / "runs")
    run = load(next(place / f"{name}.zip" for place in places if (place / f"{name}.zip").exists()))
    parts = Parts(run)
    rows = [part for part, *_ in tree(run, parts, Sums(run, parts), (0.0,), None, cause=0.0, brief=False)[0]]
    owned = [row for row in rows if row.name == OWN_NAME and row.parent and row.get("energy_total_j").value]
    assert owned
    for own in owned:
        inner = [row for row in rows if row.parent == own.parent and row.module != parts[own.parent].module]
        for metric in ("share", "energy_active_j"):
            together = sum(row.get(metric).value or 0.0 for row in (own, *inner))
            complete = all(row.get("energy_total_j").value is not None for row in inner)
            whole = parts[own.parent].get(metric).value
            if complete and whole is not None:
                assert together == pytest.approx(whole, rel=1e-6), (own.parent, metric)
        energy, power, time = (own.get(metric) for metric in ("energy_total_j", "power_w", "time_s"))
        assert power.value * time.value == pytest.approx(energy.value)
        assert (power.high - power.low) * time.value == pytest.approx(energy.high - energy.low)


def test_a_power_above_the_limit_has_a_remark():
    """A product of 0.4 ms draws 1024 W on an H100 whose limit is 700 W."""
    run = load(REPOSITORY / "docs" / "results" / "runs" / "loader-run-h100.zip")
    limit = "power above the limit of 700 W"
    run.devices = [replace(device, power_limit_w=700.0) for device in run.devices]
    for options in ({}, {"verbose": True}):
        assert limit in render([run], detail="kernel", width=200, **options).replace("\u00a0", " ")
    kernels = next(table for table in of_parts(run, Parts(run)) if table.id == "kernel")
    assert [note for note in kernels.notes if note.replace("\u00a0", " ").startswith(limit)]
    run.devices = [replace(device, power_limit_w=1200.0) for device in run.devices]
    assert "power above the limit" not in render([run], detail="kernel", width=200).replace("\u00a0", " ")
