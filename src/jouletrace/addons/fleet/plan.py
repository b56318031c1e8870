"""What a fleet is to do: which GPUs, which load, what beside it, how often, in which order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np

from jouletrace.errors import BadInputError
from jouletrace.profiler.settings import ProfileSettings

TOGETHER, IN_TURN = "together", "in-turn"
PLACEMENTS = (TOGETHER, IN_TURN)
ENGINES = ("local", "ray")

COLLECTIVE = "allreduce"
CALLS_PORT = "JOULETRACE_CALLS_PORT"
"""Variable that says where a collective load's calls are announced; see ``collective``."""


@dataclass(frozen=True)
class FleetGpu:
    """A GPU of the fleet.

    Attributes:
        node: Name of the host it is in.
        id: UUID.
        index: Its place on its host, as CUDA counts: what a user asks for.
        device: What opens it there (``--device``).
        name: Marketing name.
        number: Its place as the driver counts, whatever CUDA shows a process; None where nobody else counts.
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
        """What it goes by in reports: the same for processes that CUDA shows different GPUs."""
        return self.index if self.number is None else self.number

    @property
    def simulated(self) -> bool:
        """Whether it is a simulated GPU."""
        return self.device.startswith("sim:")


@dataclass(frozen=True)
class Noise:
    """A load that runs beside the one that is measured.

    Attributes:
        workload: Name or path.
        gpus: Places of the GPUs on each host that it runs on; empty for all.
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
        raise BadInputError(f"--noise {text!r}: GPUs are numbers with commas between, or all")
    return Noise(workload, tuple(sorted({int(part) for part in numbers})))


@dataclass(frozen=True)
class FleetSettings:
    """What every GPU does.

    Attributes:
        workload: What is measured.
        profile: How; its ``device`` is each GPU in turn.
        repeats: Fresh processes a GPU.
        placement: "together" (all GPUs of a host at once) or "in-turn" (one at a time).
        seconds: Length of the pass that the figures come from.
        noise: Loads beside.
        noise_profile: How noise is built: task, batch, dtype.
        cool_to_c: Temperature below which a repeat may begin; None for 5 degrees above what each GPU began with.
        cool_limit_s: Longest that is waited for that; 0 for not at all.
        limit_s: A repeat that takes longer is ended and recorded as failed.
        seed: Of the order of GPUs.
    """

    workload: str
    profile: ProfileSettings = field(default_factory=ProfileSettings)
    repeats: int = 10
    placement: str = TOGETHER
    seconds: float = 10.0
    noise: tuple[Noise, ...] = ()
    noise_profile: ProfileSettings = field(default_factory=ProfileSettings)
    cool_to_c: float | None = None
    cool_limit_s: float = 60.0
    limit_s: float = 600.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what makes no sense.

        Raises:
            BadInputError: Names the option.
        """
        if self.placement not in PLACEMENTS:
            raise BadInputError(f"--placement {self.placement}: must be one of {', '.join(PLACEMENTS)}")
        if self.repeats < 1:
            raise BadInputError(f"--repeats {self.repeats}: must be at least 1")
        for name, value, least in (
            ("seconds", self.seconds, 0.5),
            ("cool-limit", self.cool_limit_s, 0.0),
            ("limit", self.limit_s, 1.0),
        ):
            if not least <= value < math.inf:
                raise BadInputError(f"--{name} {value:g}: must be at least {least:g} s")

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """From what ``to_dict`` gave.

        Raises:
            BadInputError: If it isn't that.
        """
        try:
            noise = tuple(Noise(one["workload"], tuple(one["gpus"])) for one in data["noise"])
            profiles = {name: ProfileSettings(**data[name]) for name in ("profile", "noise_profile")}
            return cls(**{**data, **profiles, "noise": noise})
        except (KeyError, TypeError) as error:
            raise BadInputError(f"these are no settings of a fleet: {error}") from None


@dataclass(frozen=True)
class Task:
    """One measurement: a repeat on a GPU.

    Attributes:
        gpu: Where.
        repeat: Which, from 0.
        order: Its place among those of its host and repeat; all 0 where they run together.
    """

    gpu: FleetGpu
    repeat: int
    order: int = 0


def rounds(gpus: Sequence[FleetGpu], settings: FleetSettings, repeat: int) -> list[list[Task]]:
    """What one host does in a repeat: tasks that run at once, one group after the other, in random order.

    Args:
        gpus: All that are measured there.
        settings: Say how they are placed, and the seed of the order.
        repeat: Which.
    """
    rng = np.random.default_rng([settings.seed, repeat])
    shuffled = [gpus[i] for i in rng.permutation(len(gpus))]
    if settings.placement == TOGETHER:
        return [[Task(gpu, repeat) for gpu in shuffled]]
    return [[Task(gpu, repeat, order)] for order, gpu in enumerate(shuffled)]
