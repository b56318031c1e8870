"""NVIDIA's devices by name: ``cuda:N`` in CUDA's order, UUIDs or beginnings of them in NVML's."""

from __future__ import annotations

import os
import re

from jouletrace.devices import cuda_order
from jouletrace.devices.base import Device, Vendor, named
from jouletrace.devices.nvml.api import Nvml
from jouletrace.devices.nvml.gpu import NvmlGpu
from jouletrace.devices.nvml.identity import describe
from jouletrace.devices.nvml.mig import NvmlMig, describe_mig, mig_handles
from jouletrace.errors import WITHOUT_GPU, BadInputError, NotPossibleError
from jouletrace.run import DeviceInfo


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


def _open(name: str) -> Device:
    reason = no_gpu_reason()
    if reason is not None:
        what = "GPU " * (not name.startswith("cuda")) + name
        raise NotPossibleError(f"there is no {what}: {reason}; {WITHOUT_GPU}")
    uuid = _cuda_uuid(int(name[5:] or 0)) if name.startswith("cuda") else _full_uuid(name)
    return NvmlMig(uuid) if uuid.startswith("MIG-") else NvmlGpu(uuid)


def _listed() -> list[DeviceInfo]:
    """GPUs in NVML's order, each followed by its MIG instances."""
    try:
        nvml = Nvml()
    except NotPossibleError:
        return []
    try:
        infos = []
        for handle in nvml.handles():
            board = describe(nvml, handle)
            infos.append(board)
            infos += [describe_mig(nvml, instance, board) for instance in mig_handles(nvml, handle)]
        return infos
    finally:
        nvml.close()


def _visible() -> list[str]:
    """UUIDs in CUDA's order; of the first GPU where libcuda can't be asked."""
    reason = no_gpu_reason()
    if reason is not None:
        raise NotPossibleError(reason)
    uuids = cuda_order.cuda_uuids()
    if uuids is None:
        uuids = [info.id for info in _listed()][:1]
    if not uuids:
        raise NotPossibleError(f"CUDA shows no GPU to this process{_hidden()}")
    return uuids


def _cuda_uuid(index: int) -> str:
    uuids = cuda_order.cuda_uuids()
    if uuids is None:
        raise NotPossibleError(
            f"cuda:{index} can't be resolved: the CUDA driver library (libcuda.so.1) is missing or "
            f"doesn't start; name the GPU by its UUID: {named(_listed())}"
        )
    if index >= len(uuids):
        there = ", ".join(f"cuda:{n} ({uuid})" for n, uuid in enumerate(uuids)) or "none"
        raise BadInputError(f"there is no cuda:{index}: CUDA shows {there}{_hidden()}")
    return uuids[index]


def _full_uuid(prefix: str) -> str:
    infos = _listed()
    matches = [info for info in infos if info.id.lower().startswith(prefix.lower())]
    if len(matches) == 1:
        return matches[0].id
    if matches:
        raise BadInputError(f"{prefix} is the beginning of several: {named(matches)}")
    raise BadInputError(f"there is no GPU or MIG instance {prefix}; here are {named(infos)}")


def _hidden() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return f" (CUDA_VISIBLE_DEVICES={visible!r})" if visible is not None else ""


VENDOR = Vendor(
    "cuda:N, a GPU or MIG UUID", re.compile(r"cuda(:[0-9]+)?|(?is:(GPU|MIG)-(?!SIM-).*)"), _open, _listed, _visible
)
