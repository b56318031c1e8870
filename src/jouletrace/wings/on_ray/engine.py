"""Calls as tasks of Ray: a ``campaign.cluster.Cluster``."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from jouletrace.devices import is_simulated
from jouletrace.errors import WITHOUT_GPU, BrokenOffError, NotPossibleError
from jouletrace.version import __version__

RETRIES = 3
"""Times that a task is begun again if its process or node is lost: Ray's default."""

LOOK_S = 5.0
"""Seconds without a result after which it is looked whether a node is left."""


def nodes(device: str) -> list[str]:
    """See ``campaign.cluster.Cluster``."""
    able = _able(_connected(), device)
    return [node["NodeID"] for node in sorted(able, key=lambda node: (node["NodeName"], node["NodeID"]))]


def each(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], device: str, nodes: Sequence[str] = ()
) -> Iterator[tuple[int, Any]]:
    """See ``campaign.cluster.Cluster``."""
    ray = _connected()
    able = _able(ray, device)
    task = ray.remote(_task())
    waiting = {}
    for number, call in enumerate(calls):
        options = _whole(ray, nodes[number], able, device) if nodes else _share(able, device)
        repeated = task.options(max_retries=RETRIES, **options)
        waiting[repeated.remote(pickle.dumps((function, call)), __version__)] = number
    try:
        while waiting:
            done, _ = ray.wait(list(waiting), timeout=LOOK_S)
            if not done and not _has_nodes(ray, device):
                done = list(waiting)
            for reference in done:
                yield waiting.pop(reference), _result(ray, reference)
    finally:
        for reference in waiting:
            with suppress(Exception):  # it may have ended
                ray.cancel(reference, force=True)


def _connected() -> Any:
    """The module ``ray``, connected: to RAY_ADDRESS, to the cluster that runs here, or to one of this host alone.

    Raises:
        NotPossibleError: If it isn't installed, or can't be reached.
    """
    try:
        import ray
    except ImportError:
        raise NotPossibleError("--on ray needs Ray: pip install 'jouletrace[ray]'") from None
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray reports to its makers
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR)
            ray._private.worker._worker_logs_enabled = False  # else stdout gets the log of a node that is lost
        except Exception as error:  # of Ray any: another version of Python there, processes that don't start
            raise NotPossibleError(f"no Ray cluster can be used: {' '.join(str(error).split())[:300]}") from None
    return ray


def _able(ray: Any, device: str) -> list[dict[str, Any]]:
    """Nodes that can run a device: those with GPUs, and without any all for the CPU or a simulated GPU.

    Raises:
        NotPossibleError: If no node can.
    """
    alive = [node for node in ray.nodes() if node["Alive"]]
    with_gpu = [node for node in alive if node["Resources"].get("GPU", 0) >= 1]
    if with_gpu and device != "cpu":
        return with_gpu
    if device != "cpu" and not is_simulated(device):
        raise NotPossibleError(f"none of {len(alive)} nodes of the Ray cluster has a GPU; {WITHOUT_GPU}")
    return [node for node in alive if node["Resources"].get("CPU", 0) >= 1]


def _share(able: Sequence[dict[str, Any]], device: str) -> dict[str, Any]:
    """Options of a call that has one GPU, one simulated GPU, or a whole node for its CPU."""
    spread = {"scheduling_strategy": "SPREAD"}
    if device == "cpu":  # power is the whole host's: only the largest nodes are used, each by one call at a time
        return {**spread, "num_cpus": max(node["Resources"]["CPU"] for node in able)}
    if any("GPU" in node["Resources"] for node in able):
        return {**spread, "num_gpus": 1, "num_cpus": 0}
    return {**spread, "num_cpus": 1}


def _whole(ray: Any, name: str, able: Sequence[dict[str, Any]], device: str) -> dict[str, Any]:
    """Options of a call that has a node and all its GPUs; one that is lost by now fails as a task."""
    pinned = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(name, soft=False)
    resources: dict[str, float] = next((node["Resources"] for node in able if node["NodeID"] == name), {})
    if device != "cpu" and "GPU" in resources:
        return {"scheduling_strategy": pinned, "num_gpus": int(resources["GPU"]), "num_cpus": 0}
    return {"scheduling_strategy": pinned, "num_cpus": resources.get("CPU", 0)}


def _has_nodes(ray: Any, device: str) -> bool:
    try:
        return bool(_able(ray, device))
    except NotPossibleError:
        return False


def _task() -> Callable[[bytes, str], Any]:
    """The function of tasks, which travels as code: a node may lack jouletrace, or have another version."""

    def call(payload: bytes, wanted: str) -> Any:
        import pickle
        import socket

        try:
            from jouletrace.version import __version__ as version
        except ImportError:
            version = "none"
        if version != wanted:
            return version, socket.gethostname()
        function, arguments = pickle.loads(payload)
        try:
            return wanted, function(*arguments)
        except Exception as error:
            return wanted, error

    return call


def _result(ray: Any, reference: Any) -> Any:
    """The return of a task's call, or the exception that it raised or that says why there is none."""
    try:
        version, result = ray.get(reference, timeout=LOOK_S)
    except ray.exceptions.RayTaskError as error:
        return NotPossibleError(f"a task of Ray failed: {str(error).strip().splitlines()[-1]}")
    except ray.exceptions.RayError:
        lost = "its node of the cluster was lost, and no other takes its place"
        return BrokenOffError(f"{lost}, or its process died {1 + RETRIES} times")
    if version != __version__:
        return NotPossibleError(f"{result} has jouletrace {version}, and this host {__version__}: install the same")
    return result
