"""A MIG instance: a slice of a GPU, with its own memory and processes but without a power sensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jouletrace.devices.base import Capability, Clock, Process, Source
from jouletrace.devices.nvml.api import Nvml, text
from jouletrace.devices.nvml.gpm import gpm_sources
from jouletrace.devices.nvml.gpu import NvmlGpu
from jouletrace.devices.nvml.identity import find_board, list_processes, uuid_of
from jouletrace.errors import BadInputError
from jouletrace.run import DeviceInfo


class NvmlMig:
    """A slice of a GPU; implements ``devices.base.Device``.

    Its sources are those of the whole GPU, and their channels carry the GPU's id: NVML
    repeats the GPU's power for a slice, which would silently give a wrong number.

    Args:
        uuid: UUID of the instance ("MIG-...").
        nvml: The library; this object closes it. None opens it.
        clock: Source of time; None is the real clock.

    Raises:
        BadInputError: If the instance doesn't exist.
        NotPossibleError: If nvidia-ml-py or the driver is missing, or the GPU is lost.
    """

    def __init__(self, uuid: str, nvml: Nvml | None = None, clock: Clock | None = None) -> None:
        self._nvml = nvml if nvml is not None else Nvml()
        self.spec = uuid
        try:
            self._handle, self.parent = _find(self._nvml, uuid)
            self._board = NvmlGpu(self.parent, self._nvml, clock)
        except BaseException:
            self._nvml.close()
            raise
        self.clock: Clock = self._board.clock
        self.info: DeviceInfo = describe_mig(self._nvml, self._handle, self._board.info)

    def sources(self) -> list[Source]:
        """The sources of the whole GPU, with the GPU's id, then activity and memory of the slice."""
        instance = self.info.details["gpu_instance"]
        if instance is None:
            return self._board.sources()
        board = find_board(self._nvml, self.parent)
        of_slice = gpm_sources(self._nvml, board, self.info.id, self.clock, int(instance), self._handle)
        return [*self._board.sources(), *of_slice]

    def capabilities(self) -> list[Capability]:
        """The GPU's capabilities, after an entry for the power sensor that the slice lacks."""
        lacking = Capability(
            "power of the instance",
            False,
            note=f"MIG instances have no power sensor; power of the whole GPU {self.parent} is recorded",
        )
        return [lacking, *self._board.capabilities()]

    def processes(self) -> list[Process]:
        """Processes in this instance."""
        return list_processes(self._nvml, self._handle)

    def close(self) -> None:
        """Release NVML. Safe to call twice."""
        self._nvml.close()


def mig_handles(nvml: Nvml, board: Any) -> Iterator[Any]:
    """Handles of the MIG instances of a GPU; none if MIG is off."""
    for index in range(int(nvml.get("nvmlDeviceGetMaxMigDeviceCount", board) or 0)):
        handle = nvml.get("nvmlDeviceGetMigDeviceHandleByIndex", board, index)
        if handle is not None:
            yield handle


def describe_mig(nvml: Nvml, handle: Any, board: DeviceInfo) -> DeviceInfo:
    """Identity of an instance, without power limits: those belong to the GPU."""
    memory = nvml.get("nvmlDeviceGetMemoryInfo", handle)
    details: dict[str, Any] = {
        "no_power": "mig_no_power",
        "no_power_note": f"a MIG instance has no power sensor; its GPU is {board.id}",
        "parent": board.id,
        "parent_name": board.name,
        "gpu_instance": nvml.get("nvmlDeviceGetGpuInstanceId", handle),
        "compute_instance": nvml.get("nvmlDeviceGetComputeInstanceId", handle),
    }
    attributes = nvml.get("nvmlDeviceGetAttributes_v2", handle)
    if attributes is not None:
        details["multiprocessors"] = int(attributes.multiprocessorCount)
    return DeviceInfo(
        id=uuid_of(nvml, handle),
        name=text(nvml.get("nvmlDeviceGetName", handle)) or f"{board.name} MIG",
        kind="mig",
        host=board.host,
        index=board.index,
        serial=board.serial,
        pci_bus=board.pci_bus,
        vbios=board.vbios,
        ecc=board.ecc,
        driver=board.driver,
        memory_bytes=int(memory.total) if memory is not None else None,
        persistence=board.persistence,
        details=details,
    )


def _find(nvml: Nvml, uuid: str) -> tuple[Any, str]:
    for board in nvml.handles():
        for handle in mig_handles(nvml, board):
            if uuid_of(nvml, handle) == uuid:
                return handle, uuid_of(nvml, board)
    raise BadInputError(f"there is no MIG instance {uuid} here")
