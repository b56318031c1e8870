"""MIG sweeps: a GPU is divided, and deep-learning workloads run on slices of several kinds."""

import csv
import json

import pyarrow.parquet as pq
import pytest

from commands import command, done
from jouletrace.devices import Process
from jouletrace.run import load
from jouletrace.wings.mig import SimulatedMig

pytest.importorskip("torch")

pytestmark = pytest.mark.thorough

BOARD = ("-d", "sim:a100-80")
KINDS = ("1g.10gb", "7g.80gb")
MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.Linear(4096, 1024))

    def forward(self, x):
        y = self.layers(x)
        return y.square().mean() if self.training else y

def model(batch=1):
    return Model(), torch.randn(batch, 1024)
"""
TIMES = "model_name,batch_size,latency,latency_std,throughput,start_timestamp,end_timestamp\n"
BEGAN = 1_657_289_500


@pytest.fixture(scope="module")
def divided(study):
    """A GPU with one instance of half of it: what list said before and with it, and what restore left."""
    before = json.loads(done("mig", "list", *BOARD, "--json").out)
    applied = done("mig", "apply", "4g.40gb", *BOARD, "--yes")
    during = json.loads(done("mig", "list", *BOARD, "--json").out)
    done("mig", "restore", *BOARD)
    return before, during, json.loads(done("mig", "list", *BOARD, "--json").out), applied


@pytest.fixture(scope="module")
def swept(study):
    """One model on the smallest slice and on the whole GPU, both tasks, two batch sizes."""
    (study / "model.py").write_text(MODEL)
    asked = ("--profiles", ",".join(KINDS), "--models", "model.py:model", "--tasks", "cv_infer,cv_train")
    said = done("mig", "sweep", *BOARD, *asked, "--batch", "64,1024", "--seconds", "1", "-o", "sweep", "--json")
    rows = json.loads(said.out)["rows"]
    return {(row["profile"], row["task"], row["batch"]): row for row in rows}


def test_mig_is_turned_on_and_off(divided):
    before, during, after, applied = divided
    assert [one["mode"]["current"] for one in (before, during, after)] == [False, True, False]
    assert "turning MIG on" in applied.err


def test_profiles_are_listed_with_what_is_free_their_memory_and_engines(divided):
    found = {one["name"]: one for one in divided[1]["profiles"]}
    assert set(found) >= {"1g.10gb", "1g.10gb+me", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"}
    assert {name: found[name]["id"] for name in ("1g.10gb", "4g.40gb", "7g.80gb")} == {
        "1g.10gb": 19,
        "4g.40gb": 5,
        "7g.80gb": 0,
    }
    small = found["1g.10gb"]
    assert (small["free"], small["total"], small["multiprocessors"]) == (3, 7, 14)
    assert small["memory_bytes"] == 9.5 * 2**30
    assert found["4g.40gb"]["free"] == 0
    assert {"copy", "decoder", "encoder", "jpeg", "ofa"} == set(small["engines"])


def test_an_instance_is_created_with_a_compute_instance_of_all_of_it(divided):
    (instance,) = divided[1]["instances"]
    assert (instance["profile"], instance["placement"]) == ("4g.40gb", "0:4")
    (compute,) = instance["compute_instances"]
    assert compute["slices"] == 4


def test_instances_are_named_by_their_ids(divided):
    (instance,) = divided[1]["instances"]
    assert isinstance(instance["id"], int)
    assert instance["compute_instances"][0]["uuid"].startswith("MIG-")


def test_a_gpu_that_processes_use_is_not_divided(study, capsys, monkeypatch):
    monkeypatch.setattr(SimulatedMig, "processes", lambda self: [Process(4711, "python3")])
    said = command(capsys, "mig", "apply", "7g.80gb", *BOARD, "--yes")
    assert said.code == 3
    assert "python3 (pid 4711)" in said.err
    assert json.loads(command(capsys, "mig", "list", *BOARD, "--json").out)["instances"] == []


def test_a_sweep_has_latency_throughput_activity_and_memory_of_each_slice(swept):
    assert len(swept) == len(KINDS) * 2 * 2
    for row in swept.values():
        assert row["status"] == "done"
        assert row["samples_per_s"] == pytest.approx(row["batch"] * row["requests_per_s"])
        assert 0 < row["graphics_active"] <= 1
        assert row["fb_used_bytes"] > 2**28
    assert swept["7g.80gb", "infer", 1024]["samples_per_s"] > 3 * swept["1g.10gb", "infer", 1024]["samples_per_s"]
    assert swept["1g.10gb", "infer", 1024]["samples_per_s"] > swept["1g.10gb", "infer", 64]["samples_per_s"]


def test_training_is_swept_too_and_takes_longer(swept):
    for kind in KINDS:
        for batch in (64, 1024):
            infer, train = (swept[kind, task, batch]["latency_mean_s"] for task in ("infer", "train"))
            assert train > 1.5 * infer


def test_energy_of_a_sample_is_reported_though_no_slice_has_a_sensor(swept):
    for row in swept.values():
        assert row["energy_per_sample_j"] == pytest.approx(row["power_w"] / row["samples_per_s"])
        assert "modelled" in row["flags"]


def test_rows_are_saved_as_tables(swept, study):
    with open("sweep/sweep.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(swept) == pq.read_table("sweep/sweep.parquet").num_rows
    assert {"profile", "model", "task", "batch"} <= {name.split(" ")[0] for name in rows[0]}


def test_the_same_command_goes_on_where_it_was_cut_off(swept, capsys):
    asked = ("--profiles", ",".join(KINDS), "--models", "model.py:model", "--tasks", "cv_infer,cv_train")
    again = ("mig", "sweep", *BOARD, *asked, "--batch", "64,1024", "--seconds", "1", "-o", "sweep", "--json")
    rows = json.loads(command(capsys, *again).out)["rows"]
    assert {(row["profile"], row["task"], row["batch"]): row for row in rows} == swept


@pytest.mark.parametrize(
    ("model", "task"),
    [
        ("vision_transformer", "cv_infer"),
        pytest.param("resnet50", "cv_infer", marks=pytest.mark.slow),
        pytest.param("swin_transformer", "cv_infer", marks=pytest.mark.slow),
        ("minilm", "nlp_train"),
    ],
)
def test_models_and_tasks_have_the_names_that_the_study_gives_them(study, model, task):
    pytest.importorskip("transformers")
    asked = ("--profiles", "7g.80gb", "--models", model, "--tasks", task, "--seconds", "1")
    (row,) = json.loads(done("mig", "sweep", *BOARD, *asked, "-o", model, "--json").out)["rows"]
    assert (row["status"], row["model"], row["task"]) == ("done", model, task.partition("_")[2])


def test_a_slice_is_a_device_like_any_other(study, swept):
    quick = ("--max-time", "1", "--warmup", "0.5")
    done("profile", "model.py:model", "-d", "sim:a100-80?mig=4g.40gb", *quick, "-o", "slice")
    run = load("slice")
    assert run.devices[0].id.startswith("MIG-")
    assert run.result("latency_s").value > 0
    energy = run.result("energy_total_j")
    assert (energy.value, energy.reason) == (None, "mig_no_power")
