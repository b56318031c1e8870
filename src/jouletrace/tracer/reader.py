"""From the tracer's files to what each process ran."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jouletrace.arrays import Ints, Mask
from jouletrace.errors import BadInputError
from jouletrace.run.unrecorded import RECORDS_DROPPED, WITHOUT_KERNEL, without_work
from jouletrace.tracer.marks import calls_of, owned
from jouletrace.tracer.names import demangle, process_name
from jouletrace.tracer.process_trace import Launched, ProcessTrace, Segment
from jouletrace.tracer.rows import (
    KERNEL,
    LOAD,
    ROW,
    SET,
    SYNC,
    UNSHAPED,
    Header,
    Text,
    number,
    plain,
    read_rows,
    read_text,
)

UNNAMED = "kernel"
"""A kernel whose name was lost."""

MOST_DEVICES = 1024
"""CUDA's numbers of devices are less."""


def read(folder: Path) -> list[ProcessTrace]:
    """The processes that left files in a folder, those of lower ranks first, with what each ran.

    Processes may still run. One whose files can't be read ran nothing, and has a note of the code "child_lost".
    """
    places = sorted(place for place in folder.glob("*-*") if place.is_dir() and _holds_files(place))
    return sorted(map(_process, places), key=lambda one: (one.rank is None, one.rank or 0, one.pid))


def _holds_files(place: Path) -> bool:
    """True if there are files; one can't be sure of a folder of another user, which a program behind sudo leaves."""
    try:
        return any(place.iterdir())
    except OSError:
        return True


def _process(place: Path) -> ProcessTrace:
    try:
        header, rows = read_rows(place)  # before the text, which then has the names of all these rows
        return _trace(header, rows, read_text(place))
    except BadInputError as error:
        pid = place.name.partition("-")[0]
        header = Header(pid=number(pid) or 0)
        warnings = [("child_lost", f"process {pid} handed over a {error}")]
        return _trace(header, np.empty(0, ROW), Text(warnings=warnings))


def _trace(header: Header, rows: NDArray[np.void], text: Text) -> ProcessTrace:
    start, end, kind = rows["start"].astype(np.int64), rows["end"].astype(np.int64), rows["kind"]
    whole = (start > 0) & (end >= start)  # others never ended, or not before the process
    lost = header.dropped + int((~whole & (kind <= SET)).sum())
    notes, facts = list(text.warnings), dict(text.facts)
    syncs, loads = (_waits(start, end, whole & (kind == waiting)) for waiting in (SYNC, LOAD))
    last_ns = max(header.ended_ns or header.flushed_ns, int(end[whole].max(initial=0)))
    order = np.flatnonzero(whole & (kind <= SET))
    if lost and all(code != RECORDS_DROPPED for code, _ in notes):
        why = f" ({facts['full']})" if "full" in facts else ""
        notes.append(without_work(lost, lost + len(order), WITHOUT_KERNEL, f"the tracer dropped their records{why}"))
    launch = _whole_numbers(rows["correlation"][order])
    by_launch = np.lexsort((start[order], launch))
    order, launch = order[by_launch], launch[by_launch]
    start, end = start[order], end[order]
    names, name = _names(text, rows["name"][order])
    device, stream, which, extra = (
        rows[column][order].astype(np.int64) for column in ("device", "stream", "kind", "extra")
    )
    shapes = [UNSHAPED, *text.shapes]
    extra[(which == KERNEL) & (extra >= len(shapes))] = 0
    known = {"shapes": shapes, "correlation": launch, "device": device, "stream": stream, "kind": which, "extra": extra}
    work = owned(text, Launched.from_columns(names, name, start, end, **known), rows, order)
    return ProcessTrace(
        pid=header.pid,
        name=plain(process_name(facts.get("cmdline", "").split("\x1f")).encode()),
        rank=number(facts.get("rank", "")),
        devices=_devices(text),
        work=work,
        segments=_segments(text, last_ns) or ([(int(start.min()), int(end.max()))] if len(work) else []),
        loads=[(begin, until) for begin, until in loads.tolist()],
        syncs=syncs,
        notes=notes,
        unsampled="" if work.marked else facts.get("operators", ""),
        dropped=lost,
        calls=calls_of(text),
    )


def _names(text: Text, name: NDArray[np.uint32]) -> tuple[tuple[str, ...], Ints]:
    """Distinct names that occur, demangled, and that of each launch."""
    name = np.minimum(name, len(text.names))
    codes: dict[str, int] = {}
    of_number = np.zeros(len(text.names) + 1, np.int64)
    for one in np.flatnonzero(np.bincount(name)).tolist():
        found = plain(demangle(text.names[one]).encode()) if one < len(text.names) else ""
        of_number[one] = codes.setdefault(found or UNNAMED, len(codes))
    return tuple(codes), of_number[name]


def _whole_numbers(correlation: NDArray[np.uint32]) -> Ints:
    """Numbers of launches, which CUPTI counts modulo 2^32: those of neighbours in the file differ by less than half."""
    number = correlation.astype(np.int64)
    step = np.diff(number, prepend=number[:1])
    return number + 2**32 * np.cumsum((step < -(2**31)).astype(np.int64) - (step > 2**31))


def _waits(start: Ints, end: Ints, rows: Mask) -> Ints:
    """Intervals by their ends, shape (m, 2)."""
    found = np.stack([start[rows], end[rows]], axis=1)
    return found[np.argsort(found[:, 1], kind="stable")]


def _devices(text: Text) -> list[str]:
    """UUIDs by CUDA's numbers; "" for a number without one."""
    stated: dict[int, str] = {}
    for place, _, uuid in (value.partition(" ") for key, value in text.facts if key == "device"):
        if (which := number(place)) is not None and which < MOST_DEVICES:
            stated[which] = uuid
    return [stated.get(which, "") for which in range(max(stated, default=-1) + 1)]


def _segments(text: Text, last_ns: int) -> list[Segment]:
    """When the process was traced; to its last row where it didn't say when that ended."""
    found: list[Segment] = []
    since: int | None = None
    for begins, at_ns in text.edges:
        if begins and since is None:
            since = at_ns
        elif not begins and since is not None:
            found.append((since, at_ns))
            since = None
    if since is not None:
        found.append((since, max(since, last_ns)))
    return found
