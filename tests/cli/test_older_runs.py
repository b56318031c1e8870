"""A Run of an older version shows its own figures, and where these are computed again, a line that says so."""

import json

import pytest

from commands import command
from jouletrace.run import load, save, tables
from jouletrace.version import __version__
from make_runs import profile_run
from places import REPOSITORY

OLDER = REPOSITORY / "tests" / "frozen" / "programs" / "encoder.zip"
ENERGY = "energy_total_j"
SOLVED = "its readings are solved again, which may find other figures than those that show states"


def shown(capsys, path, *more):
    said = command(capsys, "show", str(path), *more)
    assert said.code == 0, said.err
    return said


def idle(rows):
    """Energy of the time in which no kernel runs, J."""
    return next(row["energy_j"]["value"] for row in rows if row["path"][-1]["kind"] == "idle")


def test_the_figures_of_an_older_run_are_its_own(capsys):
    run = load(OLDER)
    assert not len(run.divided)
    found = json.loads(shown(capsys, OLDER, "--json").out)
    assert found["model"]["energy_j"]["total"]["value"] == run.result(ENERGY).value
    stated = [row["value"] for row in run.results.to_pylist() if row["metric"] == ENERGY]
    assert idle(found["parts"]["code"]) in stated


@pytest.mark.thorough
def test_what_is_solved_again_says_so_and_differs_from_what_is_stated(capsys):
    divided, budget = (shown(capsys, OLDER, *more) for more in (("--by", "op", "--json"), ("--budget",)))
    assert f"stored no division: {SOLVED}" in " ".join(divided.err.split())
    assert f"stored no budgets: {SOLVED}" in " ".join(budget.err.split())
    stated = idle(json.loads(shown(capsys, OLDER, "--json").out)["parts"]["code"])
    assert idle(json.loads(divided.out)["parts"]["op"]) != stated


@pytest.mark.thorough
def test_the_version_of_figures_is_named_where_it_is_another(capsys, tmp_path):
    assert "Figures by" in shown(capsys, OLDER, "-v").out
    assert f"jouletrace 0.1.0, as the Run states them: {__version__} may find others" in shown(capsys, OLDER, "-v").out
    assert "Figures by" not in shown(capsys, OLDER).out
    for versions in ({}, {"jouletrace": __version__}):
        run = profile_run(kernels=2)
        run.versions = versions
        save(run, tmp_path / str(len(versions)))
        assert "Figures by" not in shown(capsys, tmp_path / str(len(versions)), "-v").out


@pytest.mark.thorough
def test_nothing_is_solved_again_of_a_run_that_stores_all(capsys, tmp_path):
    run = load(REPOSITORY / "tests" / "data" / "runs" / "deit-run-h100.zip")
    save(run, tmp_path / "run")
    for more in (("--by", "op"), ("--budget",)):
        assert "solved again" not in shown(capsys, tmp_path / "run", *more).err
    for name in tables.SOLVED:
        setattr(run, name, tables.empty(name))
    run.activity = tables.empty("activity")
    save(run, tmp_path / "without")
    assert "solved again" not in command(capsys, "show", str(tmp_path / "without"), "--by", "op").err
