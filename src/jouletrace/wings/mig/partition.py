"""Partitioning of a GPU (MIG): the interface ``MigBackend`` and its data.

In NVIDIA's terms a *GPU instance* is a share of the memory (memory slices) with its SMs and engines. A
*compute instance* is a share of a GPU instance's SMs; CUDA shows it as a device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from jouletrace.devices.base import Process
from jouletrace.errors import NotPossibleError
from jouletrace.run import DeviceInfo


@dataclass(frozen=True, order=True)
class Placement:
    """Slices that an instance occupies: memory slices of the GPU, or compute slices of a GPU instance."""

    start: int
    size: int

    def __str__(self) -> str:
        return f"{self.start}:{self.size}"

    def overlaps(self, other: Placement) -> bool:
        """True if both contain a common slice."""
        return self.start < other.start + other.size and other.start < self.start + self.size


@dataclass(frozen=True)
class Profile:
    """A kind of GPU instance that a GPU supports.

    Attributes:
        name: The driver's name without "MIG " ("3g.40gb", "1g.10gb+me").
        id: Number by which instances are created.
        slices: Compute slices.
        memory_mib: Memory in MiB.
        multiprocessors: SMs.
        copy, decoders, encoders, jpeg, ofa: Engines of each kind.
        p2p: Whether it supports direct access to other GPUs.
        total: Number of such instances that fit on an empty GPU.
        free: Number of such instances that can be created now; None where the driver doesn't report it (MIG is off).
        placements: Possible placements.
    """

    name: str
    id: int
    slices: int
    memory_mib: int
    multiprocessors: int
    copy: int
    decoders: int
    encoders: int
    jpeg: int
    ofa: int
    p2p: bool
    total: int
    free: int | None
    placements: tuple[Placement, ...]


@dataclass(frozen=True)
class ComputeInstance:
    """A share of a GPU instance's SMs, numbered within it.

    Attributes:
        id: Number within its GPU instance.
        slices: Number of compute slices.
        placement: Its compute slices; None where the driver doesn't report them.
        uuid: "MIG-...", its name in CUDA; None where it is missing (while MIG is being changed).
    """

    id: int
    slices: int
    placement: Placement | None = None
    uuid: str | None = None


@dataclass(frozen=True)
class GpuInstance:
    """An existing share of the GPU: its number, its profile's name, its memory slices, its compute instances by id."""

    id: int
    profile: str
    placement: Placement
    compute: tuple[ComputeInstance, ...] = ()


@dataclass(frozen=True)
class MigMode:
    """The partitioning of the GPU now, and after its next reset."""

    current: bool
    pending: bool

    @property
    def needs_reset(self) -> bool:
        """True if a change waits for a reset of the GPU."""
        return self.current != self.pending


class MigRefusedError(NotPossibleError):
    """The driver refused a change.

    Attributes:
        reason: "no_permission", "not_supported", "in_use", "no_room" or "failed".
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class MigBackend(Protocol):
    """One GPU whose partitioning can be read and changed. Reading changes nothing.

    All methods raise ``NotPossibleError`` if the GPU is gone, and ``MigRefusedError`` if it has no MIG,
    the user lacks permission, or the GPU is in use.
    """

    info: DeviceInfo

    def mode(self) -> MigMode:
        """True if MIG is on."""

    def profiles(self) -> list[Profile]:
        """Profiles that the GPU supports, in the driver's order."""

    def instances(self) -> list[GpuInstance]:
        """Present instances, by placement; empty if MIG is off."""

    def processes(self) -> list[Process]:
        """Processes that use the GPU or an instance of it."""

    def set_mode(self, on: bool) -> MigMode:
        """Turn MIG on or off; returns the new mode, which may be pending until a reset."""

    def create(self, profile: Profile, placement: Placement) -> int:
        """Create a GPU instance without compute instances; returns its id."""

    def create_compute(self, instance: int, slices: int, placement: Placement | None = None) -> int:
        """Create a compute instance of ``slices`` slices in a GPU instance, anywhere or at a place; returns its id."""

    def destroy(self, instance: int) -> None:
        """Destroy a GPU instance, which must have no compute instances."""

    def destroy_compute(self, instance: int, compute: int) -> None:
        """Destroy a compute instance."""

    def close(self) -> None:
        """Release the driver's library."""
