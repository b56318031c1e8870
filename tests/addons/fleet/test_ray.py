"""Fleets over Ray: a real one, started here, with simulated GPUs."""

import json
import os
import socket

import pytest

from commands import command
from jouletrace.addons.fleet import ray_engine
from jouletrace.addons.fleet.dataset import Dataset
from jouletrace.addons.fleet.engine import Unwatched, run_fleet
from jouletrace.addons.fleet.plan import IN_TURN, FleetSettings
from jouletrace.addons.fleet.store import open_store
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.profiler.settings import ProfileSettings

pytestmark = pytest.mark.thorough

pytest.importorskip("torch")
SHORT = ("--seconds", "1", "--warmup", "0.5", "--idle", "0.3", "--mode", "graph")


@pytest.fixture
def ray(monkeypatch):
    """Ray, ended afterwards whatever happened."""
    found = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    yield found
    found.shutdown()


def test_a_head_that_cannot_be_reached_is_reported_in_a_line(ray, capsys, workspace, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said = command(capsys, "fleet", "run", "gemm", "--engine", "ray", "--address", f"127.0.0.1:{port}")
    assert said.code == 3
    assert f"no Ray cluster at 127.0.0.1:{port}" in said.complaint
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")  # with which Ray itself would try for a quarter of an hour
    assert command(capsys, "fleet", "run", "gemm", "--engine", "ray").complaint == said.complaint
    assert not (workspace / "runs").exists()
    with pytest.raises(BadInputError, match="write HOST:PORT"):
        ray_engine._reach("head")


def test_an_address_without_ray_as_the_engine_is_refused(capsys, workspace):
    said = command(capsys, "fleet", "run", "gemm", "--device", "sim:h100", "--address", "head:6379")
    assert said.code == 2
    assert "only --engine ray has one" in said.complaint


def test_without_ray_its_absence_is_reported(monkeypatch):
    def missing():
        raise ImportError("No module named 'ray'")

    monkeypatch.setattr(ray_engine, "_ray", missing)
    with pytest.raises(NotPossibleError, match="pip install"):
        ray_engine._connect(None)


def fleet_run(capsys, gpus: int) -> dict:
    ordered = ("--device", "sim:h100", "--gpus", str(gpus), "--repeats", "1", "--engine", "ray")
    said = command(capsys, "fleet", "run", "gemm", *ordered, *SHORT, "-o", "fleet", "--json")
    assert said.code == 0, said.err
    assert f"{gpus} new results, 0 existed, 0 missing" in said.err
    found: dict = json.loads(said.out)["groups"][0]
    assert found["facts"]["simulated"] is True
    return found


def test_a_fleet_runs_over_ray(ray, capsys, workspace):
    found = fleet_run(capsys, 2)
    assert [gpu["gpu"] for gpu in found["gpus"]] == ["SIM-h100-80-0", "SIM-h100-80-1"]
    assert found["spread"]["energy_j"]["range"]["value"] > 0, "GPUs differ"


@pytest.mark.slow
def test_eight_gpus_over_ray(ray, capsys, workspace):
    found = fleet_run(capsys, 8)
    times = [gpu["time_s"]["value"]["value"] for gpu in found["gpus"]]
    assert len(set(times)) == 8


@pytest.mark.slow
def test_a_host_that_is_lost_costs_its_results_only_and_a_second_run_resumes(ray, tmp_path, monkeypatch):
    """Two hosts of two GPUs each, in turn; the second is killed when it has its first result."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    profile = ProfileSettings(mode="graph", warmup_s=0.5, idle_s=0.3)
    settings = FleetSettings("gemm", profile, repeats=2, placement=IN_TURN, seconds=1.0)
    place = str(tmp_path / "fleet")
    dataset = Dataset(open_store(place))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        second = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        with ray_engine.open_ray(settings, cluster.address, "sim:h100", "2", 2) as fleet:
            assert len({host.ray_id for host in fleet._hosts.values()}) == 2
            doomed = next(name for name, host in fleet._hosts.items() if host.ray_id == second.node_id)

            class Killer(Unwatched):
                alive = True

                def outcome(self, found):
                    if found.task.gpu.node == doomed and self.alive:
                        self.alive = False
                        cluster.remove_node(second, allow_graceful=False)

            def work(todo, note, hear):
                fleet.work(place, "test", todo, note, hear)

            first = run_fleet(settings, fleet.gpus, dataset, work, watch=Killer())
        assert {(one.task.gpu.node, one.reason) for one in first.failed} == {(doomed, "lost_node")}
        assert sorted(one.task.repeat for one in first.failed) == [0, 1, 1]
        assert first.measured == 5
        assert {one["reason"] for one in dataset.failures()} == {"lost_node"}
        with ray_engine.open_ray(settings, cluster.address, "sim:h100", "2", 2) as fleet:
            again = run_fleet(settings, fleet.gpus, dataset, lambda *order: fleet.work(place, "test", *order))
            with pytest.raises(NotPossibleError, match=r"^no fleet here: [^\n]*$"):  # without Ray's traceback
                ray_engine._answer(ray_engine._on(next(iter(fleet._hosts.values())), ray_engine.gpus_here, "host"))
        assert (again.before, again.measured, again.failed) == (5, 3, ())
        assert dataset.failures() == []
    finally:
        os.environ.pop("RAY_ADDRESS", None)
        ray.shutdown()
        cluster.shutdown()
