"""MIG layout of a simulated GPU: the driver's rules, its state in a file, failures on demand."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jouletrace.devices.base import Process
from jouletrace.devices.mig import ComputeInstance, GpuInstance, MigMode, MigRefusedError, Placement, Profile
from jouletrace.errors import BadInputError
from jouletrace.run import DeviceInfo
from jouletrace.run.files import write_whole
from jouletrace.simulator.boards.mig_tables import compute_placements, profiles
from jouletrace.simulator.boards.presets import find
from jouletrace.simulator.boards.spec import parse


class SimulatedCrash(BaseException):
    """A crash of the process, for tests of what a crash leaves. Not an ``Exception``: nothing handles it."""


@dataclass
class MigFailures:
    """Failures on demand.

    Attributes:
        no_permission: Every change is refused as for a user without rights.
        reset_needed: Changing the mode waits for a reset of the GPU.
        users: Processes that use the GPU: changes are refused.
        crash_after: Number of further changes after which the process dies; None for never.
        refuse_after: Number of further changes after which changes are refused; None for never.
    """

    no_permission: bool = False
    reset_needed: bool = False
    users: tuple[Process, ...] = ()
    crash_after: int | None = None
    refuse_after: int | None = None


class SimulatedMig:
    """A simulated GPU's partitioning; implements ``devices.mig.MigBackend``.

    Args:
        spec: ``sim:NAME[?...]``; only the name and the seed matter here.
        state: File that keeps the layout between processes; None keeps it in this object.

    Attributes:
        failures: Failures on demand.
    """

    def __init__(self, spec: str, state: Path | None = None) -> None:
        asked = parse(spec)
        preset = find(asked.name)
        self.failures = MigFailures()
        self._state = state
        self._mode = MigMode(False, False)
        self._instances: list[GpuInstance] = []
        self._profiles = profiles(preset.name)
        self.info = DeviceInfo(
            id=f"SIM-{preset.name}-{asked.seed}",
            name=f"SIMULATED {preset.title}",
            simulated=True,
            driver="simulated",
            memory_bytes=preset.memory_bytes,
            details={"preset": preset.name, "seed": asked.seed},
        )
        if not self._profiles:
            raise MigRefusedError("not_supported", f"{self.info.name}: this GPU has no MIG (it needs an A100 or later)")
        self._load()

    def mode(self) -> MigMode:
        """Whether MIG is on."""
        return self._mode

    def profiles(self) -> list[Profile]:
        """Profiles of the GPU, with the number of instances that are free now."""
        if not self._mode.current:
            return [replace(profile, free=None) for profile in self._profiles]
        return [replace(profile, free=self._room(profile)) for profile in self._profiles]

    def instances(self) -> list[GpuInstance]:
        """Present instances, by placement."""
        return sorted(self._instances, key=lambda one: one.placement)

    def processes(self) -> list[Process]:
        """Processes that use the GPU: those of ``failures.users``."""
        return list(self.failures.users)

    def set_mode(self, on: bool) -> MigMode:
        """Turn MIG on or off."""
        self._begin()
        if self._instances and not on:
            raise MigRefusedError("in_use", f"{self.info.name}: instances exist")
        self._mode = MigMode(self._mode.current if self.failures.reset_needed else on, on)
        self._end()
        return self._mode

    def reset(self) -> None:
        """Reset the GPU, which puts a pending mode into force. For tests."""
        self._mode = MigMode(self._mode.pending, self._mode.pending)
        self._save()

    def create(self, profile: Profile, placement: Placement) -> int:
        """Create a GPU instance."""
        self._begin()
        if not self._mode.current:
            raise MigRefusedError("not_supported", f"{self.info.name}: MIG is off")
        known = self._profile(profile.name)
        taken = [one.placement for one in self._instances]
        if placement not in known.placements or any(placement.overlaps(one) for one in taken) or not self._room(known):
            raise MigRefusedError("no_room", f"{self.info.name}: no room for {profile.name} at {placement}")
        number = next(n for n in range(1, 64) if n not in {one.id for one in self._instances})
        self._instances.append(GpuInstance(number, known.name, placement))
        self._end()
        return number

    def create_compute(self, instance: int, slices: int, placement: Placement | None = None) -> int:
        """Create a compute instance."""
        self._begin()
        index, parent = self._find(instance)
        whole = self._profile(parent.profile).slices
        taken = [one.placement for one in parent.compute if one.placement is not None]
        free = [p for p in compute_placements(whole, slices) if not any(p.overlaps(one) for one in taken)]
        place = placement or (free[0] if free else None)
        if place is None or place not in free:
            raise MigRefusedError("no_room", f"{self.info.name}: no room for {slices}c in {parent.profile}")
        number = next(n for n in range(64) if n not in {one.id for one in parent.compute})
        made = ComputeInstance(number, slices, place, self._uuid(parent, place))
        self._instances[index] = replace(parent, compute=(*parent.compute, made))
        self._end()
        return number

    def destroy(self, instance: int) -> None:
        """Destroy a GPU instance."""
        self._begin()
        index, found = self._find(instance)
        if found.compute:
            raise MigRefusedError("in_use", f"{self.info.name}: GPU instance {instance} has compute instances")
        del self._instances[index]
        self._end()

    def destroy_compute(self, instance: int, compute: int) -> None:
        """Destroy a compute instance."""
        self._begin()
        index, found = self._find(instance)
        rest = tuple(one for one in found.compute if one.id != compute)
        if len(rest) == len(found.compute):
            raise MigRefusedError("failed", f"{self.info.name}: no compute instance {compute}")
        self._instances[index] = replace(found, compute=rest)
        self._end()

    def close(self) -> None:
        """Nothing to release."""

    def _begin(self) -> None:
        f = self.failures
        if f.no_permission:
            raise MigRefusedError("no_permission", f"{self.info.name}: not permitted")
        if f.users:
            raise MigRefusedError("in_use", f"{self.info.name}: in use")
        if f.refuse_after is not None:
            if f.refuse_after <= 0:
                raise MigRefusedError("failed", f"{self.info.name}: the driver failed (999)")
            f.refuse_after -= 1

    def _end(self) -> None:
        self._save()
        if self.failures.crash_after is not None:
            self.failures.crash_after -= 1
            if self.failures.crash_after < 0:
                raise SimulatedCrash

    def _room(self, profile: Profile) -> int:
        """Number of further instances of a profile that fit into free placements."""
        taken = [one.placement for one in self._instances]
        count = 0
        for place in profile.placements:
            if not any(place.overlaps(one) for one in taken):
                taken.append(place)
                count += 1
        same = sum(one.profile == profile.name for one in self._instances)
        return max(0, min(count, profile.total - same))

    def _profile(self, name: str) -> Profile:
        found = next((one for one in self._profiles if one.name == name), None)
        if found is None:
            raise BadInputError(f"{self.info.name} has no profile {name}")
        return found

    def _find(self, instance: int) -> tuple[int, GpuInstance]:
        for index, one in enumerate(self._instances):
            if one.id == instance:
                return index, one
        raise MigRefusedError("failed", f"{self.info.name}: no GPU instance {instance}")

    def _uuid(self, parent: GpuInstance, place: Placement) -> str:
        return f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, f'{self.info.id} {parent.profile} {parent.placement} {place}')}"

    def _load(self) -> None:
        if self._state is None or not self._state.exists():
            return
        try:
            stored = json.loads(self._state.read_text())
            self._mode = MigMode(*stored["mode"])
            self._instances = [_instance(one) for one in stored["instances"]]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise BadInputError(f"{self._state}: the simulated GPU's MIG layout can't be read ({error})") from None

    def _save(self) -> None:
        if self._state is None:
            return
        stored = {
            "mode": [self._mode.current, self._mode.pending],
            "instances": [
                [i.id, i.profile, [i.placement.start, i.placement.size], [_compute(c) for c in i.compute]]
                for i in self._instances
            ],
        }
        write_whole(self._state, json.dumps(stored).encode(), durable=False)  # no GPU is changed


def _compute(one: ComputeInstance) -> list[Any]:
    return [one.id, one.slices, [one.placement.start, one.placement.size] if one.placement else None, one.uuid]


def _instance(stored: list[Any]) -> GpuInstance:
    number, profile, place, compute = stored
    parts = tuple(ComputeInstance(c[0], c[1], Placement(*c[2]) if c[2] else None, c[3]) for c in compute)
    return GpuInstance(number, profile, Placement(*place), parts)
