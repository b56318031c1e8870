"""Profilers by layer and by kernel: the power of a small model's parts, and of those that generate text."""

import csv
import io
import json
from itertools import pairwise

import pytest

from commands import command, done
from jouletrace.run import load

pytest.importorskip("torch")

pytestmark = pytest.mark.thorough

BOARD = "sim:v100?cap=off"
QUICK = ("-d", BOARD, "--max-time", "1", "--warmup", "0.5")
DUMMY = """
import torch

def dummy(batch=512):
    layers = torch.nn.Linear(2048, 8192), torch.nn.ReLU(), torch.nn.Linear(8192, 2048)
    return torch.nn.Sequential(*layers), torch.randn(batch, 2048)
"""


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def dummy(study):
    """A model of three layers, by layer."""
    (study / "model.py").write_text(DUMMY)
    done("profile", "model.py:dummy", "--detail", "layer", *QUICK, "-o", "dummy")
    return load("dummy")


@pytest.fixture(scope="module")
def layers(dummy):
    """Its rows as a table of numbers."""
    rows = table(done("show", "dummy", "--detail", "layer", "--format", "csv").out)
    return [row for row in rows if row["level"] == "layer"]


@pytest.fixture(scope="module")
def kernels(dummy):
    """The rows of its kernels."""
    rows = table(done("show", "dummy", "--detail", "kernel", "--format", "csv").out)
    return [row for row in rows if row["level"] == "kernel"]


@pytest.fixture(scope="module")
def generated(study):
    """One layer of LLaMA that generates nine tokens."""
    pytest.importorskip("transformers")
    length = ("--task", "generate", "--batch", "8", "--prompt-len", "256", "--max-new-tokens", "9", "--mode", "graph")
    one_layer = ("--config", "num_hidden_layers=1")
    done("profile", "llama-1b", *length, *one_layer, "--detail", "layer", "--detail-time", "6", *QUICK, "-o", "llama")
    return load("llama")


def test_each_layer_has_its_time_power_and_energy(layers):
    whole, *layers = layers
    assert [row["name"] for row in (whole, *layers)] == ["Sequential", *(f"Sequential.{place}" for place in range(3))]
    for row in (whole, *layers):
        seconds, watts, joules = (float(row[name]) for name in ("time_s", "power_w", "energy_total_j"))
        assert joules == pytest.approx(watts * seconds, rel=1e-3)
        assert float(row["energy_total_j_low"]) < joules < float(row["energy_total_j_high"])
    products = [float(layers[place]["energy_total_j"]) for place in (0, 2)]
    assert products[0] == pytest.approx(products[1], rel=0.2), "as much work"
    assert products[0] > 10 * float(layers[1]["energy_total_j"])


def test_each_kernel_has_its_time_power_and_energy(kernels):
    assert {row["op"] for row in kernels} >= {"aten.addmm", "aten.relu"}
    for row in kernels:
        seconds, watts, joules = (float(row[name]) for name in ("time_s", "power_w", "energy_total_j"))
        assert joules == pytest.approx(watts * seconds, rel=1e-3)


def test_kernels_are_grouped_by_their_name_and_operator(kernels):
    products = [row for row in kernels if row["op"] == "aten.addmm"]
    assert len({(row["name"], row["op"], row["shapes"]) for row in products}) == len(products) == 2


def test_parts_make_up_the_whole(dummy, layers):
    closure = dummy.result("closure_layers")
    assert closure.value == pytest.approx(1, abs=0.05)
    whole = dummy.result("energy_total_j").value
    outer, *inner = (float(row["energy_total_j"]) for row in layers)
    assert sum(inner) == pytest.approx(outer, rel=1e-6)
    assert outer <= 1.05 * whole


def test_the_summary_has_the_gpu_total_time_energy_and_mean_power(dummy, capsys):
    said = json.loads(command(capsys, "show", "dummy", "--json").out)
    assert said["devices"][0]["name"] == "SIMULATED V100 32GB"
    energy, watts = said["model"]["energy_j"]["total"]["value"], said["model"]["power_w"]["value"]
    assert energy == pytest.approx(watts * dummy.result("iteration_time_s").value, rel=1e-6)


def test_all_rows_are_in_a_table_for_other_programs(dummy, capsys):
    said = command(capsys, "show", "dummy", "--detail", "kernel", "--format", "csv")
    names = table(said.out)[0].keys()
    assert {"name", "op", "shapes", "module", "count", "time_s", "power_w", "energy_total_j", "share"} <= set(names)
    command(capsys, "export", "dummy", "-f", "csv", "-o", "tables")
    with open("tables/units.csv", newline="") as file:
        assert {"layer", "kernel"} <= {row["level"] for row in csv.DictReader(file)}


@pytest.mark.parametrize(("detail", "level"), [("layer", "layer"), ("kernel", "kernel")])
def test_the_costliest_are_a_table_of_their_own(dummy, capsys, detail, level):
    every = table(command(capsys, "show", "dummy", "--detail", detail, "--format", "csv").out)
    top = table(command(capsys, "show", "dummy", "--detail", detail, "--top", "2", "--format", "csv").out)
    energies = [float(row["energy_total_j"]) for row in every if row["level"] == level]
    kept = [float(row["energy_total_j"]) for row in top if row["level"] == level]
    assert sorted(kept) == sorted(energies)[-2:]


def test_every_reading_of_power_is_kept_with_its_time(dummy):
    time, watts = dummy.series(dummy.devices[0].id, "power_w")
    assert len(watts) > 500
    assert all(after > before for before, after in pairwise(time))


@pytest.mark.slow  # profiler/test_generation.py has phases and layers of a smaller model, with their truth
def test_text_generation_is_reported_by_layer_and_phase(generated, capsys):
    assert generated.result("closure_layers").value == pytest.approx(1, abs=0.05)
    rows = table(command(capsys, "show", "llama", "--detail", "layer", "--format", "csv").out)
    energy = {row["name"]: float(row["energy_total_j"] or "nan") for row in rows if row["level"] == "layer"}
    both = energy["model.layers.0.mlp"]
    assert energy["model.layers.0.mlp (prefill)"] > energy["model.layers.0.mlp (decode)"] > 0
    assert energy["model.layers.0.mlp (prefill)"] + energy["model.layers.0.mlp (decode)"] == pytest.approx(both)
    per_token = generated.result("energy_per_token_j").value
    assert per_token * 8 * 9 == pytest.approx(generated.result("energy_total_j").value, rel=1e-6)


@pytest.mark.slow  # profiler/test_generation.py has phases and layers of a smaller model, with their truth
def test_text_generation_is_reported_by_kernel(generated, capsys):
    rows = table(command(capsys, "show", "llama", "--detail", "kernel", "--format", "csv").out)
    kernels = [row for row in rows if row["level"] == "kernel" and row["energy_total_j"]]
    alone = [row for row in kernels if row["module"]]  # others are known in sum only
    costliest = max(alone, key=lambda row: float(row["energy_total_j"]))
    assert costliest["op"] == "aten.mm"
    whole = generated.result("energy_total_j").value
    assert 0.3 * whole < sum(float(row["energy_total_j"]) for row in kernels) < 1.05 * whole
