"""The instances that a user requests: ``3g.40gb``, ``1g.10gb+me``, ``2x1c.3g``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from jouletrace.devices.mig import Profile
from jouletrace.errors import BadInputError

_FORM = re.compile(r"(?:(?:(?P<times>\d+)x)?(?P<slices>\d+)c\.)?(?P<name>\d+g(?:\.\d+gb)?(?:[+-][a-z.]+)?)", re.I)


@dataclass(frozen=True)
class Request:
    """One requested GPU instance.

    Attributes:
        profile: Its profile.
        compute: Slices of each of its compute instances.
    """

    profile: Profile
    compute: tuple[int, ...]

    def __str__(self) -> str:
        if self.compute == (self.profile.slices,):
            return self.profile.name
        times = f"{len(self.compute)}x" if len(self.compute) > 1 else ""
        return f"{times}{self.compute[0]}c.{self.profile.name}"


def read_requests(items: Sequence[str], profiles: Sequence[Profile]) -> list[Request]:
    """Read the user's requests.

    Args:
        items: ``PROFILE`` (one compute instance with all its SMs), ``Kc.PROFILE`` (one compute instance of K
            slices) or ``NxKc.PROFILE`` (N of them). A profile is its name, an unambiguous beginning of it
            (``3g``), or its id. Commas also separate items.
        profiles: The profiles of the GPU.

    Raises:
        BadInputError: If an item is no profile of the GPU, or its compute slices don't fit.
    """
    names = [name for item in items for name in item.split(",") if name.strip()]
    if not names:
        raise BadInputError(f"no profile is named; the profiles are: {_named(profiles)}")
    return [_request(name.strip(), profiles) for name in names]


def _request(text: str, profiles: Sequence[Profile]) -> Request:
    if text.isdecimal():
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
    hint = f"; did you mean {near[0]}?" if near else ""
    raise BadInputError(f"{text}: this GPU has no such profile{hint} The profiles are: {_named(profiles)}")


def _named(profiles: Sequence[Profile]) -> str:
    return ", ".join(one.name for one in profiles)
