"""Instances of a GPU: what a user requests, whether and where it fits, and the layout that results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import combinations
from typing import Any, Self

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.wings.mig.partition import GpuInstance, MigBackend, Placement, Profile

_FORM = re.compile(
    r"(?:(?:(?P<times>\d+)x)?(?P<slices>\d+)c\.)?(?P<name>\d+g(?:\.\d+gb)?(?:[+-][a-z.]+)?)", re.I | re.A
)


@dataclass(frozen=True)
class Request:
    """One requested GPU instance, and the slices of each of its compute instances."""

    profile: Profile
    compute: tuple[int, ...]

    def __str__(self) -> str:
        if self.compute == (self.profile.slices,):
            return self.profile.name
        times = f"{len(self.compute)}x" if len(self.compute) > 1 else ""
        return f"{times}{self.compute[0]}c.{self.profile.name}"


def read_requests(items: Sequence[str], profiles: Sequence[Profile]) -> list[Request]:
    """Read the user's requests.

    They are ``PROFILE`` (one compute instance with all its SMs), ``Kc.PROFILE`` (one compute instance of K slices) or
    ``NxKc.PROFILE`` (N of them). A profile is its name, an unambiguous beginning of it (``3g``), or its id. Commas also
    separate requests.

    Raises:
        BadInputError: If one is no profile of the GPU, or its compute slices don't fit.
    """
    names = [name for item in items for name in item.split(",") if name.strip()]
    if not names:
        raise BadInputError(f"no profile is named; the profiles are: {_named(profiles)}")
    return [_request(name.strip(), profiles) for name in names]


def _request(text: str, profiles: Sequence[Profile]) -> Request:
    if text.isascii() and text.isdecimal():
        by_id = next((one for one in profiles if one.id == int(text)), None)
        if by_id is None:
            raise BadInputError(f"{text}: no profile has this id; the profiles are: {_named(profiles)}")
        return Request(by_id, (by_id.slices,))
    found = _FORM.fullmatch(text.removeprefix("MIG ").strip())
    if found is None:
        raise BadInputError(f"{text}: write PROFILE, Kc.PROFILE or NxKc.PROFILE; the profiles are: {_named(profiles)}")
    profile = _profile(found["name"].lower(), text, profiles)
    if found["slices"] is None:
        return Request(profile, (profile.slices,))
    slices, times = int(found["slices"]), int(found["times"] or 1)
    if slices < 1 or times < 1 or slices * times > profile.slices:
        raise BadInputError(f"{text}: {profile.name} has {profile.slices} compute slices, not {slices * times}")
    return Request(profile, (slices,) * times)


def _profile(name: str, text: str, profiles: Sequence[Profile]) -> Profile:
    exact = [one for one in profiles if one.name.lower() == name]
    if exact:
        return exact[0]
    base, sign, attribute = name.partition("+")
    if "." not in base:
        short = [
            one
            for one in profiles
            if one.name.split(".")[0] == base and one.name.partition("+")[1:] == (sign, attribute)
        ]
        if len(short) == 1:
            return short[0]
        if short:
            raise BadInputError(f"{text} may mean {' or '.join(one.name for one in short)}: name one of them")
    near = get_close_matches(name, [one.name for one in profiles], 1)
    hint = f"; did you mean {near[0]}?" if near else "."
    raise BadInputError(f"{text}: this GPU has no such profile{hint} The profiles are: {_named(profiles)}")


def _named(profiles: Sequence[Profile]) -> str:
    return ", ".join(one.name for one in profiles)


@dataclass(frozen=True)
class Share:
    """A compute instance: its number of compute slices, and its placement, if that matters."""

    slices: int
    placement: Placement | None = None


@dataclass(frozen=True)
class PlannedInstance:
    """A GPU instance: its profile, its memory slices and its compute instances."""

    profile: str
    placement: Placement
    compute: tuple[Share, ...]

    @classmethod
    def from_instance(cls, instance: GpuInstance) -> Self:
        """The part of an existing instance."""
        shares = sorted(
            (Share(one.slices, one.placement) for one in instance.compute),
            key=lambda share: (share.placement or Placement(0, 0), share.slices),
        )
        return cls(instance.profile, instance.placement, tuple(shares))

    def to_dict(self) -> dict[str, Any]:
        """The part as JSON values."""
        compute = [
            {"slices": share.slices, "start": share.placement.start if share.placement else None}
            for share in self.compute
        ]
        return {
            "profile": self.profile,
            "start": self.placement.start,
            "size": self.placement.size,
            "compute": compute,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The part from JSON; raises as ``Layout.from_dict``."""
        shares = []
        for one in data["compute"]:
            slices, start = int(one["slices"]), one["start"]
            shares.append(Share(slices, None if start is None else Placement(int(start), slices)))
        return cls(str(data["profile"]), Placement(int(data["start"]), int(data["size"])), tuple(shares))

    def same_place(self, other: PlannedInstance) -> bool:
        """True if both are the same GPU instance, regardless of compute instances."""
        return self.profile == other.profile and self.placement == other.placement

    def satisfied_by(self, other: PlannedInstance) -> bool:
        """True if ``other`` fulfils this request."""
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
    parts: tuple[PlannedInstance, ...] = ()

    def satisfied_by(self, other: Layout) -> bool:
        """True if ``other`` fulfils this request."""
        return (
            self.on == other.on
            and len(self.parts) == len(other.parts)
            and all(mine.satisfied_by(theirs) for mine, theirs in zip(self.parts, other.parts, strict=True))
        )

    def to_dict(self) -> dict[str, Any]:
        """The layout as JSON values."""
        return {"on": self.on, "parts": [part.to_dict() for part in self.parts]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The layout from JSON.

        Raises:
            KeyError, TypeError, ValueError: If it isn't a layout.
        """
        return cls(bool(data["on"]), tuple(PlannedInstance.from_dict(part) for part in data["parts"]))

    def __str__(self) -> str:
        if not self.on:
            return "MIG off"
        return ", ".join(map(str, self.parts)) or "MIG on, no instance"


def layout_of(backend: MigBackend) -> Layout:
    """The present layout of a GPU.

    Raises:
        NotPossibleError: If this user lacks permission, or the GPU has no MIG.
    """
    return Layout(backend.mode().current, tuple(PlannedInstance.from_instance(one) for one in backend.instances()))


MOST = 8
"""More GPU instances than any GPU can have."""


@dataclass(frozen=True)
class Plan:
    """A layout of the GPU ``board`` that fits: the requested instances and their placements, in order.

    ``left`` is the number of further instances of each profile alone, by name.
    """

    board: str
    requests: tuple[Request, ...]
    placements: tuple[Placement, ...]
    left: dict[str, int]

    @property
    def layout(self) -> Layout:
        """The resulting layout of the GPU."""
        pairs = zip(self.requests, self.placements, strict=True)
        parts = [PlannedInstance(request.profile.name, at, tuple(map(Share, request.compute))) for request, at in pairs]
        return Layout(True, tuple(sorted(parts, key=lambda part: part.placement)))

    def to_dict(self) -> dict[str, Any]:
        """The plan as ``--json`` prints it."""
        pairs = zip(self.requests, self.placements, strict=True)
        return {
            "schema": 1,
            "board": self.board,
            "fits": True,
            "instances": [
                {
                    "profile": request.profile.name,
                    "profile_id": request.profile.id,
                    "start": place.start,
                    "size": place.size,
                    "compute_slices": list(request.compute),
                    "memory_bytes": request.profile.memory_mib << 20,
                    "multiprocessors": request.profile.multiprocessors,
                }
                for request, place in pairs
            ],
            "left": self.left,
        }


def make_plan(items: Sequence[str], backend: MigBackend) -> Plan:
    """Fit the requested instances on a whole GPU, whatever its present layout.

    Raises:
        BadInputError: If a profile doesn't exist, or they don't fit together.
        NotPossibleError: If the driver doesn't report the placements.
    """
    profiles = backend.profiles()
    requests = read_requests(items, profiles)
    for request in requests:
        if not request.profile.placements:
            raise NotPossibleError(
                f"{backend.info.name}: the driver reports no placements of {request.profile.name}; root may help"
            )
    places = place([request.profile for request in requests], profiles)
    if places is None:
        raise BadInputError(
            f"{' '.join(map(str, requests))} don't fit on {backend.info.name}: {_why(requests, profiles)}"
        )
    return Plan(backend.info.id, tuple(requests), tuple(places), room(profiles, places, [w.profile for w in requests]))


def place(wanted: Sequence[Profile], profiles: Sequence[Profile]) -> list[Placement] | None:
    """Placements of ``wanted``, in order, with the most room left for ``profiles``; None if they don't fit together."""
    if len(wanted) > MOST or any(sum(w == one for w in wanted) > one.total for one in wanted):
        return None
    # the hardest to place first; equal ones in succession, so that their order is tried only once
    order = sorted(range(len(wanted)), key=lambda i: (len(wanted[i].placements), -wanted[i].slices, wanted[i].name, i))
    best: list[Placement] | None = None
    best_score: tuple[list[int], list[int]] | None = None
    sizes = sorted(profiles, key=lambda one: (one.slices, one.memory_mib), reverse=True)
    for found in _arrangements([wanted[i] for i in order], []):
        left = room(profiles, found, wanted)
        score = ([-left[one.name] for one in sizes], [p.start for p in found])
        if best_score is None or score < best_score:
            best_score, best = score, found
    if best is None:
        return None
    answer = dict(zip(order, best, strict=True))
    return [answer[i] for i in range(len(wanted))]


def room(profiles: Sequence[Profile], taken: Sequence[Placement], used: Sequence[Profile] = ()) -> dict[str, int]:
    """Number of further instances of each profile alone, by name."""
    left = {}
    for profile in profiles:
        occupied = list(taken)
        count = 0
        for candidate in sorted(profile.placements):
            if not any(candidate.overlaps(one) for one in occupied):
                occupied.append(candidate)
                count += 1
        left[profile.name] = max(0, min(count, profile.total - sum(one == profile for one in used)))
    return left


def _arrangements(wanted: Sequence[Profile], taken: list[Placement]) -> Iterator[list[Placement]]:
    at = len(taken)
    if at == len(wanted):
        yield list(taken)
        return
    for candidate in wanted[at].placements:
        if at and wanted[at] == wanted[at - 1] and candidate < taken[-1]:
            continue
        if not any(candidate.overlaps(one) for one in taken):
            yield from _arrangements(wanted, [*taken, candidate])


def _why(requests: Sequence[Request], profiles: Sequence[Profile]) -> str:
    if len(requests) > MOST:
        return f"a GPU has at most {MOST - 1} instances, and {len(requests)} are requested"
    for request in requests:
        count = sum(one.profile == request.profile for one in requests)
        if count > request.profile.total:
            return f"it can have {request.profile.name} {request.profile.total} times at most, not {count}"
    for size in range(len(requests) - 1, 0, -1):
        for some in combinations(requests, size):
            if place([one.profile for one in some], profiles) is not None:
                return f"the most that fits of them is {' '.join(map(str, some))}"
    return "none of them fits"
