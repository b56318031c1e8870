"""The examples of recorded loops, each run as a user would run it, on a simulated GPU in real time."""

import runpy
import sys

import pytest

import jouletrace as jt
from places import REPOSITORY

pytestmark = pytest.mark.thorough

pytest.importorskip("torch")

EXAMPLES = REPOSITORY / "examples"
REAL = "sim:h100?realtime=1&load=0.5:300"


def run(name, monkeypatch, *options):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "argv", [name, "--device", REAL, *options])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def found(run):
    return {
        row["name"]: (row["count"], run.result("energy_total_j", row["id"]), run.result("time_s", row["id"]).value)
        for row in run.units.to_pylist()
        if row["level"] == "range"
    }


def test_a_plain_loop(tmp_path, monkeypatch, capsys):
    run("plain_loop.py", monkeypatch, "--seconds", "8", "--save-to", str(tmp_path / "run"))
    ranges = found(jt.load(tmp_path / "run"))
    assert list(ranges) == [
        "epoch",
        "epoch/step",
        "epoch/data",
        "epoch/forward",
        "epoch/backward",
        "epoch/optimizer",
    ]
    for name in ("epoch", "epoch/step"):
        _, energy, seconds = ranges[name]
        assert energy.value == pytest.approx(300 * seconds, rel=0.05)
    printed = capsys.readouterr().out
    assert "SIMULATED plain loop: " in printed, "a line while it ran"
    assert "SIMULATED epoch/optimizer" in printed


def test_a_trainer(tmp_path, monkeypatch, capsys):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    run("trainer.py", monkeypatch, "--steps", "10", "--save-to", str(tmp_path / "run"))
    ranges = found(jt.load(tmp_path / "run"))
    assert {name: count for name, (count, _, _) in ranges.items()} == {
        "epoch": 2,
        "epoch/step": 20,
        "evaluation": 2,
    }
    _, energy, seconds = ranges["epoch"]
    assert energy.value == pytest.approx(300 * seconds, rel=0.05)
    assert "simulated_energy_step_j" in capsys.readouterr().out, "in the trainer's own log"


def test_a_trainer_without_accelerate_says_what_to_install(monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"^trainer\.py: the Trainer .* needs accelerate: pip install accelerate$"):
        run("trainer.py", monkeypatch)
