"""Folders of MIG profilers: result CSVs, and the ``dcgm.csv`` that was recorded meanwhile.

A row of results is a model, batch and length on an instance, with the time at which it ran. The log's entity is
the GPU for every instance, so only time assigns its activity: each row's figures are means over the log's readings
in its window, both ends included. A run that several files contain is read once. Rows of zeros are runs that failed,
and have no figures.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import (
    NO_CLOCK,
    UNIX,
    ImportOptions,
    Left,
    decode_text,
    new_run,
    read_head,
    read_text,
)
from jouletrace.formats.importers.columns import join
from jouletrace.formats.importers.delimited import read_delimited
from jouletrace.run import Estimate, Run, tables
from jouletrace.run.estimate import STATED
from jouletrace.run.figures import Figures
from jouletrace.wings.logs import dcgm

LOG = "dcgm.csv"
METHOD = STATED + "the MIG profiler"
JOINED = METHOD + ", joined by time"

_JOINS = {"graphics_active": ("graphics_active", ""), "memory_used_bytes": ("memory_used", "_bytes")}
"""Channel, and the parts of its figures' names before and after "_mean" and "_std"."""

_RATE_SLACK = 0.02

_NEEDED = ("model_name", "batch_size", "latency", "start_timestamp", "end_timestamp")

_BY_ID = {0: "7g", 5: "4g", 9: "3g", 14: "2g", 15: "1g", 19: "1g", 20: "1g"}
"""Compute slices of a GPU instance profile by its id, which is the same on all GPUs."""

_LATEST_S = 1 << 33
"""Upper bound on the time of a window, in seconds since 1970: 64 bits of nanoseconds end there."""

_ID_IN_NAME = re.compile(r"MIG_profile_(\d+)", re.I)
_MEMORY_IN_NAME = re.compile(r"(?:^|[_-])0*(\d{1,3})g(?:b)?(?=[_.-]|$)", re.I)
_MEMORY_COLUMNS = ("mig", "instance_memory")
_PROFILE = re.compile(
    r"(?:MIG[ -]?)?(?P<name>(?:\d{1,2}c\.)?(?P<slices>\d{1,2}g)\.(?P<memory>\d{1,3})gb(?:\+\S{1,20})?)", re.I
)
"""The profile of an instance, as drivers name it: "7g.80gb", "1g.10gb+me"."""


@dataclass
class _Point:
    """One row: workload, instance, time and speed.

    Attributes:
        model: Name of the model.
        batch: Samples per request.
        seq_len: Tokens per sample; None where the file has none.
        start_s, end_s: Window in seconds since the Unix epoch, both ends included; None for a failed run.
        figures: Stated figures by column, in the file's units; missing cells are absent.
        slices, memory_gb: Of the instance, as far as a column or the file's name states them: "3g", 20.
        profile: Of the instance, where a cell states it: "3g.20gb".
        place: File and line of its first occurrence.
    """

    model: str
    batch: int
    seq_len: int | None
    start_s: int | None
    end_s: int | None
    figures: dict[str, float] = field(default_factory=dict)
    slices: str = ""
    memory_gb: int | None = None
    profile: str = ""
    place: str = ""

    @property
    def failed(self) -> bool:
        """True if it has no window: such tools write zeros for a run that ran out of memory."""
        return self.start_s is None

    @property
    def instance(self) -> str:
        """Kind of instance, as far as it is known ("3g.20gb", "20gb", "3g", "")."""
        if self.profile:
            return self.profile
        memory = f"{self.memory_gb}gb" if self.memory_gb is not None else ""
        return ".".join(part for part in (self.slices, memory) if part)


def sniff(head: bytes) -> bool:
    """True if the beginning of a file is that of a result CSV of such a folder."""
    header = decode_text(head).lstrip("\ufeff").partition("\n")[0]
    return set(_NEEDED) <= {name.strip().strip('"') for name in header.split(",")}


def is_folder(path: Path) -> bool:
    """True if a folder contains a result CSV at any depth."""
    return bool(_results(path))


def read(path: Path, options: ImportOptions) -> Run:
    """Read a folder with all subfolders, or one result CSV with the log in its folder or above it.

    Raises:
        BadInputError: If it contains no row.
    """
    left = Left(path)
    by_log: dict[Path | None, list[_Point]] = {}
    for file in _results(path) if path.is_dir() else [path]:
        by_log.setdefault(_log_of(file, path), []).extend(_read_points(file, left))
    if not any(by_log.values()):
        raise BadInputError(f"{path}: no row of results in it{left.first()}")
    run = new_run(path, "mig_folder", NO_CLOCK if None in by_log and len(by_log) == 1 else UNIX)
    figures = Figures()
    figures.model(path.name)
    spans: list[dict[str, object]] = []
    for log, points in by_log.items():
        recorded = _read_log(run, log, options)
        for point in _once(points):
            _add(figures, point, spans, recorded, left)
    if None in by_log:
        run.warn("no_activity_log", f"no {LOG} beside or above some result files: activity is unknown", path.name)
    figures.become(run)
    run.spans = tables.from_rows(spans, "spans")
    left.warn(run)
    return run


def _results(folder: Path) -> list[Path]:
    files = [file for file in sorted(folder.rglob("*.csv")) if file.name != LOG and file.is_file()]
    return [file for file in files if file.stat().st_size and sniff(read_head(file))]


def _log_of(file: Path, top: Path) -> Path | None:
    """The log in the file's folder or a folder above it: up to the folder that is read, or two levels above a file."""
    folders = [file.parent, *file.parent.parents]
    stop = folders.index(top) if top in folders else 2
    return next((folder / LOG for folder in folders[: stop + 1] if (folder / LOG).is_file()), None)


def _read_points(path: Path, left: Left) -> list[_Point]:
    """All rows of one file; unreadable ones are counted in ``left``."""
    table = read_delimited(read_text(path, left), left)
    if missing := [name for name in _NEEDED if name not in table.header]:
        raise BadInputError(f"{path}: results of a MIG profiler without a column {missing[0]}")
    slices, memory = _instance_of(path.name)
    found = []
    for cells, line in zip(table.rows, table.lines, strict=True):
        place = f"{path.name}, line {line}"
        row: dict[str, float] = {}
        profile: re.Match[str] | None = None
        for name, cell in zip(table.header, cells, strict=True):
            if name in ("", "Unnamed: 0", "model_name"):
                continue
            if match := _PROFILE.fullmatch(cell):
                profile = match
            elif (value := left.number(cell, ".", f"{place}, column {name}")) is not None:
                row[name] = value
        point = _point(cells[table.header.index("model_name")], row, place)
        if point is None:
            left.add("broken_rows", "rows have no batch size or an impossible window", place=place)
            continue
        in_column = next((row[name] for name in _MEMORY_COLUMNS if name in row), None)
        point.slices, point.memory_gb = slices, memory if in_column is None else int(in_column)
        if profile is not None:
            point.profile, point.slices = profile["name"], profile["slices"].lower()
            point.memory_gb = int(profile["memory"])
        found.append(point)
    return found


def _once(points: Iterable[_Point]) -> list[_Point]:
    """Each run once, although such folders contain it in several files; the additions of each file are kept.

    A failed run has no window as its identity: it equals another one on the same kind of instance. Runs on
    instances of two kinds are different, even if they ran at the same time.
    """
    seen: dict[tuple[object, ...], list[_Point]] = {}
    for point in points:
        what = (point.model, point.batch, point.seq_len)
        key = (*what, point.instance) if point.failed else (*what, point.start_s, point.end_s)
        alike = seen.setdefault(key, [])
        first = next((one for one in alike if _may_share_instance(one, point)), None)
        if first is None:
            alike.append(point)
            continue
        first.figures = {**point.figures, **first.figures}
        first.slices, first.profile = first.slices or point.slices, first.profile or point.profile
        first.memory_gb = point.memory_gb if first.memory_gb is None else first.memory_gb
    once = [point for alike in seen.values() for point in alike]
    return sorted(once, key=lambda p: (p.start_s is None, p.start_s or 0, p.instance, p.batch))


def _may_share_instance(one: _Point, other: _Point) -> bool:
    """True if the known properties of two instances are compatible."""
    slices, memories = {one.slices, other.slices} - {""}, {one.memory_gb, other.memory_gb} - {None}
    return len(slices) < 2 and len(memories) < 2


def _point(model: str, row: dict[str, float], place: str) -> _Point | None:
    batch, seq_len = row.get("batch_size"), row.get("seq_length")
    start, end = row.get("start_timestamp") or 0, row.get("end_timestamp") or 0
    ran = bool(start and end)
    if batch is None or batch < 1 or (ran and not 0 < start <= end < _LATEST_S):
        return None
    return _Point(
        model,
        int(batch),
        None if seq_len is None else int(seq_len),
        int(start) if ran else None,
        int(end) if ran else None,
        {name: row[name] for name in ("latency", "latency_std", "throughput") if ran and name in row},
        place=place,
    )


def _instance_of(name: str) -> tuple[str, int | None]:
    """Compute slices and memory in GB, from the name of a file."""
    by_id = _ID_IN_NAME.search(name)
    if by_id is not None:
        return _BY_ID.get(int(by_id[1]), ""), None
    memory = _MEMORY_IN_NAME.search(Path(name).stem)
    return "", int(memory[1]) if memory else None


def _read_log(run: Run, log: Path | None, options: ImportOptions) -> Run | None:
    """The log's readings, which are also added to the Run."""
    if log is None:
        return None
    recorded = dcgm.read_csv(log, options)
    run.samples = join("samples", [run.samples, recorded.samples])
    known = {device.id for device in run.devices}
    run.devices += [device for device in recorded.devices if device.id not in known]
    run.channels += [one for one in recorded.channels if run.channel(one.device, one.name) is None]
    for warning in recorded.warnings:
        run.warn(warning.code, warning.message, warning.where or log.name)
    run.created_ns = min(run.created_ns or recorded.created_ns, recorded.created_ns)
    return recorded


def _add(figures: Figures, point: _Point, spans: list[dict[str, object]], recorded: Run | None, left: Left) -> None:
    """Add a unit with its figures, and its span, if it has one."""
    length = f" seq {point.seq_len}" if point.seq_len is not None else ""
    name = f"{point.model} batch {point.batch}{length} on {point.instance or 'an instance'}"
    unit = figures.units.add("range", name, count=1)
    if point.start_s is None or point.end_s is None:
        left.add("failed_rows", "runs failed (zeros in the file, mostly for lack of memory)", place=point.place)
        for metric in ("latency_mean_s", "throughput_per_s"):
            figures.add(unit, metric, Estimate.null("run_failed", METHOD))
        return
    for column, metric in (("latency", "latency_mean_s"), ("latency_std", "latency_std_s")):
        if column in point.figures:
            figures.add(unit, metric, Estimate(point.figures[column] * 1e-3, method=METHOD))
    latency, stated = point.figures.get("latency"), point.figures.get("throughput")
    if latency is not None and latency > 0:
        rate = point.batch * 1e3 / latency
        figures.add(unit, "throughput_per_s", Estimate(rate, method=f"{METHOD}: batch / latency"))
        if stated is not None and abs(stated - rate) > _RATE_SLACK * rate:
            text = "stated throughputs do not agree with batch and latency and were left out"
            left.add("throughput_differs", text, place=point.place)
    if recorded is not None:
        _join(figures, unit, recorded, point.start_s, point.end_s)
    span = {"id": len(spans), "kind": "range", "name": name, "lane": "MIG results", "unit": unit}
    spans.append({**span, "start_ns": point.start_s * 10**9, "end_ns": point.end_s * 10**9})


def _join(figures: Figures, unit: int, recorded: Run, start_s: int, end_s: int) -> None:
    """Add means and standard deviations of the log's readings in a window."""
    device = recorded.devices[0].id
    for channel, (name, suffix) in _JOINS.items():
        if recorded.channel(device, channel) is None:
            continue
        stamps, values = recorded.series(device, channel)
        seconds = stamps // 10**9  # as printed: readings within one second have been spread over it
        inside = values[(seconds >= start_s) & (seconds <= end_s)]
        mean, n = Estimate.null("no_samples", JOINED), len(inside)
        if n:
            mean = Estimate(float(np.mean(inside)), n=n, method=JOINED)
        figures.add(unit, f"{name}_mean{suffix}", mean)
        if n > 1:
            spread = Estimate(float(np.std(inside, ddof=1)), n=n, method=JOINED)
            figures.add(unit, f"{name}_std{suffix}", spread)
