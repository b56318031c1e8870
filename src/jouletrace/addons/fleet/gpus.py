"""The GPUs of this host, as a fleet uses them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import closing

from jouletrace.addons.fleet.plan import FleetGpu
from jouletrace.devices import list_devices, open_device
from jouletrace.devices.cuda_order import cuda_uuids
from jouletrace.devices.nvml.vendor import no_gpu_reason
from jouletrace.errors import SIMULATE_GPU, BadInputError, NotPossibleError
from jouletrace.run import DeviceInfo

ALL = "all"


def find_gpus(device: str, gpus: str) -> tuple[list[FleetGpu], list[FleetGpu]]:
    """The GPUs to measure, and the others on this host.

    Args:
        device: "auto" for the GPUs that CUDA shows, "cpu", or "sim:NAME" for simulated GPUs.
        gpus: "all", numbers in CUDA's order or UUIDs, separated by commas; for simulated GPUs, their number.

    Raises:
        BadInputError: If a GPU doesn't exist.
        NotPossibleError: If no GPU is available here.
    """
    if device.startswith("sim:"):
        return simulated(device, gpus), []
    if device == "cpu":
        if gpus != ALL:
            raise BadInputError(f"--gpus {gpus}: --device cpu is one device")
        return [FleetGpu(socket.gethostname(), open_device("cpu").info.id, 0, "cpu", "CPU")], []
    if device != "auto":
        raise BadInputError(f"--device {device}: a fleet takes auto, cpu or sim:NAME; choose GPUs by --gpus")
    return chosen(visible(), gpus)


def visible() -> list[FleetGpu]:
    """The whole GPUs that CUDA shows to this process, in its order.

    Raises:
        NotPossibleError: If none is visible.
    """
    reason = no_gpu_reason()
    if reason is not None:
        raise NotPossibleError(f"no fleet here: {reason}; {SIMULATE_GPU}")
    infos = {info.id: info for info in list_devices() if info.kind == "gpu"}
    uuids = cuda_uuids()
    if uuids is None:  # libcuda is missing: NVML's order, and nothing hidden
        uuids = list(infos)
    found = [_of(infos[uuid], index) for index, uuid in enumerate(uuids) if uuid in infos]
    if not found:
        raise NotPossibleError("CUDA shows no whole GPU to this process (CUDA_VISIBLE_DEVICES, MIG)")
    return found


def chosen(there: Sequence[FleetGpu], gpus: str) -> tuple[list[FleetGpu], list[FleetGpu]]:
    """The selected GPUs, and the rest.

    Raises:
        BadInputError: If one doesn't exist; the message names the existing ones.
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
    """Users of these GPUs: text by id. Call it before we start any process there."""
    found = {}
    for gpu in gpus:
        with closing(open_device(gpu.device)) as device:
            users = [f"{process.name or 'a process'} (pid {process.pid})" for process in device.processes()]
        if users:
            found[gpu.id] = f"{gpu} is in use by {', '.join(users)}"
    return found


def simulated(device: str, gpus: str) -> list[FleetGpu]:
    """GPUs that differ by seed.

    Raises:
        BadInputError: If the number makes no sense, or the spec names a specific GPU.
    """
    count = 1 if gpus == ALL else int(gpus) if gpus.isascii() and gpus.isdecimal() else 0
    if count < 1:
        raise BadInputError(f"--gpus {gpus}: for simulated GPUs, give their number")
    name, _, query = device.partition("?")
    parts = [part for part in query.split("&") if part]
    if any(part.startswith(("seed=", "run=")) for part in parts):
        raise BadInputError(f"--device {device}: a fleet chooses the seed and the run itself")
    if any(part.startswith("realtime=") for part in parts):
        # the recorder process would open its own GPU, on which nothing runs
        raise BadInputError(f"--device {device}: GPUs of a fleet run in virtual time, not in real time")
    found = []
    for number in range(count):
        spec = f"{name}?{'&'.join([*parts, f'seed={number}'])}"
        info = open_device(spec).info
        found.append(FleetGpu("sim-node", info.id, number, spec, info.name))
    return found


def _of(info: DeviceInfo, index: int) -> FleetGpu:
    return FleetGpu(info.host or socket.gethostname(), info.id, index, info.id, info.name, info.index)
