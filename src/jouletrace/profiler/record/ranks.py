"""The rank of this process, from the environment variables of ``torchrun`` and similar launchers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jouletrace.devices.cuda_order import cuda_uuids
from jouletrace.errors import BadInputError
from jouletrace.run.forms import WorkloadFacts


@dataclass(frozen=True)
class Rank:
    """One process of a program that runs in several.

    Attributes:
        rank: Its number among all processes.
        world_size: Number of processes, at least two.
        local: Its number on this host; None if the launcher doesn't state it.
        restart: How often the launcher has restarted all processes.
    """

    rank: int
    world_size: int
    local: int | None = None
    restart: int = 0

    @property
    def name(self) -> str:
        """Name of its part of the Run."""
        return f"rank-{self.rank}" + (f"-restart-{self.restart}" if self.restart else "")

    def facts(self) -> WorkloadFacts:
        """The rank for ``Run.workload``."""
        return {"rank": self.rank, "world_size": self.world_size, "restart": self.restart}


def this_rank(environment: Mapping[str, str] | None = None) -> Rank | None:
    """The rank of this process; None if it runs alone."""
    given = os.environ if environment is None else environment
    rank, world = _number(given, "RANK"), _number(given, "WORLD_SIZE")
    if rank is None or world is None or world < 2 or rank >= world:
        return None
    return Rank(rank, world, _number(given, "LOCAL_RANK"), _number(given, "TORCHELASTIC_RESTART_COUNT") or 0)


def device_of(rank: Rank) -> str:
    """The spec of the device of a rank: the visible GPU with its local number, or the only visible GPU.

    Raises:
        BadInputError: If CUDA shows several GPUs, but none with that number.
    """
    uuids = cuda_uuids() or []
    if rank.local is None or not uuids:
        return "visible"
    if len(uuids) == 1:
        return uuids[0]
    if rank.local < len(uuids):
        return uuids[rank.local]
    raise BadInputError(f"record: LOCAL_RANK is {rank.local}, and CUDA shows {len(uuids)} GPUs: name devices=")


def parts_of(place: Path) -> Path:
    """The folder of the ranks' parts, next to or inside the place of the merged Run."""
    return place.with_suffix(".ranks") if place.suffix.lower() == ".zip" else place


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else None
