"""From the tracer's files to what each process ran, and by the process's marks what each launch belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jouletrace.arrays import Ints, Mask
from jouletrace.errors import BadInputError
from jouletrace.run import tables
from jouletrace.run.recording_names import of_equal_layers
from jouletrace.run.unrecorded import RECORDS_DROPPED, WITHOUT_KERNEL, without_work
from jouletrace.tracer.names import demangle, operator, operators_in, process_name
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

MOST_NESTED = 64
"""Longest path of ranges; what is nested deeper belongs to the last of these."""

MODULE, OPERATOR, BACKWARD, RANGE, CALL = "m", "o", "b", "r", "c"
"""Kinds of marks. A CALL is an operator's call in a listing, whose name stays as it is."""

_SEPARATORS = re.compile(r"[\s,+]+")


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


@dataclass(frozen=True)
class _Place:
    """Operator and module of a mark, the module that the same launches have without operators, and if it is a CALL."""

    operator: str = ""
    module: str = ""
    unmarked: str = ""
    listed: bool = False


def owned(text: Text, work: Launched, rows: NDArray[np.void], order: Ints) -> Launched:
    """The launches with the operator, module and ranges of each.

    Args:
        text: Names and marks of the process.
        work: What ran.
        rows: All rows of the process.
        order: Those of ``work``.
    """
    places, paths = _marks(text)
    labels: dict[_Place, int] = {_Place(): 0}
    number = np.array([_label(labels, place) for place in places])
    label = _of_compilers(text, work, labels, _known(number, rows["owner"][order]))
    distinct = {path: k for k, path in enumerate(dict.fromkeys(paths))}
    modules = np.array([labels[_Place("", place.unmarked, place.unmarked)] for place in labels])
    return replace(
        work,
        labels=[(place.operator, place.module) for place in labels],
        label=label,
        module=modules[label],
        sampled=rows["sampled"][order] != 0,
        thread=rows["thread"][order].astype(np.int64),
        paths=list(distinct),
        path=_known(np.array([distinct[path] for path in paths]), rows["range"][order]),
    )


def calls_of(text: Text) -> dict[str, int]:
    """How often each module was called outside of others, by its name."""
    found: dict[str, int] = {}
    for mark, calls in text.calls.items():
        _, kind, named = text.marks[mark - 1] if 0 < mark <= len(text.marks) else (0, "", 0)
        if kind == MODULE and named < len(text.names):
            name = plain(text.names[named])
            found[name] = found.get(name, 0) + calls
    return found


def _marks(text: Text) -> tuple[list[_Place], list[tuple[str, ...]]]:
    """Operator and module, and path of ranges, of each mark; those of the mark 0, which is none, are first."""
    places, paths = [_Place()], [tuple[str, ...]()]
    for parent, kind, named in text.marks:
        above = parent if parent < len(places) else 0
        around, path = places[above], paths[above]
        name = plain(text.names[named]) if named < len(text.names) else ""
        if kind == MODULE:
            module = of_equal_layers(name)
            around = _Place("", module, module)
        elif kind == OPERATOR:
            around = _Place(operator(name), around.module, around.unmarked)
        elif kind == CALL:
            around = _Place(name, listed=True)
        elif kind == BACKWARD:  # runs outside of the modules' calls
            around = _Place(operator(name), around.module)
        elif kind == RANGE and len(path) < MOST_NESTED:
            path = (*path, name)
        places.append(around)
        paths.append(path)
    return places, paths


def _label(labels: dict[_Place, int], place: _Place) -> int:
    """The number of a label, which is added with that of the same place without operators."""
    labels.setdefault(_Place("", place.unmarked, place.unmarked), len(labels))
    return labels.setdefault(place, len(labels))


def _known(of_mark: Ints, mark: NDArray[np.uint32]) -> Ints:
    """Of each launch, what its mark has; a mark whose line was lost is none."""
    return of_mark[np.where(mark < len(of_mark), mark, 0)]


def _of_compilers(text: Text, work: Launched, labels: dict[_Place, int], label: Ints) -> Ints:
    """The labels, those of kernels that a compiler made with the operators that these stand for."""
    fused = [_fused(text.fused.get(name, "")) or operators_in(name) for name in work.names]
    listed = np.array([place.listed for place in labels])[label]
    made = np.flatnonzero(np.array([bool(one) for one in fused], bool)[work.name] & ~listed)
    if not len(made):
        return label
    before = list(labels)
    pairs, which = tables.distinct(label[made] * len(fused) + work.name[made])
    numbers = []
    for pair in pairs.tolist():
        place = before[pair // len(fused)]
        numbers.append(_label(labels, _Place(fused[pair % len(fused)], place.module, place.unmarked)))
    label[made] = np.array(numbers)[which]
    return label


def _fused(operators: str) -> str:
    return "+".join(operator(one).removeprefix("aten.") for one in _SEPARATORS.split(operators) if one)
