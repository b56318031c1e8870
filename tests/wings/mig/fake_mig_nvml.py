"""A stand-in for pynvml on a GPU that can be divided: what ``SimulatedMig`` knows, through NVML's calls.

Counts and lists come back through pointers, instances are handles, refusals are NVML's codes: all that
stands between ``NvmlMigBackend`` and the driver.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

from fake_nvml import NO_PERMISSION, NOT_FOUND, NOT_SUPPORTED, FakeBoard, FakeNvml, NVMLError, h100
from jouletrace.wings.mig.partition import MigRefusedError, Placement
from jouletrace.wings.mig.simulated import SimulatedMig

IN_USE, INSUFFICIENT_RESOURCES, UNKNOWN = 19, 23, 999
CODES = {
    "no_permission": NO_PERMISSION,
    "not_supported": NOT_SUPPORTED,
    "in_use": IN_USE,
    "no_room": INSUFFICIENT_RESOURCES,
    "failed": UNKNOWN,
}
COMPUTE_SLICES = (1, 2, 3, 4, 7)


class _Place(ctypes.Structure):
    _fields_ = (("start", ctypes.c_uint), ("size", ctypes.c_uint))


class FakeMigNvml(FakeNvml):
    """One GPU.

    Attributes:
        board: It.
        mig: Its division.
        old_driver: Profiles have no names.
    """

    c_nvmlGpuInstancePlacement_t = _Place
    c_nvmlComputeInstancePlacement_t = _Place
    c_nvmlGpuInstance_t = ctypes.c_uint
    c_nvmlComputeInstance_t = ctypes.c_uint

    def __init__(self, preset: str = "h100-80") -> None:
        super().__init__(h100())
        self.board = self.boards[0]
        self.mig = SimulatedMig(f"sim:{preset}")
        self.old_driver = False

    def _do(self, call: Any, *args: Any) -> Any:
        try:
            return call(*args)
        except MigRefusedError as error:
            raise NVMLError(CODES[error.reason]) from None

    def _profile(self, number: int) -> Any:
        found = self.mig.profiles()
        if number >= len(found):
            raise NVMLError(NOT_SUPPORTED)
        return found[number]

    def _by_id(self, profile: int) -> Any:
        return next(one for one in self.mig.profiles() if one.id == profile)

    def _gi(self, handle: int) -> Any:
        found = next((one for one in self.mig.instances() if one.id == handle), None)
        if found is None:
            raise NVMLError(NOT_FOUND)
        return found

    def nvmlDeviceGetMigMode(self, board: FakeBoard) -> list[int]:
        mode = self.mig.mode()
        return [int(mode.current), int(mode.pending)]

    def nvmlDeviceSetMigMode(self, board: FakeBoard, on: int) -> int:
        return int(self._do(self.mig.set_mode, bool(on)).needs_reset)

    def nvmlDeviceGetGpuInstanceProfileInfo(self, board: FakeBoard, number: int, version: int = 2) -> Any:
        if version == 2 and self.old_driver:
            raise NVMLError(13)
        one = self._profile(number)
        return SimpleNamespace(
            id=one.id,
            isP2pSupported=0,
            sliceCount=one.slices,
            instanceCount=one.total,
            multiprocessorCount=one.multiprocessors,
            copyEngineCount=one.copy,
            decoderCount=one.decoders,
            encoderCount=one.encoders,
            jpegCount=one.jpeg,
            ofaCount=one.ofa,
            memorySizeMB=one.memory_mib,
            **({"name": f"MIG {one.name}".encode()} if version == 2 else {}),
        )

    def nvmlDeviceGetGpuInstanceRemainingCapacity(self, board: FakeBoard, profile: int) -> int:
        free = self._by_id(profile).free
        if free is None:
            raise NVMLError(NOT_SUPPORTED)
        return int(free)

    def nvmlDeviceGetGpuInstancePossiblePlacements(self, board: FakeBoard, profile: int, into: Any, count: Any) -> None:
        places = self._by_id(profile).placements
        if into is not None:
            for slot, place in zip(into, places, strict=True):
                slot.start, slot.size = place.start, place.size
        count._obj.value = len(places)

    def nvmlDeviceGetGpuInstances(self, board: FakeBoard, profile: int, into: Any, count: Any) -> None:
        name = self._by_id(profile).name
        found = [one.id for one in self.mig.instances() if one.profile == name]
        into[: len(found)] = found
        count._obj.value = len(found)

    def nvmlGpuInstanceGetInfo(self, handle: int) -> Any:
        one = self._gi(handle)
        return SimpleNamespace(id=one.id, placement=_Place(one.placement.start, one.placement.size))

    def nvmlDeviceGetGpuInstanceById(self, board: FakeBoard, number: int) -> int:
        return int(self._gi(number).id)

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, board: FakeBoard, profile: int, place: Any) -> int:
        where = Placement(place._obj.start, place._obj.size)
        return int(self._do(self.mig.create, self._by_id(profile), where))

    def nvmlGpuInstanceDestroy(self, handle: int) -> None:
        self._do(self.mig.destroy, handle)

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(self, handle: int, number: int, engines: int, version: int) -> Any:
        whole = next(p.slices for p in self.mig.profiles() if p.name == self._gi(handle).profile)
        if number >= len(COMPUTE_SLICES) or COMPUTE_SLICES[number] > whole:
            raise NVMLError(NOT_SUPPORTED)
        slices = COMPUTE_SLICES[number]
        return SimpleNamespace(id=number, sliceCount=slices, instanceCount=whole // slices)

    def nvmlGpuInstanceGetComputeInstances(self, handle: int, profile: int, into: Any, count: Any) -> None:
        found = [100 * handle + c.id for c in self._gi(handle).compute if c.slices == COMPUTE_SLICES[profile]]
        into[: len(found)] = found
        count._obj.value = len(found)

    def nvmlGpuInstanceGetComputeInstanceById(self, handle: int, number: int) -> int:
        return 100 * handle + number

    def nvmlComputeInstanceGetInfo(self, handle: int) -> Any:
        one = next(c for c in self._gi(handle // 100).compute if c.id == handle % 100)
        return SimpleNamespace(id=one.id, placement=_Place(one.placement.start, one.placement.size))

    def nvmlGpuInstanceCreateComputeInstance(self, handle: int, profile: int) -> int:
        return 100 * handle + int(self._do(self.mig.create_compute, handle, COMPUTE_SLICES[profile]))

    def nvmlGpuInstanceCreateComputeInstanceWithPlacement(self, handle: int, profile: int, place: Any) -> int:
        where = Placement(place._obj.start, place._obj.size)
        return 100 * handle + int(self._do(self.mig.create_compute, handle, COMPUTE_SLICES[profile], where))

    def nvmlComputeInstanceDestroy(self, handle: int) -> None:
        self._do(self.mig.destroy_compute, handle // 100, handle % 100)

    def _devices(self) -> list[tuple[int, int, str]]:
        return [(gi.id, ci.id, str(ci.uuid)) for gi in self.mig.instances() for ci in gi.compute]

    def nvmlDeviceGetMigDeviceHandleByIndex(self, board: FakeBoard, index: int) -> str:
        devices = self._devices()
        if index >= len(devices):
            raise NVMLError(NOT_FOUND)
        return devices[index][2]

    def nvmlDeviceGetGpuInstanceId(self, handle: str) -> int:
        return next(gi for gi, _, uuid in self._devices() if uuid == handle)

    def nvmlDeviceGetComputeInstanceId(self, handle: str) -> int:
        return next(ci for _, ci, uuid in self._devices() if uuid == handle)
