"""Sweeps on three nodes of Ray with simulated GPUs: each point once, and figures equal to those of one host."""

import threading
import time

import pytest

import jouletrace as jt

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.usefixtures("started_by_python")

BATCHES = (1, 8)


@pytest.fixture(scope="module")
def cluster(study):
    """Three nodes with two simulated GPUs each, and a head without any, to which Ray is connected."""
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80_000_000}
    started = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    started.test_nodes = [started.add_node(**small, num_gpus=2, node_name=f"node-{number}") for number in range(3)]
    ray.init(address=started.address, log_to_driver=False)
    yield started
    ray.shutdown()
    started.shutdown()


@pytest.fixture(autouse=True)
def same_cache(own_cache, cluster, study, monkeypatch):
    """What is known of GPUs is the same here and on nodes, which began before the test did."""
    monkeypatch.setenv("JOULETRACE_CACHE", str(study / "cache"))


def swept(folder, on, **options):
    given = {"batch": BATCHES, "device": "sim:h100", "folder": folder, "on": on, "progress": False}
    return jt.sweep("resnet50", **{**given, **options})


def figures(sweep):
    return [(entry.point, entry.outcome, entry.figures()) for entry in sweep.entries]


@pytest.mark.thorough
def test_a_sweep_on_ray_has_the_figures_of_one_host(cluster, tmp_path):
    on_ray = swept(tmp_path / "ray", "ray")
    assert len(on_ray.runs) == len(BATCHES)
    assert figures(on_ray) == figures(swept(tmp_path / "one", None))
    stored = {path: path.stat().st_mtime_ns for path in (tmp_path / "ray" / "points").rglob("run.json")}
    assert figures(swept(tmp_path / "ray", "ray")) == figures(on_ray)
    assert stored == {path: path.stat().st_mtime_ns for path in (tmp_path / "ray" / "points").rglob("run.json")}


@pytest.mark.slow
def test_a_node_that_is_killed_loses_no_point(cluster, tmp_path):
    batches = [1, 2, 4, 8, 16, 32, 64, 128]
    lost = cluster.test_nodes[1]

    def kill():
        while not any((tmp_path / "ray").rglob("run.json")):
            time.sleep(0.05)
        cluster.remove_node(lost, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    on_ray = swept(tmp_path / "ray", "ray", batch=batches)
    killer.join(60)
    assert sum(node["Alive"] for node in ray.nodes()) == 3
    assert len(list((tmp_path / "ray" / "points").rglob("run.json"))) == len(batches)
    assert figures(on_ray) == figures(swept(tmp_path / "one", None, batch=batches))


@pytest.mark.thorough
def test_what_a_cluster_cannot_do_is_refused(cluster, tmp_path):
    with pytest.raises(jt.BadInputError, match="the cluster chooses GPUs"):
        swept(tmp_path / "one", "ray", device="cuda:1")
    with pytest.raises(jt.BadInputError, match="no value of --on 'slurm'"):
        swept(tmp_path / "one", "slurm")
    with pytest.raises(jt.BadInputError, match="--power-limit and --clock change a GPU of this host"):
        swept(tmp_path / "one", "ray", clock=1200)
    with pytest.raises(jt.BadInputError, match="--repeats with --on would mix GPUs"):
        swept(tmp_path / "one", "ray", repeats=2)
