"""Variability between GPUs: one product of matrices on many of them, what else runs beside it, and power limits."""

import json

import numpy as np
import pytest

from commands import command, done
from fake_nvml import FakeNvml, v100
from jouletrace.campaign import run_sweep
from jouletrace.devices import cuda_order, open_device
from jouletrace.devices.nvml import api
from jouletrace.processes import journal_of
from jouletrace.profiler import profile_workload
from jouletrace.run import load

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("short_passes")]

QUICK = ("--max-time", "1", "--warmup", "0.5")
WHOLE = ("--detail", "model")
"""Settings of runs beside a product, which need no kernels, whose powers take most of a profile's time here."""

SMALL_RESNET = ("--config", "depths=[1,1,1,1]", "--config", "hidden_sizes=[8,16,32,64]", "--config", "embedding_size=8")
LEAST_W, MOST_W = 150.0, 300.0
KERNEL = "volta_sgemm_128x64_nn"


@pytest.fixture(scope="module")
def product(study):
    """1536 x 1536 in single precision, three in an iteration, on the third GPU of a fleet."""
    size = ("--config", "size=1536", "--config", "iterations=3")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("__PREFETCH", "off")
        done("profile", "sgemm", *size, "-d", "sim:v100?seed=2", *QUICK, "-o", "sgemm")
    return load("sgemm")


def test_sgemm_of_a_size_so_often_on_a_chosen_gpu(product):
    workload = product.workload
    assert (workload["size"], workload["dtype"], workload["items"]) == (1536, "fp32", 3)
    assert product.devices[0].id == "SIM-v100-2"
    flops_per_s = workload["flops"] / product.result("iteration_time_s").value
    assert 5e12 < flops_per_s < 16e12, "a V100 does 15.7 Tflop/s at most"


def test_its_data_are_random_and_repeat_with_the_seed(product):
    assert product.workload["inputs"] == "random"
    assert product.settings["seed"] == 0


def test_what_differs_from_run_to_run_is_in_the_percentiles(product, capsys):
    latency = json.loads(command(capsys, "show", "sgemm", "--json").out)["model"]["latency_ms"]
    known = [value for name in ("min", "p25", "p90", "p99", "max") if (value := latency[name]) is not None]
    assert known == sorted(known)
    assert known[0] < known[-1]


def test_idle_power_is_measured_beside_it(product):
    deep, context = (product.result(f"baseline_{name}_idle_w").value for name in ("deep", "context"))
    assert 20 < deep < context < product.result("power_w").value


def test_an_environment_variable_that_the_study_sets_is_in_the_run(product):
    assert product.environment["__PREFETCH"] == "off"


def test_the_size_that_uses_a_device_best_is_searched(study, no_rapl):
    done("profile", "gemm", "--config", "size=auto", "-d", "cpu", *QUICK, "-o", "auto")
    workload = load("auto").workload
    assert str(workload["size"]) in workload["size_tried"]
    assert len(workload["size_tried"]) > 1


def test_resnet50_trains_beside_it_with_label_smoothing(study):
    options = ("--task", "train", "--label-smoothing", "0.1", "--batch", "128", "--optimizer", "sgd")
    done("profile", "resnet50", *options, *SMALL_RESNET, *WHOLE, "-d", "sim:v100", *QUICK, "-o", "resnet")
    run = load("resnet")
    assert (run.workload["task"], run.workload["batch"], run.workload["label_smoothing"]) == ("train", 128, 0.1)
    assert run.result("energy_total_j").value > 0


def test_resnet50_trains_on_a_folder_of_images(study, no_rapl):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name in ("n01443537", "n01629819"):
        (study / "images" / name).mkdir(parents=True)
        for number in range(4):
            pixels = rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)
            image.fromarray(pixels).save(study / "images" / name / f"{number}.png")
    options = ("--task", "train", "--data", "images", "--batch", "2", "--config", "num_labels=2")
    done("profile", "resnet50", *options, *SMALL_RESNET, *WHOLE, "-d", "cpu", *QUICK, "-o", "images-run")
    run = load("images-run")
    assert "8 images of 2 classes" in run.workload["data"]
    assert run.result("latency_s").value > 0


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("dlrm", ("--config", "rows=1000")),
        ("gpt2", ("--config", "n_layer=1", "--seq-len", "64")),
    ],
)
def test_recommendation_and_language_models_run_too(study, name, changes):
    done("profile", name, *changes, "-d", "sim:v100", *QUICK, "-o", name)
    run = load(name)
    assert run.result("energy_total_j").value > 0
    assert run.workload["counted"]["bytes_moved"] > 0


@pytest.mark.slow
def test_power_limits_are_stepped_through_and_the_old_one_comes_back(study, capsys, monkeypatch):
    """Points run in this process: that each has one of its own is held elsewhere, and takes ten seconds each."""

    def here(workload, settings, folder, limit_s):
        profile_workload(workload, settings, folder=folder)

    monkeypatch.setitem(run_sweep.__kwdefaults__, "runner", here)
    limits = ("--power-limit", f"{LEAST_W:g},{MOST_W:g}", "--yes")
    said = command(capsys, "sweep", "sgemm", "-d", "sim:v100", *limits, *QUICK, "-o", "limits", "--json")
    assert said.code == 0, said.err
    capped, free = json.loads(said.out)["points"]
    assert capped["power_w"]["value"] < 1.1 * LEAST_W < free["power_w"]["value"] < 1.1 * MOST_W
    assert capped["latency_s"]["value"] > 1.2 * free["latency_s"]["value"]
    limiter = open_device("sim:v100")
    assert limiter.limit_w() == MOST_W
    assert not journal_of(limiter.info).exists()


def test_power_limits_and_persistence_mode_are_reported(capsys, monkeypatch):
    monkeypatch.setattr(api, "_library", lambda: FakeNvml(v100(uuid="GPU-first")))
    monkeypatch.setattr(cuda_order, "cuda_uuids", lambda: ["GPU-first"])
    said = " ".join(command(capsys, "doctor", "-d", "cuda:0").out.split())
    assert "power limit 700 W (min 200 W, max 700 W, default 700 W)" in said, (
        "as the stand-in for the driver reports it"
    )
    assert "persistence on" in said
