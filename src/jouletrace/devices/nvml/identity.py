"""A GPU itself: finding it, its identity and other properties that stay constant, its processes."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from jouletrace.devices.base import Process
from jouletrace.devices.nvml.api import Nvml, Unavailable, text
from jouletrace.devices.nvml.sensors import compute_capability
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.run import DeviceInfo

_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
}
CLOCK_SM, _CLOCK_MEMORY = 1, 2


def uuid_of(nvml: Nvml, handle: Any) -> str:
    """UUID of a GPU or MIG instance.

    Raises:
        NotPossibleError: If the driver doesn't report it.
    """
    try:
        return str(text(nvml.call("nvmlDeviceGetUUID", handle)))
    except Unavailable as error:
        raise NotPossibleError(f"a GPU exists, but its UUID can't be read: {error}") from None


def find_board(nvml: Nvml, uuid: str) -> Any:
    """The handle of the GPU with this UUID.

    Raises:
        BadInputError: If the GPU doesn't exist.
    """
    for handle in nvml.handles():
        if uuid_of(nvml, handle) == uuid:
            return handle
    lost = f" (out of reach: {'; '.join(nvml.unreachable)})" if nvml.unreachable else ""
    raise BadInputError(f"there is no GPU {uuid} here{lost}")


def describe(nvml: Nvml, handle: Any) -> DeviceInfo:
    """Identity and limits of a whole GPU; values that the driver doesn't report are None.

    Raises:
        NotPossibleError: If the GPU is gone.
    """
    pci = nvml.get("nvmlDeviceGetPciInfo", handle)
    ecc = nvml.get("nvmlDeviceGetEccMode", handle)
    memory = nvml.get("nvmlDeviceGetMemoryInfo", handle)
    persistence = nvml.get("nvmlDeviceGetPersistenceMode", handle)
    return DeviceInfo(
        id=uuid_of(nvml, handle),
        name=text(nvml.get("nvmlDeviceGetName", handle)) or "NVIDIA GPU",
        kind="gpu",
        host=socket.gethostname(),
        index=nvml.get("nvmlDeviceGetIndex", handle),
        serial=text(nvml.get("nvmlDeviceGetSerial", handle)),
        pci_bus=text(pci.busId) if pci is not None else None,
        vbios=text(nvml.get("nvmlDeviceGetVbiosVersion", handle)),
        ecc=bool(ecc[0]) if ecc is not None else None,
        driver=text(nvml.get("nvmlSystemGetDriverVersion")),
        power_limit_w=_watts(nvml.get("nvmlDeviceGetEnforcedPowerLimit", handle)),
        power_limits_w=_limits(nvml, handle),
        memory_bytes=int(memory.total) if memory is not None else None,
        persistence=bool(persistence) if persistence is not None else None,
        details=_details(nvml, handle),
    )


def _limits(nvml: Nvml, handle: Any) -> dict[str, float]:
    low, high = nvml.get("nvmlDeviceGetPowerManagementLimitConstraints", handle) or (None, None)
    default = nvml.get("nvmlDeviceGetPowerManagementDefaultLimit", handle)
    limits = {"min": _watts(low), "max": _watts(high), "default": _watts(default)}
    return {name: watts for name, watts in limits.items() if watts is not None}


def _details(nvml: Nvml, handle: Any) -> dict[str, Any]:
    capability = compute_capability(nvml, handle)
    mig = nvml.get("nvmlDeviceGetMigMode", handle)
    cuda = nvml.get("nvmlSystemGetCudaDriverVersion")
    facts = {
        "architecture": _ARCHITECTURES.get(nvml.get("nvmlDeviceGetArchitecture", handle)),
        "compute_capability": f"{capability[0]}.{capability[1]}" if capability else None,
        "board_part_number": text(nvml.get("nvmlDeviceGetBoardPartNumber", handle)),
        "cuda_driver": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        "mig_enabled": bool(mig[0]) if mig is not None else None,
        "clock_sm_max_mhz": nvml.get("nvmlDeviceGetMaxClockInfo", handle, CLOCK_SM),
        "clock_memory_max_mhz": nvml.get("nvmlDeviceGetMaxClockInfo", handle, _CLOCK_MEMORY),
    }
    return {key: value for key, value in facts.items() if value is not None}


def _watts(milliwatts: Any) -> float | None:
    return None if milliwatts is None else milliwatts / 1e3


def list_processes(nvml: Nvml, handle: Any) -> list[Process]:
    """Processes on a GPU or MIG instance, each once, by pid.

    The pids are those of this namespace where the driver can translate them; the name of a process outside
    this namespace is "".

    Raises:
        NotPossibleError: If the GPU is gone.
    """
    memory: dict[int, int | None] = {}
    for function in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
        for process in nvml.get(function, handle) or []:
            used = process.usedGpuMemory
            # A process with compute and graphics work is in both lists with the same memory.
            if memory.get(process.pid) is None:
                memory[process.pid] = None if used is None else int(used)
    return [Process(pid, process_name(pid), used) for pid, used in sorted(memory.items())]


def process_name(pid: int) -> str:
    """Command name of a process, or "" if it can't be seen."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
