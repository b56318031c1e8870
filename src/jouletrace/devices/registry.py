"""Opens devices by the user's names: ``auto``, ``cuda:N``, a UUID, ``cpu``, ``sim:NAME``."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib import import_module
from typing import cast

from jouletrace.devices import cuda_order
from jouletrace.devices.base import Device
from jouletrace.devices.nvml import Nvml, NvmlGpu, NvmlMig
from jouletrace.devices.nvml.identity import describe
from jouletrace.devices.nvml.mig import describe_mig, mig_handles
from jouletrace.devices.rapl import CpuHost
from jouletrace.errors import WITHOUT_GPU, BadInputError, NotPossibleError
from jouletrace.run import DeviceInfo

_SIMULATOR = "jouletrace.simulator.boards"
"""A higher package, loaded by name when a simulated GPU is requested."""

FORMS = "auto, cuda:N, a GPU or MIG UUID, cpu, sim:NAME"


def open_device(spec: str) -> Device:
    """Open one device.

    Args:
        spec: "auto" (the first GPU that CUDA shows, else the CPU), "cuda:N", the UUID of a GPU or
            MIG instance or an unambiguous beginning of it, "cpu", or "sim:NAME".

    Raises:
        BadInputError: If the device doesn't exist; the message lists the existing ones.
        NotPossibleError: If the driver or nvidia-ml-py is missing.
    """
    name = spec.strip()
    if name.startswith("sim:"):
        return cast(Device, import_module(_SIMULATOR).open_simulated(name))
    if name == "auto":
        return _open_auto()
    if name == "cpu":
        return CpuHost()
    if match := re.fullmatch(r"cuda(?::(\d+))?", name):
        return _open_uuid(_cuda_uuid(int(match[1] or 0)))
    if name.upper().startswith(("GPU-", "MIG-")):
        return _open_uuid(_full_uuid(name))
    if name in ("all", "visible"):
        raise BadInputError(f"{name} may mean several devices, but one is required here: {FORMS}")
    raise BadInputError(f"unknown device {spec!r}: it may be {FORMS}; here are {_named(list_devices())}")


def open_devices(specs: Sequence[str]) -> list[Device]:
    """Open several devices, each once even if it is named several times.

    Args:
        specs: As for ``open_device``, or "all" (every whole GPU) or "visible" (every GPU or
            MIG instance that CUDA shows to this process); both mean the CPU on a machine without a GPU.

    Raises:
        BadInputError, NotPossibleError: As ``open_device``; those opened before are closed again.
    """
    names = [name for spec in specs for name in _expanded(spec.strip())]
    opened: dict[str, Device] = {}
    try:
        for name in names:
            device = open_device(name)
            if device.info.id in opened:
                device.close()
            else:
                opened[device.info.id] = device
    except BaseException:
        for device in opened.values():
            device.close()
        raise
    if not opened:
        raise BadInputError(f"no device is named: it may be all, visible, {FORMS}")
    return list(opened.values())


def list_devices() -> list[DeviceInfo]:
    """All devices: GPUs in NVML's order, each followed by its MIG instances, then the CPU."""
    return [*_nvidia(), CpuHost().info]


def no_gpu_reason() -> str | None:
    """Why no NVIDIA GPU can be read here; None if one can."""
    try:
        nvml = Nvml()
    except NotPossibleError as error:
        return str(error)
    try:
        if any(True for _ in nvml.handles()):
            return None
        return "; ".join(nvml.unreachable) or "the NVIDIA driver is installed but detects no GPU"
    finally:
        nvml.close()


def _expanded(spec: str) -> list[str]:
    if spec == "all":
        return [info.id for info in _nvidia() if info.kind == "gpu"] or ["auto"]
    if spec == "visible":
        return (cuda_order.cuda_uuids() if no_gpu_reason() is None else None) or ["auto"]
    return [spec]


def _nvidia() -> list[DeviceInfo]:
    try:
        nvml = Nvml()
    except NotPossibleError:
        return []
    try:
        found = []
        for handle in nvml.handles():
            board = describe(nvml, handle)
            found.append(board)
            found += [describe_mig(nvml, instance, board) for instance in mig_handles(nvml, handle)]
        return found
    finally:
        nvml.close()


def _open_auto() -> Device:
    reason = no_gpu_reason()
    if reason is None:
        uuids = cuda_order.cuda_uuids()
        if uuids is None:  # without libcuda the GPUs can still be monitored
            uuids = [info.id for info in _nvidia()]
        if uuids:
            return _open_uuid(uuids[0])
        reason = f"CUDA shows no GPU to this process{_hidden()}"
    cpu = CpuHost()
    cpu.info.details["no_gpu"] = reason
    return cpu


def _open_uuid(uuid: str) -> Device:
    return NvmlMig(uuid) if uuid.startswith("MIG-") else NvmlGpu(uuid)


def _cuda_uuid(index: int) -> str:
    reason = no_gpu_reason()
    if reason is not None:
        raise NotPossibleError(f"there is no cuda:{index}: {reason}; {WITHOUT_GPU}")
    uuids = cuda_order.cuda_uuids()
    if uuids is None:
        raise NotPossibleError(
            f"cuda:{index} can't be resolved: the CUDA driver library (libcuda.so.1) is missing or "
            f"doesn't start; name the GPU by its UUID: {_named(_nvidia())}"
        )
    if index >= len(uuids):
        there = ", ".join(f"cuda:{n} ({uuid})" for n, uuid in enumerate(uuids)) or "none"
        raise BadInputError(f"there is no cuda:{index}: CUDA shows {there}{_hidden()}")
    return uuids[index]


def _full_uuid(prefix: str) -> str:
    reason = no_gpu_reason()
    if reason is not None:
        raise NotPossibleError(f"there is no GPU {prefix}: {reason}; {WITHOUT_GPU}")
    infos = _nvidia()
    matches = [info for info in infos if info.id.lower().startswith(prefix.lower())]
    if len(matches) == 1:
        return matches[0].id
    if matches:
        raise BadInputError(f"{prefix} is the beginning of several: {_named(matches)}")
    raise BadInputError(f"there is no GPU or MIG instance {prefix}; here are {_named(infos)}")


def _named(infos: list[DeviceInfo]) -> str:
    return ", ".join(f"{info.id} ({info.name})" for info in infos) or "none"


def _hidden() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return f" (CUDA_VISIBLE_DEVICES={visible!r})" if visible is not None else ""
