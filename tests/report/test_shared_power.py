"""Rows whose kernels have one measured power are marked as such, in all formats, and others aren't."""

import csv
import io
import json
from itertools import combinations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from commands import command
from jouletrace.run import SHARED_POWER, Parts, load, save, tables
from places import REPOSITORY

LAYERS = next((REPOSITORY / "src" / "jouletrace" / "bundled").glob("*layers-h200.zip"))
LEGEND = "one power was measured for it and other such rows: they differ by their times alone"
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def shown(capsys, path, *more):
    said = command(capsys, "show", str(path), *more)
    assert said.code == 0, said.err
    return said.out


def is_shared(part):
    return SHARED_POWER in part.get("energy_total_j").flags


@pytest.mark.thorough
@pytest.mark.parametrize("level", ["op", "kernel"])
def test_marked_rows_are_those_with_the_power_of_another(level):
    """One kind of kernels a row: powers agree to the last digit within, and nowhere else."""
    parts = Parts(load(LAYERS))
    rows = [part for part in parts.ranked(level) if part.get("power_w").value is not None]
    alike = {
        one.id
        for pair in combinations(rows, 2)
        for one in pair
        if pair[0].get("power_w").value == pytest.approx(pair[1].get("power_w").value, rel=1e-9)
    }
    assert {part.id for part in rows if is_shared(part)} == alike
    assert len(alike) == 7
    assert not any(is_shared(part) for part in parts.units("phase"))


def test_modules_are_marked_beside_others_of_the_same_kernels_and_not_for_equal_layers():
    parts = Parts(load(LAYERS))
    marked = {part.name for part in parts.units("layer") if is_shared(part)}
    assert {f"deit.layers.3.attention.{name}" for name in ATTENTION} <= marked
    assert not {"deit", "deit.layers", "deit.layers.3", "deit.layers.3.mlp.fc1", "classifier"} & marked


@pytest.mark.thorough
@pytest.mark.parametrize("more", [[], ["-v"], ["--format", "markdown"], ["--format", "latex"]], ids=" ".join)
@pytest.mark.parametrize("detail", ["layer", "kernel", "op"])
def test_a_table_has_one_mark_and_one_line_below(capsys, detail, more):
    text = shown(capsys, LAYERS, "--detail", detail, *more)
    legend = " ".join(text.split()).partition(LEGEND)
    assert LEGEND not in legend[2]
    mark = legend[0].split()[-1]
    for line in text.splitlines():
        if any(name in line.replace("\\", "") for name in ("fc1", "classifier", *ATTENTION)):
            assert (mark in line) == any(name in line.replace("\\", "") for name in ATTENTION), line


@pytest.mark.thorough
def test_files_and_pages_state_it(capsys, tmp_path):
    found = json.loads(shown(capsys, LAYERS, "--json"))["parts"]
    for division in ("code", "module"):
        flagged = {step["name"] for row in found[division] if SHARED_POWER in row["flags"] for step in row["path"]}
        assert set(ATTENTION) <= flagged
        assert "classifier" not in flagged
    rows = csv.DictReader(io.StringIO(shown(capsys, LAYERS, "--detail", "op", "--format", "csv")))
    assert sum(f"energy_total_j: {SHARED_POWER}" in row["notes"] for row in rows) == 7
    assert LEGEND in load(LAYERS).report(tmp_path / "report.html").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("lacking", ["a division", "kinds that several rows share"])
def test_rows_without_shared_powers_have_no_mark(capsys, tmp_path, lacking):
    run = load(LAYERS)
    if lacking == "a division":
        for name in tables.SOLVED:
            setattr(run, name, tables.empty(name))
    else:
        run.divided = run.divided.filter(pc.invert(pc.is_in(run.divided["kind"], pa.array([7, 8]))))
    save(run, tmp_path / "run.zip")
    assert not any(map(is_shared, Parts(run).all()))
    assert "one power was" not in shown(capsys, tmp_path / "run.zip", "--detail", "layer")
