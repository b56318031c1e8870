"""The result CSVs of MIG profilers: a row per model, batch and length on an instance, with the time at which it ran."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import Left, read_text
from jouletrace.formats.importers.delimited import read_delimited

NEEDED = ("model_name", "batch_size", "latency", "start_timestamp", "end_timestamp")

_BY_ID = {0: "7g", 5: "4g", 9: "3g", 14: "2g", 15: "1g", 19: "1g", 20: "1g"}
"""Compute slices of a GPU instance profile by its id, which is the same on all GPUs."""

_LATEST_S = 1 << 33
"""Upper bound on the time of a window, in seconds since 1970: 64 bits of nanoseconds end there."""

_ID_IN_NAME = re.compile(r"MIG_profile_(\d+)", re.I)
_MEMORY_IN_NAME = re.compile(r"(?:^|[_-])0*(\d{1,3})g(?:b)?(?=[_.-]|$)", re.I)
_MEMORY_COLUMNS = ("mig", "instance_memory")
PROFILE = re.compile(
    r"(?:MIG[ -]?)?(?P<name>(?:\d{1,2}c\.)?(?P<slices>\d{1,2}g)\.(?P<memory>\d{1,3})gb(?:\+\S{1,20})?)", re.I
)
"""The profile of an instance, as drivers name it: "7g.80gb", "1g.10gb+me"."""


@dataclass
class Point:
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
        """Whether it has no window: such tools write zeros for a run that ran out of memory."""
        return self.start_s is None

    @property
    def instance(self) -> str:
        """Kind of instance, as far as it is known ("3g.20gb", "20gb", "3g", "")."""
        if self.profile:
            return self.profile
        memory = f"{self.memory_gb}gb" if self.memory_gb is not None else ""
        return ".".join(part for part in (self.slices, memory) if part)


def is_results(head: str) -> bool:
    """Whether text begins with the header of such a CSV."""
    names = [name.strip().strip('"') for name in head.lstrip("\ufeff").partition("\n")[0].split(",")]
    return all(name in names for name in NEEDED)


def read_points(path: Path, left: Left) -> list[Point]:
    """All rows of one file; unreadable ones are counted in ``left``.

    Raises:
        BadInputError: If a column is missing.
    """
    table = read_delimited(read_text(path, left), left)
    if missing := [name for name in NEEDED if name not in table.header]:
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
            if match := PROFILE.fullmatch(cell):
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


def once(points: Iterable[Point]) -> list[Point]:
    """Each run once, although such folders contain it in several files; the additions of each file are kept.

    A failed run has no window as its identity: it equals another one on the same kind of instance. Runs on
    instances of two kinds are different, even if they ran at the same time.
    """
    seen: dict[tuple[object, ...], list[Point]] = {}
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


def _may_share_instance(one: Point, other: Point) -> bool:
    """Whether the known properties of two instances are compatible."""
    slices, memories = {one.slices, other.slices} - {""}, {one.memory_gb, other.memory_gb} - {None}
    return len(slices) < 2 and len(memories) < 2


def _point(model: str, row: dict[str, float], place: str) -> Point | None:
    batch, seq_len = row.get("batch_size"), row.get("seq_length")
    start, end = row.get("start_timestamp") or 0, row.get("end_timestamp") or 0
    ran = bool(start and end)
    if batch is None or batch < 1 or (ran and not 0 < start <= end < _LATEST_S):
        return None
    return Point(
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
