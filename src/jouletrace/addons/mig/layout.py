"""The layout of a GPU's partitions as plain data, for plans and journals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from jouletrace.devices.mig import GpuInstance, MigBackend, Placement


@dataclass(frozen=True)
class Share:
    """A compute instance: its number of compute slices, and its placement, if that matters."""

    slices: int
    placement: Placement | None = None


@dataclass(frozen=True)
class Part:
    """A GPU instance: its profile, its memory slices and its compute instances."""

    profile: str
    placement: Placement
    compute: tuple[Share, ...]

    @classmethod
    def of(cls, instance: GpuInstance) -> Self:
        """The part of an existing instance."""
        shares = sorted(
            (Share(one.slices, one.placement) for one in instance.compute),
            key=lambda share: (share.placement or Placement(0, 0), share.slices),
        )
        return cls(instance.profile, instance.placement, tuple(shares))

    def same_place(self, other: Part) -> bool:
        """Whether both are the same GPU instance, regardless of compute instances."""
        return self.profile == other.profile and self.placement == other.placement

    def satisfied_by(self, other: Part) -> bool:
        """Whether ``other`` fulfils this request."""
        if not self.same_place(other) or len(self.compute) != len(other.compute):
            return False
        if all(share.placement is not None for share in self.compute):
            return set(self.compute) == set(other.compute)
        return sorted(share.slices for share in self.compute) == sorted(share.slices for share in other.compute)

    def __str__(self) -> str:
        return f"{self.profile} at {self.placement}"


@dataclass(frozen=True)
class Layout:
    """A whole GPU: whether MIG is on, and its parts by placement."""

    on: bool
    parts: tuple[Part, ...] = ()

    def satisfied_by(self, other: Layout) -> bool:
        """Whether ``other`` fulfils this request."""
        return (
            self.on == other.on
            and len(self.parts) == len(other.parts)
            and all(mine.satisfied_by(theirs) for mine, theirs in zip(self.parts, other.parts, strict=True))
        )

    def to_dict(self) -> dict[str, Any]:
        """The layout as JSON values."""
        return {"on": self.on, "parts": [_part(part) for part in self.parts]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The layout from JSON.

        Raises:
            KeyError, TypeError, ValueError: If it isn't a layout.
        """
        return cls(bool(data["on"]), tuple(_read_part(part) for part in data["parts"]))

    def __str__(self) -> str:
        if not self.on:
            return "MIG off"
        return ", ".join(map(str, self.parts)) or "MIG on, no instance"


def layout_of(backend: MigBackend) -> Layout:
    """The present layout of a GPU.

    Raises:
        NotPossibleError: If this user lacks permission, or the GPU has no MIG.
    """
    return Layout(backend.mode().current, ordered([Part.of(one) for one in backend.instances()]))


def ordered(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Parts by placement."""
    return tuple(sorted(parts, key=lambda part: part.placement))


def _part(part: Part) -> dict[str, Any]:
    return {
        "profile": part.profile,
        "start": part.placement.start,
        "size": part.placement.size,
        "compute": [
            {"slices": share.slices, "start": share.placement.start if share.placement else None}
            for share in part.compute
        ],
    }


def _read_part(data: dict[str, Any]) -> Part:
    shares = tuple(
        Share(int(one["slices"]), None if one["start"] is None else Placement(int(one["start"]), int(one["slices"])))
        for one in data["compute"]
    )
    return Part(str(data["profile"]), Placement(int(data["start"]), int(data["size"])), shares)
