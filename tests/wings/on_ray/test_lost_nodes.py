"""Campaigns on three nodes of Ray with simulated GPUs, nodes killed in the middle: figures are those of one host."""

import json
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import jouletrace as jt
from commands import command
from shipped import ABSENT

ray = pytest.importorskip("ray")

TOY = """
import os, torch

def make(batch=8, width=1024):
    with open("began", "a") as file:
        print(os.environ.get("RAY_RAYLET_PID", 0), os.environ.get("CUDA_VISIBLE_DEVICES"), file=file)
    torch.manual_seed(0)
    return torch.nn.Linear(256, width), torch.randn(batch, 256)
"""
SHORT = ("--warmup", "0.3")


@pytest.fixture(scope="module", autouse=True)
def cluster(study):
    """Three nodes with two simulated GPUs each, and a head without any, to which Ray is connected."""
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80_000_000}
    (study / "toy.py").write_text(TOY)
    soon = {"health_check_period_ms": 1000, "health_check_timeout_ms": 9000, "health_check_failure_threshold": 2}
    config = {**soon, "worker_niceness": 0}  # a node that is lost is missed soon, on a busy machine too
    head = {**small, "include_dashboard": False, "_system_config": config}
    started = Cluster(initialize_head=True, head_node_args=head)
    for number in range(3):
        started.add_node(**small, num_gpus=2, node_name=f"node-{number}")
    ray.init(address=started.address, log_to_driver=False)
    yield started
    ray.shutdown()
    started.shutdown()


@pytest.fixture(autouse=True)
def same_cache(own_cache, study, monkeypatch):
    """What is known of GPUs is the same here and on nodes, which began before the test did."""
    monkeypatch.setenv("JOULETRACE_CACHE", str(study / "cache"))


@pytest.fixture
def killed(cluster):
    """A thread that kills the node that begins to measure first, with all its processes."""
    Path("began").write_text("")

    def kill():
        import psutil  # it comes with Ray

        while not began():
            time.sleep(0.02)
        raylet = int(began()[0][0])
        (node,) = (one for one in cluster.worker_nodes if one.all_processes["raylet"][0].process.pid == raylet)
        for process in psutil.Process(raylet).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        cluster.remove_node(node, allow_graceful=False)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


def began():
    """The node and the GPUs that Ray shows to each process that measured on one."""
    return [line.split() for line in Path("began").read_text().splitlines() if not line.startswith("0 ")]


def alive():
    return [node["NodeName"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")]


def figures(sweep):
    return [(entry.point, entry.outcome, entry.figures()) for entry in sweep.entries]


@pytest.mark.slow
@pytest.mark.thorough
def test_repeats_come_home_from_one_gpu_as_one_run(capsys):
    args = ("profile", "toy.py:make", "--device", "sim:h100", "--max-time", "1", *SHORT)
    said = command(capsys, *args, "--repeats", "2", "--on", "ray", "-o", "repeats")
    assert said.code == 0, said.err
    run = jt.load("repeats")
    assert run.complete
    assert run.settings["repeats"] == 2
    assert len(run.devices) == 1
    assert set(run.windows["block"].to_pylist()) == {0, 1}
    assert [len(list(Path("repeats/repeats", number).glob("run.json"))) for number in "12"] == [1, 1]


@pytest.mark.slow
def test_a_tune_is_one_task_whose_folder_comes_home(capsys):
    args = ("tune", "toy.py:make", "--over", "batch=8", "--device", "sim:h100", "--on", "ray", "-o", "tuned")
    said = command(capsys, *args)
    assert said.code == 0, said.err
    assert "reference" in said.out
    assert command(capsys, "show", "tuned").out == said.out
    assert "--on resumes nothing" in command(capsys, *args).err


@pytest.mark.slow
@pytest.mark.skipif("fleet" in ABSENT, reason="it is another wing")
def test_gpus_of_a_lost_node_are_named_and_the_others_are_as_of_one_command_a_host(
    capsys, monkeypatch, killed, tmp_path
):
    from jouletrace.wings.fleet import engine

    before = alive()
    gpus = ("--device", "sim:a100", "--gpus", "1")
    args = ("fleet", "run", "toy.py:make", *gpus, "--repeats", "1", "--seconds", "1", *SHORT)
    said = command(capsys, *args, "--on", "ray", "-o", "fleet", "--json")
    assert said.code == 3
    on_ray = json.loads(said.out)
    lost = {line["node"] for line in on_ray["failures"]}
    assert len(lost) == 1
    assert [line["reason"] for line in on_ray["failures"]] == ["vanished"]
    assert "its node of the cluster was lost" in said.err
    assert len(list(Path("fleet").rglob("*.zip"))) == len(before) - 1
    assert {devices for _, devices in began()} == {"0,1"}, "a task has all GPUs of its node"

    find_gpus = engine.find_gpus
    monkeypatch.setenv("JOULETRACE_CACHE", str(tmp_path))  # what the nodes knew before
    for number in range(len(before)):
        monkeypatch.setattr(engine, "find_gpus", lambda device, gpus, _, n=number: find_gpus(device, gpus, n))
        if find_gpus("sim:a100", "1", number)[0][0].node not in lost:
            assert command(capsys, *args, "-o", "by-hand").code == 0
    by_hand = json.loads(command(capsys, "fleet", "report", "by-hand", "--json").out)
    assert on_ray["groups"] == by_hand["groups"]


@pytest.mark.slow
def test_points_of_a_lost_node_begin_again_on_another(killed):
    batches = [1, 8]
    given = {"batch": batches, "device": "sim:h100", "warmup": 0.3, "max_time": 1, "progress": False}
    before = alive()
    on_ray = jt.sweep("toy.py:make", **given, folder="grid", on="ray")
    killed.join(60)
    assert len(alive()) == len(before) - 1
    assert len(began()) == len(batches) + 1, "a point was begun on the node that is lost"
    assert {devices for _, devices in began()} <= {"0", "1"}
    assert len(list(Path("grid/points").rglob("run.json"))) == len(batches)
    stored = {path: path.stat().st_mtime_ns for path in Path("grid/points").rglob("run.json")}
    assert figures(on_ray) == figures(jt.sweep("toy.py:make", **given, folder="one"))
    assert figures(on_ray) == figures(jt.sweep("toy.py:make", **given, folder="grid", on="ray"))
    assert stored == {path: path.stat().st_mtime_ns for path in Path("grid/points").rglob("run.json")}
