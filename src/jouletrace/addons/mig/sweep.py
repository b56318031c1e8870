"""``mig sweep``: jobs on slices of several kinds, one at a time or as many as fit, resumable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path

from jouletrace.addons.mig.apply import Say, divide, restored_if_killed, return_to
from jouletrace.addons.mig.bench import Bench, JobFailedError
from jouletrace.addons.mig.jobs import Job
from jouletrace.addons.mig.layout import layout_of
from jouletrace.addons.mig.plan import make_plan, place
from jouletrace.addons.mig.point import PointSettings, measure_point
from jouletrace.addons.mig.rows import RowStore, failed_row
from jouletrace.addons.mig.slices import open_bench, slices_of
from jouletrace.addons.mig.wishes import read_wishes
from jouletrace.devices.mig import MigBackend, Profile
from jouletrace.errors import BadInputError
from jouletrace.processes.locks import Hold, alone_in, hold
from jouletrace.simulator.boards.device import SimulatedGpu

Begin = Callable[[int, int, str], None]
"""Told before each point: its number, how many there are, and what it is."""


@dataclass(frozen=True)
class SweepSettings:
    """What to sweep over.

    Attributes:
        profiles: Kinds of slices.
        jobs: What to run on each.
        together: How many slices of a kind are at work at once; 0 for as many as fit.
        point: How long each measurement lasts.
        dcgm_url: A dcgm-exporter to ask for activity; None for GPM.
    """

    profiles: tuple[str, ...]
    jobs: tuple[Job, ...]
    together: tuple[int, ...] = (1,)
    point: PointSettings = field(default_factory=PointSettings)
    dcgm_url: str | None = None


def sweep(
    device: str,
    backend: MigBackend,
    settings: SweepSettings,
    folder: Path,
    say: Say = lambda text: None,
    begin: Begin = lambda number, count, what: None,
) -> RowStore:
    """Measure every job on every kind of slice; points that the folder has already are not run again.

    The GPU is divided for each kind, what it was written down first, and is as before when this returns or
    is interrupted. A job that doesn't fit in memory, or fails otherwise, is a row that says so.

    Args:
        device: What the user calls the GPU.
        backend: The GPU.
        settings: What to sweep over.
        folder: Where the rows go.
        say: Told each step.
        begin: Told each point.

    Raises:
        BadInputError: If a profile doesn't exist or doesn't fit so often.
        NotPossibleError: If the GPU can't be divided, the exporter doesn't answer, or another sweep is running
            into the folder.
    """
    groups, folder = _groups(backend, settings), folder.absolute()
    with alone_in(folder, "running a sweep"):
        return _swept(device, backend, settings, groups, folder, say, begin)


def _swept(
    device: str,
    backend: MigBackend,
    settings: SweepSettings,
    groups: list[tuple[Profile, int]],
    folder: Path,
    say: Say,
    begin: Begin,
) -> RowStore:
    about = {"board": backend.info.id, "name": backend.info.name, "point": asdict(settings.point)}
    store = RowStore(folder, about)
    points = [(group, job) for group in groups for job in settings.jobs]
    done = 0
    with _held(device, backend, say) as held, _simulated(device, backend) as gpu:
        for profile, count in groups:
            todo = [job for job in settings.jobs if not store.has(profile.name, count, job)]
            done += len(settings.jobs) - len(todo)
            if not todo:
                continue
            divide(held, make_plan([profile.name] * count, backend), backend, device, say)
            bench = open_bench(backend, slices_of(backend)[:count], settings.dcgm_url, gpu)
            try:
                for job in todo:
                    done += 1
                    begin(done, len(points), f"{job} on {count} × {profile.name}")
                    _point(bench, profile, count, job, settings.point, store)
            finally:
                bench.unload()
                if gpu is None:
                    bench.close()
    store.export()
    return store


@contextmanager
def _held(device: str, backend: MigBackend, say: Say) -> Iterator[Hold]:
    """The GPU, which nobody else changes meanwhile, and which is divided as before in the end."""
    with hold(backend.info, "sweeping over slices of") as held:
        before = layout_of(backend)
        with restored_if_killed(held, backend, device, before) as watch:
            try:
                yield held
            finally:
                return_to(held, before, backend, say)
                watch.done()


def _simulated(device: str, backend: MigBackend) -> AbstractContextManager[SimulatedGpu | None]:
    """The simulated GPU, if it is one."""
    return closing(SimulatedGpu(device)) if backend.info.simulated else nullcontext()


def _groups(backend: MigBackend, settings: SweepSettings) -> list[tuple[Profile, int]]:
    """Each kind of slice with how many of it, checked before anything is changed."""
    profiles = backend.profiles()
    if not settings.jobs:
        raise BadInputError("nothing to run: name --models")
    found = []
    for wish in read_wishes(settings.profiles, profiles):
        if wish.compute != (wish.profile.slices,):
            raise BadInputError(f"{wish}: a sweep runs on whole GPU instances; name {wish.profile.name}")
        for together in settings.together:
            if together < 0:
                raise BadInputError(f"--together {together}: a number of slices, or max")
            sizes = range(1, wish.profile.total + 1)
            count = together or max(n for n in sizes if place([wish.profile] * n, profiles) is not None)
            if place([wish.profile] * count, profiles) is None:
                raise BadInputError(
                    f"--together {count}: {backend.info.name} can have {wish.profile.name} {wish.profile.total} times"
                )
            if (wish.profile, count) not in found:
                found.append((wish.profile, count))
    return found


def _point(bench: Bench, profile: Profile, count: int, job: Job, settings: PointSettings, store: RowStore) -> None:
    try:
        rows = measure_point(bench, [job] * count, settings)
    except JobFailedError as error:
        rows = [failed_row(profile.name, count, slot, job, error.reason, str(error)) for slot in range(count)]
    store.add(rows)
