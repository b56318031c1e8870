"""The GPU behind a CUDA device number of a process in an nsys export."""

from __future__ import annotations

import numpy as np

from jouletrace.formats.importers.base import ImportOptions
from jouletrace.formats.importers.nsys.tables import Database, Ints
from jouletrace.run import DeviceInfo

_GPU = ("id", "name", "busLocation", "totalMemory", "uuid", "cuDevice", "chipName", "smCount")


class Devices:
    """The GPUs of an export; ``used`` contains those with work."""

    def __init__(self, database: Database, options: ImportOptions) -> None:
        self._gpus = {row[0]: dict(zip(_GPU, row, strict=True)) for row in database.rows("TARGET_INFO_GPU", _GPU)}
        self._by_process = {
            (pid, cuda): gpu for gpu, cuda, pid in database.rows("TARGET_INFO_CUDA_DEVICE", ["gpuId", "cudaId", "pid"])
        }
        self._by_number = {gpu["cuDevice"]: number for number, gpu in self._gpus.items() if gpu["cuDevice"] is not None}
        self._name = options.device
        self._used: dict[str, DeviceInfo] = {}
        self._codes: dict[str, int] = {}

    @property
    def ids(self) -> list[str]:
        """Ids of the devices so far, by their codes."""
        return list(self._codes)

    def codes(self, process: Ints, device: Ints) -> Ints:
        """The code of the device of each row, from its process (``globalPid``) and CUDA device number."""
        key = (process.astype(np.int64) << 8) ^ (device & 0xFF)
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        found = np.array([self._code_of_cuda(int(process[i]), int(device[i])) for i in first], np.int64)
        codes: Ints = found[inverse.reshape(-1)]
        return codes

    def gpu(self, number: int) -> str:
        """The id of a GPU by its number in the export."""
        gpu = self._gpus.get(number)
        return self._id(number, None if gpu is None else number)

    def used(self) -> list[DeviceInfo]:
        """The devices with work or measurements."""
        return list(self._used.values())

    def _code_of_cuda(self, process: int, device: int) -> int:
        pid = (process >> 24) & 0xFFFFFF  # packed as in the export
        number = self._by_process.get((pid, device), self._by_number.get(device))
        return self._codes[self._id(device, number)]

    def _id(self, device: int, number: object) -> str:
        gpu = self._gpus.get(number, {})
        uuid = str(gpu.get("uuid") or "").removeprefix("GPU-")
        if set(uuid) <= set("0-"):
            uuid = ""
        name = f"GPU-{uuid}" if uuid else f"imported:{device}"
        if name not in self._used:
            memory = gpu.get("totalMemory")
            self._codes[name] = len(self._codes)
            self._used[name] = DeviceInfo(
                id=name,
                name=self._name or str(gpu.get("name") or f"device {device}"),
                index=device,
                pci_bus=str(gpu["busLocation"]) if gpu.get("busLocation") else None,
                memory_bytes=memory if isinstance(memory, int) else None,
                details={key: gpu[key] for key in ("chipName", "smCount") if gpu.get(key) is not None},
            )
        return name
