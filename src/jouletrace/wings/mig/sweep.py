"""``mig sweep``: jobs on slices of several kinds, one at a time or as many as fit; its rows, stored as they come."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, astuple, dataclass, field, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jouletrace.campaign.loop import OUT_OF_MEMORY, Note, PointObserver, PointOutcome, Tally, carry_out, claimed
from jouletrace.errors import BadInputError
from jouletrace.processes.locks import Hold, hold
from jouletrace.report.table import Column, Table
from jouletrace.run.files import shown, write_whole
from jouletrace.wings.mig.apply import Say, divide, restored_if_killed, return_to
from jouletrace.wings.mig.bench import Bench, open_bench, slices_of
from jouletrace.wings.mig.jobs import Job, JobFailedError
from jouletrace.wings.mig.partition import MigBackend, Profile
from jouletrace.wings.mig.plan import layout_of, make_plan, place, read_requests
from jouletrace.wings.mig.point import PointSettings, measure_point
from jouletrace.wings.mig.slices import open_board

_TEXT, _NUMBER, _WHOLE = pa.string(), pa.float64(), pa.int64()


def _with_interval(name: str, unit: str, about: str) -> dict[str, tuple[pa.DataType, str, str]]:
    ends = {"low": "lower end of its 95 % interval", "high": "upper end of its 95 % interval"}
    return {name: (_NUMBER, unit, about), **{f"{name}_{end}": (_NUMBER, unit, text) for end, text in ends.items()}}


COLUMNS: dict[str, tuple[pa.DataType, str, str]] = {
    "profile": (_TEXT, "", "MIG profile of the slice"),
    "together": (_WHOLE, "1", "slices at work at once"),
    "slot": (_WHOLE, "1", "number of this row's slice among them"),
    "model": (_TEXT, "", "model, as requested"),
    "workload": (_TEXT, "", "model, by its name in jouletrace profile"),
    "task": (_TEXT, "", "task of a request"),
    "batch": (_WHOLE, "1", "samples per request"),
    "seq_len": (_WHOLE, "1", "tokens per sample; empty for the model's own"),
    "dtype": (_TEXT, "", "number format; empty for the workload's own"),
    "mode": (_TEXT, "", "how a request is launched"),
    "status": (_TEXT, "", "done or failed; a failed row has no figures"),
    "reason": (
        _TEXT,
        "",
        "why it failed: out_of_memory, vanished, timed_out, lost_gpu, not_possible, bad_input, failed",
    ),
    "detail": (_TEXT, "", "the same in words"),
    "device": (_TEXT, "", "UUID of the slice"),
    "latency_mean_s": (_NUMBER, "s", "mean latency of a request"),
    "latency_std_s": (_NUMBER, "s", "standard deviation of a sample (n - 1)"),
    "latency_p50_s": (_NUMBER, "s", "median"),
    "latency_p95_s": (_NUMBER, "s", "95th percentile; empty below 20 requests"),
    "latency_p99_s": (_NUMBER, "s", "99th percentile; empty below 100 requests"),
    "requests": (_WHOLE, "1", "requests that were timed"),
    "requests_per_s": (_NUMBER, "1/s", "requests completed per second"),
    "samples_per_s": (_NUMBER, "1/s", "samples completed per second"),
    "fb_used_bytes": (_NUMBER, "B", "frame buffer in use on the slice"),
    "graphics_active": (_NUMBER, "1", "graphics engine activity of the slice, 0 to 1"),
    "sm_active": (_NUMBER, "1", "SM activity of the slice, 0 to 1"),
    "sm_occupancy": (_NUMBER, "1", "SM occupancy of the slice, 0 to 1"),
    "pipe_tensor_active": (_NUMBER, "1", "tensor pipe activity of the slice, 0 to 1"),
    "memory_active": (_NUMBER, "1", "memory activity of the slice, 0 to 1"),
    "board_power_w": (_NUMBER, "W", "measured power of the whole GPU"),
    "idle_power_w": (_NUMBER, "W", "measured power of the whole GPU with contexts alive and nothing running"),
    "unattributed_w": (_NUMBER, "W", "power above idle that belongs to no slice"),
    **_with_interval("power_active_w", "W", "power of the slice above idle (modelled)"),
    **_with_interval("power_w", "W", "the same with the slice's share of idle power (modelled)"),
    **_with_interval("energy_active_per_sample_j", "J", "energy above idle per sample (modelled)"),
    **_with_interval("energy_per_sample_j", "J", "energy per sample, share of idle included (modelled)"),
    **_with_interval("board_energy_per_sample_j", "J", "measured energy of the whole GPU per sample of all its slices"),
    "power_reason": (_TEXT, "", "why the power of the slice is missing"),
    "flags": (_TEXT, "", "what qualifies the figures"),
    "latency_quantiles_s": (pa.list_(_NUMBER), "s", "0th to 100th percentile of latency, for its distribution"),
}
"""Type, unit and description of each column; a missing figure is null, never 0."""


_OF_POINT = ("profile", "together", *(own.name for own in fields(Job)))
"""The columns that name a point."""


@dataclass(frozen=True)
class SlicePoint:
    """A job on so many slices of a kind at once."""

    profile: str
    together: int
    job: Job

    def __str__(self) -> str:
        return f"{self.job} on {self.together} × {self.profile}"


class RowStore:
    """Rows in a folder; those of a point are on the disk before the next begins.

    Raises:
        BadInputError: If they can't be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / "rows.jsonl"
        self._points: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        try:
            lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        except OSError as error:
            raise BadInputError(f"{shown(self._path)} can't be read: {error.strerror}") from None
        for number, line in enumerate(lines, start=1):
            try:
                rows = json.loads(line)
                self._points[tuple(rows[0][name] for name in _OF_POINT)] = rows
            except (ValueError, TypeError, LookupError):
                if number < len(lines):  # a crash cuts off the last
                    raise BadInputError(f"{shown(self._path)} is damaged in line {number}") from None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of all points."""
        return [row for rows in self._points.values() for row in rows]

    def has(self, point: SlicePoint) -> bool:
        """True if a point is done, or doesn't fit into memory."""
        rows = self._points.get((point.profile, point.together, *astuple(point.job)), ())
        return any(row["status"] == "done" or row["reason"] == OUT_OF_MEMORY for row in rows)

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Store the rows of one point, in place of those of an earlier failure."""
        ordered = [{name: row.get(name) for name in COLUMNS} for row in rows]
        self._points[tuple(ordered[0][name] for name in _OF_POINT)] = ordered
        lines = [json.dumps(rows) + "\n" for rows in self._points.values()]
        write_whole(self._path, "".join(lines).encode())

    def export(self) -> None:
        """Write ``sweep.csv`` and ``sweep.parquet``."""
        fields = [
            pa.field(name, kind, metadata={"unit": unit, "description": about})
            for name, (kind, unit, about) in COLUMNS.items()
        ]
        table = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(self.rows, pa.schema(fields)), table)
        write_whole(self.folder / "sweep.parquet", table.getvalue())
        write_whole(self.folder / "sweep.csv", to_csv(self.rows).encode())


def to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV, with null as an empty cell; only the Parquet file contains distributions."""
    names = [name for name in COLUMNS if name != "latency_quantiles_s"]
    return Table("", list(map(Column, names)), [list(map(row.get, names)) for row in rows]).csv()


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
    watch: PointObserver[SlicePoint] | None = None,
) -> tuple[RowStore, Tally[SlicePoint]]:
    """Measure every job on every kind of slice; points in the folder are not repeated, unless they failed.

    The GPU is divided for each kind, after its layout was recorded, and is restored when this returns. A job that
    doesn't fit into memory, or fails otherwise, yields a row with the failure. ``device`` is the user's name of the
    GPU; ``say`` is called with each step.

    Raises:
        BadInputError: If a profile doesn't exist or doesn't fit as often as requested.
        NotPossibleError: If no job could be run, or another sweep is writing to the folder.
    """
    kinds, folder = _groups(backend, settings), folder.absolute()
    points = [SlicePoint(profile.name, count, job) for profile, count in kinds for job in settings.jobs]
    about = {"board": backend.info.id, "name": backend.info.name, "point": asdict(settings.point)}
    with claimed(folder / "sweep.json", "sweep", about):
        store = RowStore(folder)
        try:
            with _benches(device, backend, settings.dcgm_url, say) as bench_for:

                def measure(group: Sequence[SlicePoint], note: Note[SlicePoint]) -> None:
                    (point,) = group
                    rows = _rows(bench_for(point), point, settings.point)
                    store.add(rows)
                    note(PointOutcome(point, rows[0].get("reason", ""), rows[0]["detail"]))

                return store, carry_out([[point] for point in points], store.has, measure, watch or PointObserver())
        finally:
            store.export()


@contextmanager
def _benches(
    device: str, backend: MigBackend, dcgm_url: str | None, say: Say
) -> Iterator[Callable[[SlicePoint], Bench]]:
    """The bench of a point; the GPU is divided again when a point asks for other slices than the one before."""
    with ExitStack() as stack:
        hold = stack.enter_context(_held(device, backend, say))
        gpu = stack.enter_context(closing(open_board(device))) if backend.info.simulated else None
        current = stack.enter_context(ExitStack())
        benches: dict[tuple[str, int], Bench] = {}

        def bench_for(point: SlicePoint) -> Bench:
            kind = point.profile, point.together
            if kind not in benches:
                current.close()
                benches.clear()
                divide(hold, make_plan([point.profile] * point.together, backend), backend, device, say)
                bench = open_bench(backend, slices_of(backend)[: point.together], dcgm_url, gpu)
                current.callback(bench.close if gpu is None else bench.unload)
                benches[kind] = bench
            return benches[kind]

        yield bench_for


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


def _groups(backend: MigBackend, settings: SweepSettings) -> list[tuple[Profile, int]]:
    """Each kind of slice with its number, checked before anything is changed."""
    profiles = backend.profiles()
    found = []
    for request in read_requests(settings.profiles, profiles):
        profile = request.profile
        if request.compute != (profile.slices,):
            raise BadInputError(f"{request}: a sweep runs on whole GPU instances; name {profile.name}")
        for together in settings.together:
            if together < 0:
                raise BadInputError(f"--together {together}: a number of slices, or max")
            sizes = range(1, profile.total + 1)
            count = together or max(n for n in sizes if place([profile] * n, profiles) is not None)
            if place([profile] * count, profiles) is None:
                raise BadInputError(f"--together {count}: {backend.info.name} takes {profile.total} {profile.name}")
            found.append((profile, count))
    return list(dict.fromkeys(found))


def _rows(bench: Bench, point: SlicePoint, settings: PointSettings) -> list[dict[str, Any]]:
    """The rows of a point; without figures if the job failed."""
    try:
        return measure_point(bench, [point.job] * point.together, settings)
    except JobFailedError as error:
        failed = {"status": "failed", "reason": error.reason, "detail": str(error), "flags": ""}
        named = {"profile": point.profile, "together": point.together, **asdict(point.job)}
        return [{**named, "slot": slot, **failed} for slot in range(point.together)]
