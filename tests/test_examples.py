"""The examples, each run as a user would run it, on a simulated GPU."""

import csv
import re
import runpy
import sys

import pytest

from places import REPOSITORY

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("known_rates")]

pytest.importorskip("torch")

EXAMPLES = REPOSITORY / "examples"
QUICK = ["--warmup", "1", "--detail-time", "8", "--max-time", "1"]


def run(name, tmp_path, monkeypatch, *options, device="sim:h100?cap=off"):
    """Run an example; rows of the table that it wrote."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    output = tmp_path / "table.csv"
    arguments = ["--device", device, "--output", str(output), *QUICK, *options]
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.csv", "table_top10_energy.csv"]
    rows = list(csv.DictReader(output.open()))
    total = sum(float(row["share"]) for row in rows if row["share"])  # empty with a reason in ``reason``
    assert total == pytest.approx(1, abs=0.1)
    return rows


def test_a_small_model_by_layer(tmp_path, monkeypatch, capsys):
    rows = run("small_model_by_layer.py", tmp_path, monkeypatch, "--mode", "graph")
    assert [row["layer_name"] for row in rows] == [
        "Sequential.0",
        "Sequential.1",
        "Sequential.2",
        "Sequential.3",
        "Sequential.4",
        "(idle)",
    ]
    assert max(rows, key=lambda row: float(row["energy_j"]))["layer_name"] == "Sequential.2"
    assert "SIMULATED" in capsys.readouterr().out


@pytest.mark.slow
def test_a_small_model_by_kernel(tmp_path, monkeypatch):
    rows = run("small_model_by_kernel.py", tmp_path, monkeypatch, "--mode", "graph")
    assert {row["op"] for row in rows} >= {"aten.convolution", "aten.relu"}
    assert {row["module"] for row in rows} == {"", "Sequential.*", "Sequential.1"}


@pytest.mark.slow
def test_ones_own_model(tmp_path, monkeypatch, capsys):
    rows = run("my_own_model.py", tmp_path, monkeypatch)
    calls = [row["part"] for row in rows if row["layer_name"] == "block.1"]
    assert calls == ["call 1", "call 2", "call 3"]
    closure = re.search(r"layers and gaps / the untouched step: ([0-9.]+)", capsys.readouterr().out)
    assert float(closure[1]) == pytest.approx(1, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["llama", "gpt2"])
def test_a_language_model_by_layer(model, tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    rows = run("llm_by_layer.py", tmp_path, monkeypatch, "--model", model, "--tokens", "64")
    heads = [float(row["energy_j"]) for row in rows if row["layer_name"] == "lm_head"]
    assert len(heads) == 1
    assert heads[0] > 0
    assert sum(".mlp." in row["layer_name"] for row in rows) >= 8


@pytest.mark.slow
def test_a_small_model_by_layer_on_this_cpu(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    options = ["--device", "cpu", "--batch", "16", "--warmup", "0.2", "--detail-time", "3", "--max-time", "0.5"]
    monkeypatch.setattr(sys, "argv", ["x", *options, "--output", str(tmp_path / "table")])
    runpy.run_path(str(EXAMPLES / "small_model_by_layer.py"), run_name="__main__")
    rows = list(csv.DictReader((tmp_path / "table.csv").open()))
    assert float(next(row for row in rows if row["layer_name"] == "Sequential.2")["duration_ms"]) > 0


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({}, "needs a GPU"),
        ({"BLOCK": "512", "WARPS": "8", "ROUNDS": "3"}, "needs a GPU"),
        ({"BLOCK": "300"}, "BLOCK=300: must be a power of two"),
        ({"WARPS": "many"}, "WARPS=many: must be a power of two"),
        ({"ROUNDS": "0"}, "ROUNDS=0: must be a number above 0"),
    ],
)
def test_a_kernel_with_settings_of_the_environment_says_in_a_line_why_it_cannot_run(environment, says, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=says) as caught:
        runpy.run_path(str(EXAMPLES / "triton_blocks.py"), run_name="__main__")
    assert "\n" not in str(caught.value)


def test_a_kernel_takes_its_settings_from_the_environment(monkeypatch):
    monkeypatch.setenv("BLOCK", "512")
    monkeypatch.setenv("WARPS", "8")
    blocks = runpy.run_path(str(EXAMPLES / "triton_blocks.py"))["of_environment"]()
    assert (blocks.block, blocks.warps) == (512, 8)
