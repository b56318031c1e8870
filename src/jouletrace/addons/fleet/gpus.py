"""Which GPUs there are on this host, as a fleet takes them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import closing

import numpy as np

from jouletrace.addons.fleet.plan import FleetGpu
from jouletrace.devices import list_devices, open_device
from jouletrace.devices.cuda_order import cuda_uuids
from jouletrace.devices.nvml.vendor import no_gpu_reason
from jouletrace.errors import SIMULATE_GPU, BadInputError, NotPossibleError
from jouletrace.run import DeviceInfo

ALL = "all"
_AIR_C = (24.0, 36.0)
"""Where the air that a simulated host takes in may lie: hosts differ in that, and GPUs in everything else."""


def find_gpus(device: str = "auto", gpus: str = ALL, nodes: int = 1) -> tuple[list[FleetGpu], list[FleetGpu]]:
    """The GPUs that are measured, and the others here.

    Args:
        device: "auto" for the GPUs that CUDA shows, "cpu", or "sim:NAME" for simulated GPUs.
        gpus: "all", numbers as CUDA counts or UUIDs with commas between; of simulated GPUs, how many.
        nodes: Hosts with so many simulated GPUs each.

    Raises:
        BadInputError: If there is no such GPU.
        NotPossibleError: If no GPU can be seen here.
    """
    if device.startswith("sim:"):
        return simulated(device, gpus, nodes), []
    if nodes != 1:
        raise BadInputError(f"--nodes {nodes}: only simulated hosts are made so; real ones come with --engine ray")
    if device == "cpu":
        if gpus != ALL:
            raise BadInputError(f"--gpus {gpus}: --device cpu is one device")
        return [FleetGpu(socket.gethostname(), open_device("cpu").info.id, 0, "cpu", "CPU")], []
    if device != "auto":
        raise BadInputError(f"--device {device}: a fleet is of auto, cpu or sim:NAME; choose GPUs by --gpus")
    return chosen(visible(), gpus)


def visible() -> list[FleetGpu]:
    """The whole GPUs that CUDA shows to this process, in its order.

    Raises:
        NotPossibleError: If there is none.
    """
    reason = no_gpu_reason()
    if reason is not None:
        raise NotPossibleError(f"no fleet here: {reason}; {SIMULATE_GPU}")
    infos = {info.id: info for info in list_devices() if info.kind == "gpu"}
    uuids = cuda_uuids()
    if uuids is None:  # nothing to ask: NVML's order, and nothing hidden
        uuids = list(infos)
    found = [_of(infos[uuid], index) for index, uuid in enumerate(uuids) if uuid in infos]
    if not found:
        raise NotPossibleError("CUDA shows no whole GPU to this process (CUDA_VISIBLE_DEVICES, MIG)")
    return found


def chosen(there: Sequence[FleetGpu], gpus: str) -> tuple[list[FleetGpu], list[FleetGpu]]:
    """Those that are meant, and the rest.

    Raises:
        BadInputError: If one isn't there; those that are there are named.
    """
    if gpus == ALL:
        return list(there), []
    taken = []
    for word in [part.strip() for part in gpus.split(",")]:
        if word.isascii() and word.isdecimal():
            matches = [gpu for gpu in there if gpu.index == int(word)]
        else:
            matches = [gpu for gpu in there if word and gpu.id.lower().startswith(word.lower())]
        if len(matches) != 1:
            names = ", ".join(f"{gpu.index} ({gpu.id})" for gpu in there)
            trouble = "there is no GPU" if not matches else "several begin with"
            raise BadInputError(f"--gpus {gpus}: {trouble} {word!r}; here are {names}")
        if matches[0] not in taken:
            taken.append(matches[0])
    return taken, [gpu for gpu in there if gpu not in taken]


def busy(gpus: Sequence[FleetGpu]) -> dict[str, str]:
    """Who uses which of these GPUs now: text by id. To be asked before anything of ours runs there."""
    found = {}
    for gpu in gpus:
        with closing(open_device(gpu.device)) as device:
            users = [f"{process.name or 'a process'} (pid {process.pid})" for process in device.processes()]
        if users:
            found[gpu.id] = f"{gpu} is in use by {', '.join(users)}"
    return found


def simulated(device: str, gpus: str, nodes: int) -> list[FleetGpu]:
    """GPUs that differ by seed, in hosts that differ by the air that they take in; nothing tells how.

    Raises:
        BadInputError: If the number makes no sense, or the spec says itself which GPU it is.
    """
    count = 1 if gpus == ALL else int(gpus) if gpus.isascii() and gpus.isdecimal() else 0
    if count < 1 or nodes < 1:
        raise BadInputError(f"--gpus {gpus}, --nodes {nodes}: of simulated GPUs, give their number")
    name, _, query = device.partition("?")
    parts = [part for part in query.split("&") if part]
    if any(part.startswith(("seed=", "run=")) for part in parts):
        raise BadInputError(f"--device {device}: which board and run it is, a fleet chooses itself")
    if any(part.startswith("realtime=") for part in parts):
        # the process that records would open a GPU of its own, on which nothing runs
        raise BadInputError(f"--device {device}: GPUs of a fleet live in their own time, not in real time")
    found = []
    for number in range(count * nodes):
        node = number // count
        own = [*parts, f"seed={number}"]
        if nodes > 1 and not any(part.startswith("given=") for part in parts):
            air_c = np.random.default_rng([node, len(_AIR_C)]).uniform(*_AIR_C)
            own.append(f"given=ambient_c:{air_c:.2f}")
        spec = f"{name}?{'&'.join(own)}"
        info = open_device(spec).info
        found.append(FleetGpu(f"sim-node-{node}", info.id, number % count, spec, info.name))
    return found


def _of(info: DeviceInfo, index: int) -> FleetGpu:
    return FleetGpu(info.host or socket.gethostname(), info.id, index, info.id, info.name, info.index)
