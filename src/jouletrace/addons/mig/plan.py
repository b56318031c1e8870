"""Does it fit, where, and what is left: a search over the placements that the driver names.

The search is over all placements, not greedy: a 3g.40gb put at 0:4 can be in the way of a 4g.40gb that
fits there alone. Of the placements that fit, those are taken that leave room for the largest further
instance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from jouletrace.addons.mig.layout import Layout, Part, Share, ordered
from jouletrace.addons.mig.wishes import Wish, read_wishes
from jouletrace.devices.mig import MigBackend, Placement, Profile
from jouletrace.errors import BadInputError, NotPossibleError

MOST = 8
"""GPU instances that no GPU can have more of."""


@dataclass(frozen=True)
class Plan:
    """A division that fits.

    Attributes:
        board: Id of the GPU.
        wishes: What was asked for, in its order.
        placements: Where each of them goes.
        left: How many more of each profile there could be, each by itself, by name.
    """

    board: str
    wishes: tuple[Wish, ...]
    placements: tuple[Placement, ...]
    left: dict[str, int]

    @property
    def layout(self) -> Layout:
        """What the GPU is to be."""
        pairs = zip(self.wishes, self.placements, strict=True)
        return Layout(True, ordered([Part(w.profile.name, p, tuple(map(Share, w.compute))) for w, p in pairs]))

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        pairs = zip(self.wishes, self.placements, strict=True)
        return {
            "schema": 1,
            "board": self.board,
            "fits": True,
            "instances": [
                {
                    "profile": wish.profile.name,
                    "profile_id": wish.profile.id,
                    "start": place.start,
                    "size": place.size,
                    "compute_slices": list(wish.compute),
                    "memory_bytes": wish.profile.memory_mib << 20,
                    "multiprocessors": wish.profile.multiprocessors,
                }
                for wish, place in pairs
            ],
            "left": self.left,
        }


def make_plan(items: Sequence[str], backend: MigBackend) -> Plan:
    """Fit what is asked for on a whole GPU, whatever it is divided into now.

    Raises:
        BadInputError: If a profile doesn't exist, or they don't fit together.
        NotPossibleError: If the driver doesn't report it the placements.
    """
    profiles = backend.profiles()
    wishes = read_wishes(items, profiles)
    for wish in wishes:
        if not wish.profile.placements:
            raise NotPossibleError(
                f"{backend.info.name}: the driver doesn't report it where {wish.profile.name} can be; it may need root"
            )
    places = place([wish.profile for wish in wishes], profiles)
    if places is None:
        raise BadInputError(f"{' '.join(map(str, wishes))} don't fit on {backend.info.name}: {_why(wishes, profiles)}")
    return Plan(backend.info.id, tuple(wishes), tuple(places), room(profiles, places, [w.profile for w in wishes]))


def place(wanted: Sequence[Profile], profiles: Sequence[Profile]) -> list[Placement] | None:
    """Where each of ``wanted`` goes, in its order; None if they don't fit together.

    Args:
        wanted: Profiles, also several times the same.
        profiles: All of the GPU, for what is left.
    """
    if len(wanted) > MOST or any(sum(w == one for w in wanted) > one.total for one in wanted):
        return None
    # the hardest to place first; equal ones in a row, so that their order is tried only once
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
    """How many more of each profile there could be, each by itself, by name."""
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


def _why(wishes: Sequence[Wish], profiles: Sequence[Profile]) -> str:
    if len(wishes) > MOST:
        return f"a GPU has at most {MOST - 1} instances, and {len(wishes)} are asked for"
    for wish in wishes:
        count = sum(one.profile == wish.profile for one in wishes)
        if count > wish.profile.total:
            return f"it can have {wish.profile.name} {wish.profile.total} times at most, not {count}"
    for size in range(len(wishes) - 1, 0, -1):
        for some in combinations(wishes, size):
            if place([one.profile for one in some], profiles) is not None:
                return f"the most that fits of them is {' '.join(map(str, some))}"
    return "none of them fits"
