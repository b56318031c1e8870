"""The plan of a fleet: which GPUs, their names, which load and noise, how often, in which order."""

from __future__ import annotations

import math
import socket
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from jouletrace.devices import list_devices, open_device
from jouletrace.devices.cuda_order import cuda_uuids
from jouletrace.devices.nvml.vendor import no_gpu_reason
from jouletrace.errors import SIMULATE_GPU, BadInputError, NotPossibleError
from jouletrace.profiler.settings import ProfileSettings

ALL = "all"
TOGETHER, IN_TURN = "together", "in-turn"
PLACEMENTS = (TOGETHER, IN_TURN)

Owner = tuple[str, str]
"""Host and UUID of a GPU."""

Key = tuple[str, str, int]
"""A result: host, UUID of the GPU, and repeat."""


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
        """True if it is a simulated GPU."""
        return self.device.startswith("sim:")


def gpu_names(gpus: Iterable[tuple[str, str, int | None]]) -> dict[Owner, str]:
    """Short unique names by host and UUID: "GPU 3" on one host, "node-1:3", or the UUID where places are ambiguous.

    A GPU without a place on its host takes the first free number there.
    """
    places: dict[Owner, int | None] = {}
    for node, id, index in gpus:
        places[node, id] = index if index is not None else places.get((node, id))
    alone = len({node for node, _ in places}) < 2
    placed = {(node, index) for (node, _), index in places.items()}
    free = {node: (n for n in count() if (node, n) not in placed) for node, _ in places}
    found: dict[Owner, str] = {}
    for (node, id), index in sorted(places.items(), key=lambda item: item[0]):
        number = next(free[node]) if index is None else index
        found[node, id] = f"GPU {number}" if alone else f"{node}:{number}"
    taken = Counter(found.values())
    return {owner: name if taken[name] == 1 else owner[1] for owner, name in found.items()}


def is_meant(ask: str, node: str, id: str, name: str) -> bool:
    """True if a text names a GPU: its name, its place with or without the host, or a beginning of its UUID."""
    wanted = ask.strip().lower().replace("gpu ", "")
    place = name.lower().removeprefix("gpu ").rpartition(":")[2]
    return bool(wanted) and (wanted in (place, f"{node.lower()}:{place}") or id.lower().startswith(wanted))


@dataclass(frozen=True)
class Noise:
    """A load that runs alongside the measured one, on GPUs at these places of each host; none means all."""

    workload: str
    gpus: tuple[int, ...] = ()

    def on(self, gpu: FleetGpu) -> bool:
        """True if it runs on this GPU."""
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

    Raises:
        BadInputError: If an option is invalid.
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
        if self.placement not in PLACEMENTS:
            raise BadInputError(f"--placement {self.placement}: must be one of {', '.join(PLACEMENTS)}")
        if self.repeats < 1:
            raise BadInputError(f"--repeats {self.repeats}: must be at least 1")
        for name, value, least in (("seconds", self.seconds, 0.5), ("limit", self.limit_s, 1.0)):
            if not least <= value < math.inf:
                raise BadInputError(f"--{name} {value:g}: must be at least {least:g} s")


@dataclass(frozen=True)
class Task:
    """One measurement: a repeat, from 0, on a GPU.

    ``order`` is its place among the tasks of its host and repeat; all 0 where they run together.
    """

    gpu: FleetGpu
    repeat: int
    order: int = 0

    @property
    def key(self) -> Key:
        """The result that it gives."""
        return self.gpu.node, self.gpu.id, self.repeat


def rounds(gpus: Sequence[FleetGpu], settings: FleetSettings, repeat: int) -> list[list[Task]]:
    """The tasks of one host in a repeat: groups that run at once, one after the other, in random order."""
    rng = np.random.default_rng([settings.seed, repeat])
    shuffled = [gpus[i] for i in rng.permutation(len(gpus))]
    if settings.placement == TOGETHER:
        return [[Task(gpu, repeat) for gpu in shuffled]]
    return [[Task(gpu, repeat, order)] for order, gpu in enumerate(shuffled)]


def find_gpus(device: str, gpus: str, number: int = 0) -> tuple[list[FleetGpu], list[FleetGpu]]:
    """The GPUs to measure, and the others on this host.

    Args:
        device: "auto" for the GPUs that CUDA shows, "cpu", or "sim:NAME" for simulated GPUs.
        gpus: "all", numbers in CUDA's order or UUIDs, separated by commas; for simulated GPUs, their number.
        number: Of this host in a cluster, from 0: simulated GPUs of two hosts differ.

    Raises:
        BadInputError: If a GPU doesn't exist.
        NotPossibleError: If no GPU is available here.
    """
    if device.startswith("sim:"):
        return simulated(device, gpus, number), []
    if device == "cpu":
        if gpus != ALL:
            raise BadInputError(f"--gpus {gpus}: --device cpu is one device")
        return [FleetGpu(socket.gethostname(), open_device("cpu").info.id, 0, "cpu", "CPU")], []
    if device != "auto":
        raise BadInputError(f"--device {device}: a fleet takes auto, cpu or sim:NAME; choose GPUs by --gpus")
    return chosen(visible(), gpus)


def busy(gpus: Sequence[FleetGpu]) -> dict[str, str]:
    """Users of these GPUs: text by id. Call it before we start any process there."""
    found = {}
    for gpu in gpus:
        with closing(open_device(gpu.device)) as device:
            users = [f"{process.name or 'a process'} (pid {process.pid})" for process in device.processes()]
        if users:
            found[gpu.id] = f"{gpu} is in use by {', '.join(users)}"
    return found


def visible() -> list[FleetGpu]:
    """The whole GPUs that CUDA shows to this process, in its order."""
    reason = no_gpu_reason()
    if reason is not None:
        raise NotPossibleError(f"no fleet here: {reason}; {SIMULATE_GPU}")
    infos = {info.id: info for info in list_devices() if info.kind == "gpu"}
    uuids = cuda_uuids()
    if uuids is None:  # libcuda is missing: NVML's order, and nothing hidden
        uuids = list(infos)
    found = []
    for index, uuid in enumerate(uuids):
        if uuid in infos:
            info = infos[uuid]
            found.append(FleetGpu(info.host or socket.gethostname(), uuid, index, uuid, info.name, info.index))
    if not found:
        raise NotPossibleError("CUDA shows no whole GPU to this process (CUDA_VISIBLE_DEVICES, MIG)")
    return found


def chosen(there: Sequence[FleetGpu], gpus: str) -> tuple[list[FleetGpu], list[FleetGpu]]:
    """The selected GPUs, and the rest."""
    if gpus == ALL:
        return list(there), []
    taken = []
    for word in [part.strip() for part in gpus.split(",")]:
        if word.isascii() and word.isdecimal():
            matches = [gpu for gpu in there if gpu.index == int(word)]
        else:
            matches = [gpu for gpu in there if word and gpu.id.lower().startswith(word.lower())]
        if len(matches) != 1:
            names = ", ".join(f"{gpu.index} ({gpu.id})" for gpu in there)
            trouble = "there is no GPU" if not matches else "several begin with"
            raise BadInputError(f"--gpus {gpus}: {trouble} {word!r}; here are {names}")
        if matches[0] not in taken:
            taken.append(matches[0])
    return taken, [gpu for gpu in there if gpu not in taken]


def simulated(device: str, gpus: str, host: int = 0) -> list[FleetGpu]:
    """GPUs that differ by seed."""
    count = 1 if gpus == ALL else int(gpus) if gpus.isascii() and gpus.isdecimal() else 0
    if count < 1:
        raise BadInputError(f"--gpus {gpus}: for simulated GPUs, give their number")
    name, _, query = device.partition("?")
    parts = [part for part in query.split("&") if part]
    if any(part.startswith(("seed=", "run=")) for part in parts):
        raise BadInputError(f"--device {device}: a fleet chooses the seed and the run itself")
    if any(part.startswith("realtime=") for part in parts):
        # the recorder process would open its own GPU, on which nothing runs
        raise BadInputError(f"--device {device}: GPUs of a fleet run in virtual time, not in real time")
    found = []
    for number in range(count):
        spec = f"{name}?{'&'.join([*parts, f'seed={host * count + number}'])}"
        info = open_device(spec).info
        found.append(FleetGpu(f"sim-node-{host}" if host else "sim-node", info.id, number, spec, info.name))
    return found
