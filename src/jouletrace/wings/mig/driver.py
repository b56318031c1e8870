"""Partitioning of an NVIDIA GPU through NVML: profiles, placements, instances, and changing them."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import byref, c_uint
from typing import Any

from jouletrace.devices.base import Process
from jouletrace.devices.nvml.api import Nvml, Unavailable, text
from jouletrace.devices.nvml.identity import describe, find_board, list_processes, uuid_of
from jouletrace.devices.nvml.mig import mig_handles
from jouletrace.errors import NotPossibleError
from jouletrace.wings.mig.partition import ComputeInstance, GpuInstance, MigMode, MigRefusedError, Placement, Profile

_PROFILES = 24
"""Profiles are numbered from 0; this is more than any driver has."""

_COMPUTE_PROFILES = 9
_SHARED_ENGINES = 0
_REASONS = {4: "no_permission", 3: "not_supported", 19: "in_use", 23: "no_room", 20: "no_room"}
_ADVICE = {
    "no_permission": "changing MIG needs root on the host (or CAP_SYS_ADMIN in the container): run it with sudo",
    "not_supported": "this GPU or driver has no MIG, or MIG is off",
    "in_use": "a process uses the GPU or an instance: end it (monitoring services too) and try again",
    "no_room": "no free placement is left for it: see jouletrace mig list",
    "failed": "",
}


class NvmlMigBackend:
    """A GPU's partitioning; implements ``wings.mig.partition.MigBackend``.

    Args:
        uuid: UUID of the GPU.
        nvml: The library; this object closes it. None opens it.

    Raises:
        BadInputError: If the GPU doesn't exist.
        NotPossibleError: If nvidia-ml-py or the driver is missing, or the GPU is lost.
    """

    def __init__(self, uuid: str, nvml: Nvml | None = None) -> None:
        self._nvml = nvml if nvml is not None else Nvml()
        try:
            self._handle = find_board(self._nvml, uuid)
            self.info = describe(self._nvml, self._handle)
        except BaseException:
            self._nvml.close()
            raise

    def mode(self) -> MigMode:
        """True if MIG is on.

        Raises:
            MigRefusedError: If the GPU has no MIG.
        """
        current, pending = self._ask("nvmlDeviceGetMigMode", self._handle)
        return MigMode(bool(current), bool(pending))

    def profiles(self) -> list[Profile]:
        """Profiles that the GPU supports; ``placements`` is empty where the driver denies them to this user."""
        on = self.mode().current
        found: list[Profile] = []
        for number in range(_PROFILES):
            info = self._info(number)
            if info is None or any(one.id == info.id for one in found):
                continue
            name = (text(getattr(info, "name", "")) or "").removeprefix("MIG ").strip()
            free = self._nvml.get("nvmlDeviceGetGpuInstanceRemainingCapacity", self._handle, info.id) if on else None
            found.append(
                Profile(
                    name=name or f"{info.sliceCount}g.{round(info.memorySizeMB / 1024)}gb",
                    id=int(info.id),
                    slices=int(info.sliceCount),
                    memory_mib=int(info.memorySizeMB),
                    multiprocessors=int(info.multiprocessorCount),
                    copy=int(info.copyEngineCount),
                    decoders=int(info.decoderCount),
                    encoders=int(info.encoderCount),
                    jpeg=int(info.jpegCount),
                    ofa=int(info.ofaCount),
                    p2p=bool(info.isP2pSupported),
                    total=int(info.instanceCount),
                    free=None if free is None else int(free),
                    placements=self._placements(int(info.id)),
                )
            )
        if not found:
            raise MigRefusedError("not_supported", f"{self.info.name}: the driver names no MIG profile for it")
        return found

    def instances(self) -> list[GpuInstance]:
        """Present instances, by placement.

        Raises:
            MigRefusedError: If this user may not see them.
        """
        if not self.mode().current:
            return []
        uuids = self._uuids()
        found = []
        for profile in self.profiles():
            for handle in self._list("nvmlDeviceGetGpuInstances", self._handle, profile.id, profile.total):
                info = self._ask("nvmlGpuInstanceGetInfo", handle)
                compute = tuple(self._compute(handle, int(info.id), uuids))
                place = Placement(int(info.placement.start), int(info.placement.size))
                found.append(GpuInstance(int(info.id), profile.name, place, compute))
        return sorted(found, key=lambda one: one.placement)

    def processes(self) -> list[Process]:
        """Processes that use the GPU or an instance of it, each once."""
        handles = [self._handle, *mig_handles(self._nvml, self._handle)]
        seen = {process.pid: process for handle in handles for process in list_processes(self._nvml, handle)}
        return [seen[pid] for pid in sorted(seen)]

    def set_mode(self, on: bool) -> MigMode:
        """Turn MIG on or off; for this the driver resets an A100, unless the GPU is in use."""
        status = self._ask("nvmlDeviceSetMigMode", self._handle, int(on))
        mode = self.mode()
        if status and not mode.needs_reset and mode.current != on:
            raise MigRefusedError("failed", f"{self.info.name}: MIG mode did not change (NVML status {status})")
        return mode

    def create(self, profile: Profile, placement: Placement) -> int:
        """Create a GPU instance without compute instances; returns its id."""
        place = self._struct("c_nvmlGpuInstancePlacement_t")()
        place.start, place.size = placement.start, placement.size
        # By pointer, as in NVML's C interface: pynvml passes the arguments unchanged.
        handle = self._ask("nvmlDeviceCreateGpuInstanceWithPlacement", self._handle, profile.id, byref(place))
        return int(self._ask("nvmlGpuInstanceGetInfo", handle).id)

    def create_compute(self, instance: int, slices: int, placement: Placement | None = None) -> int:
        """Create a compute instance; returns its id."""
        parent = self._ask("nvmlDeviceGetGpuInstanceById", self._handle, instance)
        number = self._compute_profile(parent, slices)
        if placement is None:
            handle = self._ask("nvmlGpuInstanceCreateComputeInstance", parent, number)
        else:
            place = self._struct("c_nvmlComputeInstancePlacement_t")()
            place.start, place.size = placement.start, placement.size
            handle = self._ask("nvmlGpuInstanceCreateComputeInstanceWithPlacement", parent, number, byref(place))
        return int(self._ask("nvmlComputeInstanceGetInfo", handle).id)

    def destroy(self, instance: int) -> None:
        """Destroy a GPU instance without compute instances."""
        self._ask("nvmlGpuInstanceDestroy", self._ask("nvmlDeviceGetGpuInstanceById", self._handle, instance))

    def destroy_compute(self, instance: int, compute: int) -> None:
        """Destroy a compute instance."""
        parent = self._ask("nvmlDeviceGetGpuInstanceById", self._handle, instance)
        self._ask("nvmlComputeInstanceDestroy", self._ask("nvmlGpuInstanceGetComputeInstanceById", parent, compute))

    def close(self) -> None:
        """Release NVML. Safe to call twice."""
        self._nvml.close()

    def _ask(self, function: str, *args: Any) -> Any:
        try:
            return self._nvml.call(function, *args)
        except Unavailable as error:
            reason = _REASONS.get(error.code or 0, "failed")
            advice = f"; {_ADVICE[reason]}" if _ADVICE[reason] else ""
            raise MigRefusedError(reason, f"{self.info.name}: {function} says: {error}{advice}") from None

    def _info(self, number: int) -> Any:
        """Properties of a profile; drivers before 510 have only the version without a name."""
        function = "nvmlDeviceGetGpuInstanceProfileInfo"
        try:
            return self._nvml.call(function, self._handle, number, 2)
        except Unavailable as error:
            return self._nvml.get(function, self._handle, number, 1) if error.code in (13, 25) else None

    def _placements(self, profile: int) -> tuple[Placement, ...]:
        function, count = "nvmlDeviceGetGpuInstancePossiblePlacements", c_uint(0)
        try:
            self._nvml.call(function, self._handle, profile, None, byref(count))
            places = (self._struct("c_nvmlGpuInstancePlacement_t") * max(count.value, 1))()
            self._nvml.call(function, self._handle, profile, places, byref(count))
        except Unavailable:
            return ()
        return tuple(sorted(Placement(int(p.start), int(p.size)) for p in list(places)[: count.value]))

    def _list(self, function: str, owner: Any, profile: int, most: int) -> Iterable[Any]:
        kind = "c_nvmlGpuInstance_t" if function == "nvmlDeviceGetGpuInstances" else "c_nvmlComputeInstance_t"
        handles, count = (self._struct(kind) * max(most, 1))(), c_uint(most)
        self._ask(function, owner, profile, handles, byref(count))
        return list(handles)[: count.value]

    def _compute(self, parent: Any, instance: int, uuids: dict[tuple[int, int], str]) -> Iterable[ComputeInstance]:
        found = []
        for info in self._compute_profiles(parent):
            function = "nvmlGpuInstanceGetComputeInstances"
            for handle in self._list(function, parent, int(info.id), int(info.instanceCount)):
                one = self._ask("nvmlComputeInstanceGetInfo", handle)
                place = Placement(int(one.placement.start), int(one.placement.size))
                uuid = uuids.get((instance, int(one.id)))
                found.append(ComputeInstance(int(one.id), int(info.sliceCount), place, uuid))
        return sorted(found, key=lambda one: one.id)

    def _compute_profiles(self, parent: Any) -> Iterable[Any]:
        function = "nvmlGpuInstanceGetComputeInstanceProfileInfo"
        for number in range(_COMPUTE_PROFILES):
            info = self._nvml.get(function, parent, number, _SHARED_ENGINES, 1)
            if info is not None:
                yield info

    def _compute_profile(self, parent: Any, slices: int) -> int:
        for info in self._compute_profiles(parent):
            if int(info.sliceCount) == slices:
                return int(info.id)
        raise MigRefusedError("no_room", f"{self.info.name}: a compute instance of {slices} slices doesn't exist there")

    def _uuids(self) -> dict[tuple[int, int], str]:
        """UUIDs of the MIG devices by GPU instance and compute instance."""
        found = {}
        for handle in mig_handles(self._nvml, self._handle):
            owner = self._nvml.get("nvmlDeviceGetGpuInstanceId", handle)
            part = self._nvml.get("nvmlDeviceGetComputeInstanceId", handle)
            if owner is not None and part is not None:
                found[int(owner), int(part)] = uuid_of(self._nvml, handle)
        return found

    def _struct(self, name: str) -> Any:
        struct = self._nvml.constant(name)
        if struct is None:
            raise NotPossibleError(f"nvidia-ml-py is too old for MIG (no {name}): pip install -U nvidia-ml-py")
        return struct
