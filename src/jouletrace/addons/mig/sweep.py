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
from jouletrace.addons.mig.requests import read_requests
from jouletrace.addons.mig.rows import RowStore, failed_row
from jouletrace.addons.mig.slices import open_bench, slices_of
from jouletrace.devices.mig import MigBackend, Profile
from jouletrace.errors import BadInputError
from jouletrace.processes.locks import Hold, alone_in, hold
from jouletrace.simulator.boards.device import SimulatedGpu

Begin = Callable[[int, int, str], None]
"""Called before each point with its number, the number of points, and its description."""


@dataclass(frozen=True)
class SweepSettings:
    """Settings of a sweep.

    Attributes:
        profiles: Kinds of slices.
        jobs: Jobs to run on each.
        together: Number of slices of a kind that are active at once; 0 for as many as fit.
        point: Durations of each measurement.
        dcgm_url: URL of a dcgm-exporter for activity; None for GPM.
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
    """Measure every job on every kind of slice; points in the folder are not repeated.

    The GPU is divided for each kind, after its layout was recorded, and is restored when this returns or
    is interrupted. A job that doesn't fit into memory, or fails otherwise, yields a row with the failure.

    Args:
        device: The user's name of the GPU.
        backend: The GPU.
        settings: Settings of the sweep.
        folder: Folder of the rows.
        say: Called with each step.
        begin: Called with each point.

    Raises:
        BadInputError: If a profile doesn't exist or doesn't fit as often as requested.
        NotPossibleError: If the GPU can't be divided, the exporter doesn't answer, or another sweep is writing
            to the folder.
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
    """The GPU, locked against changes by others, and restored at the end."""
    with hold(backend.info, "sweeping over slices of") as held:
        before = layout_of(backend)
        with restored_if_killed(held, backend, device, before) as watch:
            try:
                yield held
            finally:
                return_to(held, before, backend, say)
                watch.done()


def _simulated(device: str, backend: MigBackend) -> AbstractContextManager[SimulatedGpu | None]:
    """The simulated GPU; None for a real one."""
    return closing(SimulatedGpu(device)) if backend.info.simulated else nullcontext()


def _groups(backend: MigBackend, settings: SweepSettings) -> list[tuple[Profile, int]]:
    """Each kind of slice with its number, checked before anything is changed."""
    profiles = backend.profiles()
    if not settings.jobs:
        raise BadInputError("nothing to run: name --models")
    found = []
    for request in read_requests(settings.profiles, profiles):
        if request.compute != (request.profile.slices,):
            raise BadInputError(f"{request}: a sweep runs on whole GPU instances; name {request.profile.name}")
        for together in settings.together:
            if together < 0:
                raise BadInputError(f"--together {together}: a number of slices, or max")
            sizes = range(1, request.profile.total + 1)
            count = together or max(n for n in sizes if place([request.profile] * n, profiles) is not None)
            if place([request.profile] * count, profiles) is None:
                raise BadInputError(
                    f"--together {count}: {backend.info.name} takes {request.profile.total} {request.profile.name}"
                )
            if (request.profile, count) not in found:
                found.append((request.profile, count))
    return found


def _point(bench: Bench, profile: Profile, count: int, job: Job, settings: PointSettings, store: RowStore) -> None:
    try:
        rows = measure_point(bench, [job] * count, settings)
    except JobFailedError as error:
        rows = [failed_row(profile.name, count, slot, job, error.reason, str(error)) for slot in range(count)]
    store.add(rows)
