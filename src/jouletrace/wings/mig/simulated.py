"""MIG layout of a simulated GPU: the driver's rules, its state in a file, failures on demand."""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from jouletrace.devices.base import Process
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.run import DeviceInfo
from jouletrace.run.files import cache_folder, write_whole
from jouletrace.simulator.boards.presets import find
from jouletrace.simulator.boards.spec import PREFIX, parse
from jouletrace.wings.mig.partition import ComputeInstance, GpuInstance, MigMode, MigRefusedError, Placement, Profile

_STATE = "-mig-state.json"


class SimulatedCrash(BaseException):
    """A crash of the process, for tests of what a crash leaves. Not an ``Exception``: nothing handles it."""


@dataclass
class MigFailures:
    """Failures on demand."""

    no_permission: bool = False  # every change is refused as for a user without rights
    reset_needed: bool = False  # changing the mode waits for a reset of the GPU
    users: tuple[Process, ...] = ()  # processes that use the GPU: changes are refused
    crash_after: int | None = None  # number of further changes after which the process dies; None for never
    refuse_after: int | None = None  # number of further changes after which changes are refused; None for never


class SimulatedMig:
    """A simulated GPU's partitioning; implements ``wings.mig.partition.MigBackend``.

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
        """True if MIG is on."""
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
        try:
            self._save()
        except BaseException:  # an interrupt: the layout is what other processes see
            self._load()
            raise
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
        own = uuid.uuid5(uuid.NAMESPACE_OID, f"{self.info.id} {parent.profile} {parent.placement} {place}")
        return f"MIG-{self.info.id}-{str(own)[:8]}"

    def _load(self) -> None:
        if self._state is None or not self._state.exists():
            return
        try:
            stored = json.loads(self._state.read_text())
            self._mode = MigMode(*map(bool, stored["mode"]))
            self._instances = [_instance(one) for one in stored["instances"]]
            for one in self._instances:
                if one.placement not in self._profile(one.profile).placements:
                    raise ValueError(f"no {one.profile} is at {one.placement}")
                for part in one.compute:
                    if part.placement is None or part.uuid != self._uuid(one, part.placement):
                        raise ValueError(f"no slice {part.uuid} is in {one.profile}")
        except (OSError, ValueError, KeyError, TypeError, IndexError, BadInputError) as error:
            why = f"the simulated GPU's MIG layout can't be read ({error}); delete it to turn MIG off"
            raise BadInputError(f"{self._state}: {why}") from None

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
        try:
            write_whole(self._state, json.dumps(stored).encode(), durable=False)  # no GPU is changed
        except OSError as error:
            why = f"cannot write {self._state}: {error.strerror or error}; name another folder by JOULETRACE_CACHE"
            raise NotPossibleError(why) from None


def stored(spec: str) -> SimulatedMig:
    """The partitioning of ``spec`` as the last command left it; changes are kept in the cache folder."""
    return SimulatedMig(spec, cache_folder() / f"{SimulatedMig(spec).info.id}{_STATE}")


def stored_slices() -> list[tuple[str, str, Profile]]:
    """The slices of all simulated GPUs in the cache folder: the spec of each one's GPU, its UUID, its resources.

    A layout that can't be read is left out; ``mig list`` names it.
    """
    found = []
    for path in sorted(cache_folder().glob(f"SIM-*{_STATE}")):
        name, _, seed = path.name.removeprefix("SIM-").removesuffix(_STATE).rpartition("-")
        spec = f"{PREFIX}{name}?seed={seed}"
        kinds = {one.name: one for one in profiles(name)}
        with suppress(BadInputError, KeyError):
            for own in stored(spec).instances():
                kind = kinds[own.profile]
                for part in own.compute:
                    sms = kind.multiprocessors * part.slices // kind.slices
                    found.append((spec, str(part.uuid), replace(kind, multiprocessors=sms)))
    return found


def _compute(one: ComputeInstance) -> list[Any]:
    return [one.id, one.slices, [one.placement.start, one.placement.size] if one.placement else None, one.uuid]


def _instance(stored: list[Any]) -> GpuInstance:
    number, profile, place, compute = stored
    parts = tuple(ComputeInstance(c[0], c[1], Placement(*c[2]) if c[2] else None, c[3]) for c in compute)
    return GpuInstance(number, profile, Placement(*place), parts)


class _Kind(NamedTuple):
    """Properties that profiles of the same form share on all GPUs."""

    id: int
    slices: int
    total: int
    starts: tuple[int, ...]
    size: int


_KINDS = {
    "1g": _Kind(19, 1, 7, (0, 1, 2, 3, 4, 5, 6), 1),
    "1g+me": _Kind(20, 1, 1, (0, 1, 2, 3, 4, 5, 6), 1),
    "1g double": _Kind(15, 1, 4, (0, 2, 4, 6), 2),
    "2g": _Kind(14, 2, 3, (0, 2, 4), 2),
    "3g": _Kind(9, 3, 2, (0, 4), 4),
    "4g": _Kind(5, 4, 1, (0,), 4),
    "7g": _Kind(0, 7, 1, (0,), 8),
}

_Row = tuple[str, str, int, int, int, int, int, int]
"""Kind, name, memory in MiB, SMs, copy engines, decoders, JPEG decoders, optical flow units."""


def _a100(names: tuple[str, ...], memory: tuple[int, int, int, int]) -> tuple[_Row, ...]:
    one, two, four, eight = memory
    return (
        ("1g", names[0], one, 14, 1, 0, 0, 0),
        ("1g+me", names[0] + "+me", one, 14, 1, 1, 1, 1),
        ("1g double", names[1], two, 14, 1, 1, 0, 0),
        ("2g", names[2], two, 28, 2, 1, 0, 0),
        ("3g", names[3], four, 42, 3, 2, 0, 0),
        ("4g", names[4], four, 56, 4, 2, 0, 0),
        ("7g", names[5], eight, 98, 7, 5, 1, 1),
    )


def _hopper(names: tuple[str, ...], memory: tuple[int, int, int, int]) -> tuple[_Row, ...]:
    one, two, four, eight = memory
    return (
        ("1g", names[0], one, 16, 1, 1, 1, 0),
        ("1g+me", names[0] + "+me", one, 16, 1, 1, 1, 1),
        ("1g double", names[1], two, 26, 1, 1, 1, 0),
        ("2g", names[2], two, 32, 2, 2, 2, 0),
        ("3g", names[3], four, 60, 3, 3, 3, 0),
        ("4g", names[4], four, 64, 4, 4, 4, 0),
        ("7g", names[5], eight, 132, 8, 7, 7, 1),
    )


_ROWS: dict[str, tuple[_Row, ...]] = {
    "a100-40": _a100(
        ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"), (4864, 9856, 19968, 40192)
    ),
    "a100-80": _a100(
        ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"), (9728, 19968, 40448, 81152)
    ),
    "h100-80": _hopper(
        ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"), (9984, 20096, 40448, 81152)
    ),
    "h200-141": _hopper(
        ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"), (16384, 33280, 71168, 143104)
    ),
}  # fmt: skip

BOARD_SMS = {"a100-40": 108, "a100-80": 108, "h100-80": 132, "h200-141": 132}
"""SMs of the undivided GPU; with MIG on, an A100 loses ten of them."""

MEMORY_SLICES = 8

COMPUTE_SLICES = {1: (1,), 2: (1, 2), 3: (1, 2, 3), 4: (1, 2, 4), 7: (1, 2, 3, 4, 7)}
"""Permitted compute slices of a compute instance, by the slices of its GPU instance."""

_COMPUTE_STARTS = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
"""A compute instance starts at a multiple of this."""


def profiles(preset: str) -> list[Profile]:
    """The profiles of a simulated GPU, ``free`` as on an undivided one; empty for a GPU without MIG."""
    found = []
    for kind, name, memory, sms, copy, decoders, jpeg, ofa in _ROWS.get(preset, ()):
        k = _KINDS[kind]
        places = tuple(Placement(start, k.size) for start in k.starts)
        found.append(
            Profile(name, k.id, k.slices, memory, sms, copy, decoders, 0, jpeg, ofa, False, k.total, k.total, places)
        )
    return found


def compute_placements(whole: int, slices: int) -> list[Placement]:
    """Possible placements of a compute instance of ``slices`` slices in a GPU instance of ``whole`` slices."""
    if slices not in COMPUTE_SLICES.get(whole, ()):
        return []
    step = _COMPUTE_STARTS[slices]
    return [Placement(start, slices) for start in range(0, whole - slices + 1, step)]
