"""A fleet over a Ray cluster: one Ray task for the work that runs at once on a host, which starts a process per GPU.

There is no Ray task per GPU: a task can't request a specific GPU, and processes with a common start, alongside noise,
need a coordinator. The task holds all GPUs of its host, so that no other user's work runs on a neighbour.

A lost host loses only its own results; they are recorded as such, and the same command tries again.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from jouletrace.addons.fleet.engine import Todo
from jouletrace.addons.fleet.gpus import busy, chosen, simulated, visible
from jouletrace.addons.fleet.node import Node, Note, Outcome
from jouletrace.addons.fleet.plan import FleetGpu, FleetSettings, Task
from jouletrace.addons.fleet.process import Hear
from jouletrace.errors import BadInputError, JouletraceError, NotPossibleError

_REACH_S = 5.0
_FIND_S = 120.0
_LOOK_S = 2.0

_RAY_DEFAULTS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_NUM_REDIS_GET_RETRIES": "2",  # of 40 s each: the default of twenty takes a quarter of an hour
}


@dataclass(frozen=True)
class Host:
    """A host of the cluster.

    Attributes:
        name: Name of the host in the results.
        ray_id: Ray's id of it, which is new whenever it joins.
        gpus: Number of GPUs that Ray assigns there.
    """

    name: str
    ray_id: str
    gpus: float


@dataclass
class Cluster:
    """A Ray cluster as an engine.

    Attributes:
        settings: The settings of the fleet.
        gpus: The GPUs to measure.
        others: Other GPUs, for noise.
        hosts: Their hosts, by the name of the node.
        busy: Users of those in use, by id.
    """

    settings: FleetSettings
    gpus: list[FleetGpu]
    others: list[FleetGpu]
    hosts: dict[str, Host]
    busy: dict[str, str] = field(default_factory=dict)

    def work(self, store: str, command: str, todo: Todo, note: Note, hear: Hear) -> None:
        """Carry out the missing tasks: all hosts at once, each with one round after the other."""
        ray = _ray()
        left = {name: list(groups) for name, groups in todo.items()}
        begun_c: dict[str, dict[str, float]] = {name: {} for name in left}
        running: dict[Any, tuple[str, list[Task]]] = {}

        def submit(name: str) -> None:
            if left[name]:
                group = left[name].pop(0)
                there = [gpu for gpu in [*self.gpus, *self.others] if gpu.node == name]
                asked = _on(self.hosts[name], do_round, self.settings, there, store, command, begun_c[name], group)
                running[asked] = (name, group)

        for name in left:
            submit(name)
        while running:
            done, _ = ray.wait(list(running), num_returns=1, timeout=_LOOK_S)
            for ref in done:
                name, group = running.pop(ref)
                try:
                    outcomes, begun_c[name] = _answer(ref)
                except JouletraceError:
                    raise
                except Exception as error:  # Ray raises many exceptions for lost hosts
                    self._lost(name, group, left[name], error, note)
                else:
                    for outcome in outcomes:
                        hear(outcome.task.gpu, {"is": "failed" if outcome.reason else "done"})
                        note(outcome)
                submit(name)

    def _lost(self, name: str, group: list[Task], left: list[list[Task]], error: Exception, note: Note) -> None:
        """Record the results lost with a host, or with a Ray process there."""
        host = self.hosts[name]
        alive = host.ray_id in {one.ray_id for one in alive_hosts()}
        reason = "vanished" if alive else "lost_node"
        text = (
            f"Ray's process on {name} ended: {(str(error).splitlines() or [type(error).__name__])[0][:160]}"
            if alive
            else f"the host {name} was lost"
        )
        lost = [group]
        if not alive:
            lost += left
            left.clear()
        for task in chain.from_iterable(lost):
            note(Outcome(task, reason, text))


@contextmanager
def open_ray(settings: FleetSettings, address: str | None, device: str, gpus: str, nodes: int) -> Iterator[Cluster]:
    """Join a Ray cluster, or start one on this host if it is in none, and locate its GPUs.

    Args:
        settings: The settings of the fleet.
        address: Address of the cluster's head ("HOST:6379"); None for the cluster of this host.
        device: "auto" or "sim:NAME".
        gpus: "all", or numbers in CUDA's order on each host; for simulated GPUs, their number per host.
        nodes: Number of hosts of simulated GPUs; they are apportioned among those of the cluster.

    Raises:
        BadInputError: If a GPU doesn't exist.
        NotPossibleError: If Ray is missing, the cluster can't be reached, or it has no GPU.
    """
    ray = _connect(address)
    try:
        hosts = alive_hosts()
        if device.startswith("sim:"):
            boards = simulated(device, gpus, nodes)
            names = list(dict.fromkeys(board.node for board in boards))
            places = {name: replace(hosts[n % len(hosts)], name=name, gpus=0) for n, name in enumerate(names)}
            yield Cluster(settings, boards, [], places)
            return
        if device != "auto":
            raise BadInputError(f"--device {device}: over Ray a fleet takes auto or sim:NAME")
        found = _find(hosts)
        measured: list[FleetGpu] = []
        others: list[FleetGpu] = []
        users: dict[str, str] = {}
        for there, used in found.values():
            own, rest = chosen(there, gpus)
            measured += own
            others += rest
            users |= used
        yield Cluster(settings, measured, others, {host.name: host for host in hosts if host.name in found}, users)
    finally:
        ray.shutdown()


def alive_hosts() -> list[Host]:
    """Live hosts of the cluster, by name; hosts with the same name are distinguished by Ray's id."""
    ray = _ray()
    nodes = sorted((node for node in ray.nodes() if node["Alive"]), key=lambda node: str(node["NodeID"]))
    names = [str(node["NodeManagerHostname"]) for node in nodes]
    return [
        Host(
            name if names.count(name) == 1 else f"{name}-{str(node['NodeID'])[:8]}",
            str(node["NodeID"]),
            float(node.get("Resources", {}).get("GPU", 0.0)),
        )
        for name, node in zip(names, nodes, strict=True)
    ]


def do_round(
    settings: FleetSettings,
    gpus: Sequence[FleetGpu],
    store: str,
    command: str,
    begun_c: dict[str, float],
    group: Sequence[Task],
) -> tuple[list[Outcome], dict[str, float]]:
    """Carry out a group of tasks on the host of this call; returns outcomes and the GPUs' initial temperatures."""
    node = Node(settings, gpus, store, command, begun_c)
    outcomes: list[Outcome] = []
    node.at_once(group, outcomes.append, lambda gpu, message: None)
    return outcomes, node.begun_c


def gpus_here(name: str) -> tuple[list[FleetGpu], dict[str, str]]:
    """The GPUs that Ray assigns to a task that requests all of its host, and their other users."""
    gpus = [replace(gpu, node=name) for gpu in visible()]
    return gpus, busy(gpus)


def _find(hosts: Sequence[Host]) -> dict[str, tuple[list[FleetGpu], dict[str, str]]]:
    ray = _ray()
    asked = {host.name: _on(host, gpus_here, host.name) for host in hosts if host.gpus > 0}
    if not asked:
        raise NotPossibleError("no host of this Ray cluster has a GPU")
    _, late = ray.wait(list(asked.values()), num_returns=len(asked), timeout=_FIND_S)
    if late:
        names = ", ".join(name for name, ref in asked.items() if ref in late)
        raise NotPossibleError(f"Ray has assigned the GPUs of {names} to others: try again when they are free")
    return {name: _answer(ref) for name, ref in asked.items()}


def _on(host: Host, call: Any, *args: Any) -> Any:
    """Submit a call to a host, with all its GPUs; Ray never retries it."""
    strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
    pinned = strategies.NodeAffinitySchedulingStrategy(node_id=host.ray_id, soft=False)
    options = {"num_cpus": 0, "num_gpus": host.gpus, "max_retries": 0, "scheduling_strategy": pinned}
    return _ray().remote(**options)(call).remote(*args)


def _answer(ref: Any) -> Any:
    """The result of a call; its own exceptions of jouletrace are raised unchanged, without Ray's traceback."""
    try:
        return _ray().get(ref)
    except Exception as error:
        if isinstance(cause := getattr(error, "cause", None), JouletraceError):
            raise cause from None
        raise


def _ray() -> Any:
    """Ray, an optional dependency; untyped, so that types don't depend on its installation."""
    return importlib.import_module("ray")


def _connect(address: str | None) -> Any:
    for name, value in _RAY_DEFAULTS.items():
        os.environ.setdefault(name, value)
    address = address or os.environ.get("RAY_ADDRESS") or None  # Ray itself would use it, and retry for minutes
    try:
        ray = _ray()
    except ImportError:
        raise NotPossibleError("--engine ray needs Ray: pip install 'jouletrace[fleet]'") from None
    if address is not None:
        _reach(address)
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    try:
        if address is not None:
            ray.init(address=address, **quiet)
        else:
            try:
                ray.init(address="auto", **quiet)
            except ConnectionError:
                ray.init(include_dashboard=False, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = address or "here"
        raise NotPossibleError(f"no Ray cluster at {where}: {(str(error).splitlines() or [''])[0][:160]}") from None
    return ray


def _reach(address: str) -> None:
    """Refuse an address without a listening server: Ray itself would retry for minutes.

    Raises:
        BadInputError: If it isn't HOST:PORT.
        NotPossibleError: If no server listens.
    """
    if address in ("auto", "local"):
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        raise BadInputError(f"--address {address}: write HOST:PORT, such as head:6379")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S):
            pass
    except (OSError, OverflowError) as error:
        raise NotPossibleError(f"no Ray cluster at {address}: {error}") from None
