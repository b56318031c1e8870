"""Whether requested instances fit, where, and what room is left: a search over the driver's placements.

The search covers all placements and isn't greedy: a 3g.40gb put at 0:4 can block a 4g.40gb that
fits only there. Among the placements that fit, those that leave room for the largest further
instance are chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from jouletrace.addons.mig.layout import Layout, Part, Share, ordered
from jouletrace.addons.mig.requests import Request, read_requests
from jouletrace.devices.mig import MigBackend, Placement, Profile
from jouletrace.errors import BadInputError, NotPossibleError

MOST = 8
"""More GPU instances than any GPU can have."""


@dataclass(frozen=True)
class Plan:
    """A layout that fits.

    Attributes:
        board: Id of the GPU.
        requests: The requested instances, in order.
        placements: Placement of each.
        left: Number of further instances of each profile alone, by name.
    """

    board: str
    requests: tuple[Request, ...]
    placements: tuple[Placement, ...]
    left: dict[str, int]

    @property
    def layout(self) -> Layout:
        """The resulting layout of the GPU."""
        pairs = zip(self.requests, self.placements, strict=True)
        return Layout(True, ordered([Part(w.profile.name, p, tuple(map(Share, w.compute))) for w, p in pairs]))

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
    """Placements of ``wanted``, in its order; None if they don't fit together.

    Args:
        wanted: Profiles, possibly repeated.
        profiles: All profiles of the GPU, for the remaining room.
    """
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
