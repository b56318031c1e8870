"""From the user's request to GPUs and an engine, with all checks before any measurement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from jouletrace.addons.fleet.engine import Work, local
from jouletrace.addons.fleet.gpus import ALL, busy, find_gpus
from jouletrace.addons.fleet.plan import COLLECTIVE, ENGINES, TOGETHER, FleetGpu, FleetSettings
from jouletrace.addons.fleet.process import Child, listen
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.profiler.prepare import check_has_phases, resolve
from jouletrace.workloads.gemm import GEMMS
from jouletrace.workloads.kernels import AUTO, whole

_SIZE_LIMIT_S = 300.0


@dataclass(frozen=True)
class Request:
    """The requested GPUs and engine.

    Attributes:
        device: "auto", "cpu" or "sim:NAME".
        gpus: "all", numbers or UUIDs; for simulated GPUs, their number per host.
        nodes: Number of hosts of simulated GPUs.
        engine: "local" or "ray".
        address: Address of the Ray cluster.
        allow_busy: Also measure GPUs that other processes use.
    """

    device: str = "auto"
    gpus: str = ALL
    nodes: int = 1
    engine: str = "local"
    address: str | None = None
    allow_busy: bool = False


@dataclass(frozen=True)
class OpenFleet:
    """A fleet ready to run.

    Attributes:
        settings: The settings, with everything resolved that all GPUs must share.
        gpus: The GPUs to measure.
        excluded: GPUs that can't be measured, by id, and why.
        engine: Creates the engine, given the destination of results and the command line.
    """

    settings: FleetSettings
    gpus: list[FleetGpu]
    excluded: dict[str, str]
    engine: Callable[[str, str], Work]


@contextmanager
def open_fleet(settings: FleetSettings, request: Request) -> Iterator[OpenFleet]:
    """Locate the GPUs, refuse impossible requests, and resolve what all GPUs must share.

    Raises:
        BadInputError: If the request makes no sense here.
        NotPossibleError: If no GPU or no cluster is available.
    """
    _check(settings, request)
    if request.engine == "ray":
        from jouletrace.addons.fleet.ray_engine import open_ray

        with open_ray(settings, request.address, request.device, request.gpus, request.nodes) as cluster:
            for node in dict.fromkeys(gpu.node for gpu in cluster.gpus):
                check_noise(settings, [gpu for gpu in [*cluster.gpus, *cluster.others] if gpu.node == node])
            gpus = cluster.gpus
            excluded = {} if request.allow_busy else cluster.busy
            cluster.gpus = _free(settings, gpus, cluster.others, excluded)
            yield OpenFleet(settings, gpus, excluded, lambda place, command: partial(cluster.work, place, command))
        return
    gpus, others = find_gpus(request.device, request.gpus, request.nodes)
    check_noise(settings, [*gpus, *others])
    excluded = {} if request.allow_busy or gpus[0].simulated else busy([*gpus, *others])
    free = _free(settings, gpus, others, excluded)
    settled = settle_size(settings, free[0])
    yield OpenFleet(settled, gpus, excluded, lambda place, command: local(settled, free, others, place, command))


def _check(settings: FleetSettings, request: Request) -> None:
    """Refuse impossible requests before any GPU is looked up."""
    simulated = request.device.startswith("sim:")
    if request.engine not in ENGINES:
        raise BadInputError(f"--engine {request.engine}: must be one of {', '.join(ENGINES)}")
    if request.address is not None and request.engine != "ray":
        raise BadInputError(f"--address {request.address}: only --engine ray has one")
    check_has_phases(resolve(settings.workload), settings.profile)
    for noise in settings.noise:
        resolve(noise.workload)
    if settings.workload in (*GEMMS, "memcpy", COLLECTIVE):
        for key, text in settings.profile.config.items():
            if key in ("size", "iterations") and not (key == "size" and _size_wanted(settings)):
                whole(settings.workload, key, text)
    if settings.workload == COLLECTIVE:
        if settings.placement != TOGETHER:
            raise BadInputError(f"{COLLECTIVE}: GPUs of a collective sum must run together")
        if simulated:
            raise NotPossibleError(f"{COLLECTIVE} needs real GPUs: simulated GPUs have no links to one another")
        if settings.profile.mode != "eager":
            mode = settings.profile.mode
            raise BadInputError(f"--mode {mode}: calls of {COLLECTIVE} are announced singly: use eager")
    if request.engine == "ray" and _size_wanted(settings) and not simulated:
        raise BadInputError(
            "--size auto: over Ray all hosts must run the same size; determine it on one GPU and give it"
        )


def _free(
    settings: FleetSettings, gpus: list[FleetGpu], others: list[FleetGpu], users: dict[str, str]
) -> list[FleetGpu]:
    """The GPUs that no other process uses.

    Raises:
        NotPossibleError: If none is free, or noise would run on a GPU that another process uses.
    """
    for noise in settings.noise:
        for gpu in [*gpus, *others]:
            if noise.on(gpu) and gpu.id in users:
                raise NotPossibleError(f"--noise {noise}: {users[gpu.id]}; --allow-busy starts it nevertheless")
    free = [gpu for gpu in gpus if gpu.id not in users]
    if not free:
        raise NotPossibleError(f"{'; '.join(users[gpu.id] for gpu in gpus)}; --allow-busy measures them nevertheless")
    return free


def check_noise(settings: FleetSettings, gpus: list[FleetGpu]) -> None:
    """Refuse noise that would run nowhere, or on GPUs that it can't affect.

    Args:
        settings: The requested settings.
        gpus: All GPUs of one host.

    Raises:
        BadInputError: With the noise.
    """
    for noise in settings.noise:
        if any(gpu.simulated for gpu in gpus):
            raise BadInputError(f"--noise {noise}: noise has no effect on simulated GPUs")
        there = {gpu.index for gpu in gpus}
        missing = [place for place in noise.gpus if place not in there]
        if missing:
            raise BadInputError(f"--noise {noise}: {gpus[0].node} has no GPU {missing[0]}; it has {sorted(there)}")


def _size_wanted(settings: FleetSettings) -> bool:
    return settings.workload in GEMMS and settings.profile.config.get("size") == AUTO


def settle_size(settings: FleetSettings, gpu: FleetGpu) -> FleetSettings:
    """Replace ``--size auto`` by the best size on one of the GPUs: all must run the same.

    Raises:
        NotPossibleError: If it can't be determined.
    """
    if not _size_wanted(settings):
        return settings
    config = {key: value for key, value in settings.profile.config.items() if key != "size"}
    if not gpu.simulated:
        with closing(Child(gpu, {"size": {"settings": settings.to_dict(), "device": gpu.device}})) as child:
            listen([child], ("done",), _SIZE_LIMIT_S, lambda gpu, message: None)
        if child.said.get("is") != "done":
            raise NotPossibleError(f"--size auto: {child.said.get('text')}")
        config["size"] = str(child.said["size"])
    return replace(settings, profile=replace(settings.profile, config=config))
