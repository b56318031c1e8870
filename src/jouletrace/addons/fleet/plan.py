"""The plan of a fleet: which GPUs, which load and noise, how often, in which order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from jouletrace.errors import BadInputError
from jouletrace.profiler.settings import ProfileSettings

TOGETHER, IN_TURN = "together", "in-turn"
PLACEMENTS = (TOGETHER, IN_TURN)


@dataclass(frozen=True)
class FleetGpu:
    """A GPU of the fleet.

    Attributes:
        node: Name of its host.
        id: UUID.
        index: Its place on its host in CUDA's order, by which users name it.
        device: The spec that opens it there (``--device``).
        name: Marketing name.
        number: Its place in the driver's order, whatever CUDA shows to a process; None where no driver counts.
    """

    node: str
    id: str
    index: int
    device: str
    name: str = ""
    number: int | None = None

    def __str__(self) -> str:
        return f"GPU {self.place} of {self.node}"

    @property
    def place(self) -> int:
        """Its number in reports: the same for processes to which CUDA shows different GPUs."""
        return self.index if self.number is None else self.number

    @property
    def simulated(self) -> bool:
        """Whether it is a simulated GPU."""
        return self.device.startswith("sim:")


@dataclass(frozen=True)
class Noise:
    """A load that runs alongside the measured one.

    Attributes:
        workload: Name or path.
        gpus: Places of its GPUs on each host; empty for all.
    """

    workload: str
    gpus: tuple[int, ...] = ()

    def on(self, gpu: FleetGpu) -> bool:
        """Whether it runs on this GPU."""
        return not self.gpus or gpu.index in self.gpus

    def __str__(self) -> str:
        return f"{self.workload}@{','.join(map(str, self.gpus)) or 'all'}"


def parse_noise(text: str) -> Noise:
    """``WORKLOAD@GPU,GPU`` or ``WORKLOAD@all``.

    Raises:
        BadInputError: If it has another form.
    """
    workload, at, places = text.rpartition("@")
    if not at or not workload:
        raise BadInputError(f"--noise {text!r}: write WORKLOAD@GPU,GPU or WORKLOAD@all")
    if places == "all":
        return Noise(workload)
    numbers = [part.strip() for part in places.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in numbers):
        raise BadInputError(f"--noise {text!r}: GPUs are numbers separated by commas, or all")
    return Noise(workload, tuple(sorted({int(part) for part in numbers})))


@dataclass(frozen=True)
class FleetSettings:
    """The work of every GPU.

    Attributes:
        workload: The measured workload.
        profile: Its settings; ``device`` is each GPU in turn.
        repeats: New processes per GPU.
        placement: "together" (all GPUs of a host at once) or "in-turn" (one at a time).
        seconds: Length of the pass that gives the figures.
        noise: Loads alongside.
        noise_profile: Settings of the noise: task, batch, dtype.
        limit_s: A repeat that takes longer is ended and recorded as failed.
        seed: Seed of the order of GPUs.
    """

    workload: str
    profile: ProfileSettings = field(default_factory=ProfileSettings)
    repeats: int = 10
    placement: str = TOGETHER
    seconds: float = 10.0
    noise: tuple[Noise, ...] = ()
    noise_profile: ProfileSettings = field(default_factory=ProfileSettings)
    limit_s: float = 600.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse invalid settings.

        Raises:
            BadInputError: With the option.
        """
        if self.placement not in PLACEMENTS:
            raise BadInputError(f"--placement {self.placement}: must be one of {', '.join(PLACEMENTS)}")
        if self.repeats < 1:
            raise BadInputError(f"--repeats {self.repeats}: must be at least 1")
        for name, value, least in (("seconds", self.seconds, 0.5), ("limit", self.limit_s, 1.0)):
            if not least <= value < math.inf:
                raise BadInputError(f"--{name} {value:g}: must be at least {least:g} s")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The settings from ``dataclasses.asdict`` of them."""
        noise = tuple(Noise(one["workload"], tuple(one["gpus"])) for one in data["noise"])
        profiles = {name: ProfileSettings(**data[name]) for name in ("profile", "noise_profile")}
        return cls(**{**data, **profiles, "noise": noise})


@dataclass(frozen=True)
class Task:
    """One measurement: a repeat on a GPU.

    Attributes:
        gpu: The GPU.
        repeat: Number of the repeat, from 0.
        order: Its place among the tasks of its host and repeat; all 0 where they run together.
    """

    gpu: FleetGpu
    repeat: int
    order: int = 0


def rounds(gpus: Sequence[FleetGpu], settings: FleetSettings, repeat: int) -> list[list[Task]]:
    """The tasks of one host in a repeat: groups that run at once, one after the other, in random order.

    Args:
        gpus: All GPUs to measure there.
        settings: State their placement, and the seed of the order.
        repeat: Number of the repeat.
    """
    rng = np.random.default_rng([settings.seed, repeat])
    shuffled = [gpus[i] for i in rng.permutation(len(gpus))]
    if settings.placement == TOGETHER:
        return [[Task(gpu, repeat) for gpu in shuffled]]
    return [[Task(gpu, repeat, order)] for order, gpu in enumerate(shuffled)]
