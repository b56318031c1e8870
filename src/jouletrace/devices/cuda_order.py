"""The GPU behind ``cuda:N``: CUDA's own order, queried from the driver without creating a context.

CUDA may order GPUs differently from NVML, hides some by ``CUDA_VISIBLE_DEVICES`` and shows a MIG
instance as a device. libcuda decides all of that, so libcuda is queried. A context would
raise the GPU's idle power by about 50 W; ``cuInit`` alone creates none.
"""

from __future__ import annotations

import ctypes
import os
import uuid
from typing import Any

_LIBRARY = "libcuda.so.1"
_SUCCESS = 0
_NO_DEVICE = 100


class _Uuid(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_ubyte * 16),)


def cuda_uuids(library: Any = None) -> list[str] | None:
    """UUIDs of the devices that CUDA shows to this process, "GPU-..." or "MIG-...": entry N is ``cuda:N``.

    Empty if CUDA shows none; None if libcuda is missing or doesn't start. ``library`` replaces libcuda.
    """
    cuda = library if library is not None else _load()
    if cuda is None:
        return None
    code = cuda.cuInit(0)
    if code == _NO_DEVICE:
        return []
    count = ctypes.c_int(0)
    if code != _SUCCESS or cuda.cuDeviceGetCount(ctypes.byref(count)) != _SUCCESS:
        return None
    uuids = [_uuid(cuda, index) for index in range(count.value)]
    return [u for u in uuids if u is not None] if all(uuids) else None


def cuda_index(device_uuid: str, library: Any = None) -> int | None:
    """N of the ``cuda:N`` with this UUID; None if CUDA doesn't show it to this process."""
    uuids = cuda_uuids(library) or []
    return uuids.index(device_uuid) if device_uuid in uuids else None


def show_alone(device_uuid: str) -> None:
    """Make CUDA show only this device to this process; has no effect once CUDA has started in it.

    A process can use one MIG instance, which ``CUDA_VISIBLE_DEVICES`` alone selects: without it CUDA
    shows the first instance of the first GPU.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = device_uuid


def _load() -> Any:
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError:
        return None


def _uuid(cuda: Any, index: int) -> str | None:
    device = ctypes.c_int(0)
    if cuda.cuDeviceGet(ctypes.byref(device), index) != _SUCCESS:
        return None
    board = _Uuid()
    if cuda.cuDeviceGetUuid(ctypes.byref(board), device) != _SUCCESS:
        return None
    instance = _Uuid()
    second = getattr(cuda, "cuDeviceGetUuid_v2", None)  # since CUDA 11.4; distinguishes MIG instances
    if second is None or second(ctypes.byref(instance), device) != _SUCCESS:
        instance = board
    kind = "GPU" if bytes(instance.bytes) == bytes(board.bytes) else "MIG"
    return f"{kind}-{uuid.UUID(bytes=bytes(instance.bytes))}"
