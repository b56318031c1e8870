"""Alignment of files to one clock: the origin of their times, and the offsets added to them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.analysis.traced import NO_COMMON_TIME, span_text
from jouletrace.formats.importers.base import NO_CLOCK, RELATIVE, UNIX, ImportOptions, about
from jouletrace.run import Run

_TIMES = {
    "spans": ("start_ns", "end_ns"),
    "samples": ("time_ns",),
    "windows": ("start_ns", "end_ns"),
    "requests": ("scheduled_ns", "sent_ns", "first_ns", "last_ns"),
}


@dataclass(frozen=True)
class Extent:
    """The time range of a Run in ns; both None for a Run without times."""

    start_ns: int | None
    end_ns: int | None

    def said(self) -> str:
        """As text."""
        return span_text(self.start_ns, self.end_ns) if self.start_ns is not None and self.end_ns is not None else ""

    def touches(self, other: Extent) -> bool:
        """Whether the two overlap."""
        if self.start_ns is None or self.end_ns is None or other.start_ns is None or other.end_ns is None:
            return False
        return self.start_ns <= other.end_ns and other.start_ns <= self.end_ns


def extent(run: Run) -> Extent:
    """The time range of a Run."""
    starts: list[int] = []
    ends: list[int] = []
    for name, columns in _TIMES.items():
        table = run.table(name)
        for column in columns:
            edges = pc.min_max(table[column])
            if edges["min"].is_valid:
                starts.append(edges["min"].as_py())
                ends.append(edges["max"].as_py())
    return Extent(min(starts), max(ends)) if starts else Extent(None, None)


def shift(run: Run, by_ns: int) -> None:
    """Add to all times of a Run."""
    if by_ns == 0:
        return
    for name, columns in _TIMES.items():
        table: pa.Table = run.table(name)
        for column in columns:
            where = table.schema.get_field_index(column)
            moved = pc.add(table[column], pa.scalar(by_ns, pa.int64()))
            table = table.set_column(where, table.schema.field(column), moved)
        setattr(run, name, table)


def align(runs: list[Run], paths: list[str], options: ImportOptions) -> None:
    """Align Runs of one file each to the clock of the first that has Unix time, and state how in each.

    Times since the Unix epoch stay unchanged. The first time of a file with another origin is aligned with
    the first time of the reference. That is a guess, with a warning unless an offset was given. Offsets
    are added last.
    """
    clocks = [about(run)["clock"] for run in runs]
    first = next((k for k, clock in enumerate(clocks) if clock == UNIX), None)
    if first is None:
        first = next((k for k, clock in enumerate(clocks) if clock == RELATIVE), 0)
    reference = extent(runs[first])
    for k, (run, path, clock) in enumerate(zip(runs, paths, clocks, strict=True)):
        said = "its times have an origin of their own" if clock == RELATIVE else "its times are Unix times"
        offset_s = _offset(k, path, len(runs), options)
        by_ns = 0
        if clock == NO_CLOCK:
            said = "it has no times"
        elif clock == RELATIVE and k != first:
            start = extent(run).start_ns
            if start is not None and reference.start_ns is not None:
                by_ns = reference.start_ns - start
                said = f"its start was aligned with that of {Path(paths[first]).name}"
                if offset_s is None:
                    message = f"{said}, which is a guess: give --offset, or --offset 0 if it is right"
                    run.warn("clock_assumed", message, Path(path).name)
        if offset_s is not None and clock != NO_CLOCK:
            by_ns += round(offset_s * 1e9)
            said = f"{said}; {offset_s:+g} s were added"
        shift(run, by_ns)
        about(run)["aligned"] = said


def warn_of_gaps(runs: list[Run], paths: list[str]) -> None:
    """Warn of a file that overlaps no other file in time."""
    extents = [extent(run) for run in runs]
    timed = [k for k, one in enumerate(extents) if one.start_ns is not None]
    for k in timed[: 1 if len(timed) == 2 else None]:  # for two files one line covers both
        others = [extents[other] for other in timed if other != k]
        if others and not any(extents[k].touches(other) for other in others):
            message = (
                f"its times ({extents[k].said()}) don't overlap those of the other files "
                f"({', '.join(one.said() for one in others[:3])}): is its time zone or --offset right?"
            )
            runs[k].warn(NO_COMMON_TIME, message, Path(paths[k]).name)


def _offset(k: int, path: str, n: int, options: ImportOptions) -> float | None:
    for key in (path, Path(path).name):
        if key in options.offsets_s:
            return options.offsets_s[key]
    return options.offset_s if k > 0 or n == 1 else None


def created_ns(runs: list[Run]) -> int:
    """Begin of the imported content: the first time of all, or that of the files if they have no times."""
    starts = [extent(run).start_ns for run in runs if about(run)["clock"] == UNIX]
    return min((start for start in starts if start is not None), default=min(run.created_ns for run in runs))
