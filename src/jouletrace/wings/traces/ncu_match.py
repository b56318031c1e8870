"""Assigns the counters that ncu measured for launches to the kernels of a timeline of the same program.

ncu runs a program again, slowed down and one launch at a time, so its times and process ids are
useless. What persists is the kernel, grid and block of each launch, and the order of launches. Launches are
matched by device (if there are several), base name, grid and block, in order of launch, and only
where the launches of ncu occur in the timeline exactly once, as one unbroken sequence; or where the
timeline's iterations all launch the same sequence, and ncu contains it completely; or where both
sides have equally many launches.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.arrays import Ints
from jouletrace.formats.importers.columns import LAUNCH_SHAPE
from jouletrace.formats.importers.joins import match_launch
from jouletrace.run import tables
from jouletrace.run.forms import Match
from jouletrace.run.spans import Spans

_ANONYMOUS = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}")
_TELLING = 4
"""Least number of consecutive launches that can't match an iteration by chance."""


def match_launches(launches: pa.Table, timeline: pa.Table) -> tuple[Ints, Match]:
    """Match the launches of ncu, in order, to the kernels of a timeline (both ``spans`` tables).

    Returns:
        The row of the timeline for each launch, shape (n,), -1 where it is missing; and the counts that the Run states:
        of the ``ambiguous`` launches the kernel can't be distinguished from others, of the ``unknown`` the timeline
        has no kernel on such a grid.
    """
    kernels = _kernels_in_launch_order(timeline)
    seen, there = _codes(launches, timeline.take(kernels))
    rows = np.full(len(seen), -1, np.int64)
    whole = list(islice(_places(seen, there), 2))
    if len(whole) == 1:
        rows[:] = kernels[whole[0] : whole[0] + len(seen)]
        return rows, _facts(rows, unknown=0)
    iterations = _iterations(seen, there, _by_iteration(timeline, kernels))
    if iterations is not None:
        matched = iterations >= 0
        rows[matched] = kernels[iterations[matched]]
        return rows, _facts(rows, int((~np.isin(seen, there)).sum()))
    unknown = 0
    for code in np.unique(seen):
        mine, theirs = np.flatnonzero(seen == code), np.flatnonzero(there == code)
        if len(theirs) == 0:
            unknown += len(mine)
        elif len(mine) == len(theirs):
            rows[mine] = kernels[theirs]
    return rows, _facts(rows, unknown)


def _facts(rows: Ints, unknown: int) -> Match:
    n, matched = len(rows), int((rows >= 0).sum())
    rate = matched / n if n else 0.0
    return {
        "launches": n,
        "matched": matched,
        "rate": rate,
        "ambiguous": n - matched - unknown,
        "unknown": unknown,
    }


def base_name(name: str) -> str:
    """The base name of a kernel: no return type, namespace, template or parameters.

    Demanglers differ in all of these ("void at::native::f<4>(int)" is "f").
    """
    plain = _ANONYMOUS.sub("anonymous", name)
    kept: list[str] = []
    depth = 0
    for sign in plain:
        if sign in "<[{" or (sign == "(" and depth):
            depth += 1
        elif sign in ">]})" and depth:
            depth -= 1
        elif sign == "(":
            break
        elif depth == 0:
            kept.append(sign)
    words = "".join(kept).strip().split()
    return words[-1].rsplit("::", 1)[-1] if words else name


def _kernels_in_launch_order(timeline: pa.Table) -> Ints:
    """Rows of the kernels with times, in the order in which they were launched, if it is known."""
    kind = timeline["kind"]
    rows = np.flatnonzero(pc.and_(pc.equal(kind, "kernel"), pc.is_valid(timeline["start_ns"])).to_numpy())
    calls = timeline.filter(pc.and_(pc.equal(kind, "launch"), pc.is_valid(timeline["correlation"])))
    start = pc.fill_null(timeline["start_ns"], 0).to_numpy().astype(np.int64)
    correlation = pc.fill_null(timeline["correlation"], -1).to_numpy().astype(np.int64)[rows]
    began, ended = (calls[edge].to_numpy().astype(np.int64) for edge in ("start_ns", "end_ns"))
    found = match_launch(correlation, calls["correlation"].to_numpy().astype(np.int64), began, ended)
    if len(rows) and (found >= 0).all():
        # Kernels of one launch (a graph) keep the order in which they ran.
        return rows[np.lexsort((start[rows], began[found]))]
    return rows[np.argsort(start[rows], kind="stable")]


def _codes(launches: pa.Table, kernels: pa.Table) -> tuple[Ints, Ints]:
    """Numbers for (device, base name, grid, block), the same on both sides for the same kernel."""
    devices = [set(table["device"].unique().to_pylist()) for table in (launches, kernels)]
    by_device = len(devices[0]) > 1 and len(devices[1]) > 1
    both = []
    names: dict[str, int] = {}
    places: dict[str, int] = {}
    for table in (launches, kernels):
        columns = [_numbered(table["name"], names, base_name)]
        columns.append(_numbered(table["device"], places, str) if by_device else np.zeros(len(table), np.int64))
        columns += [pc.fill_null(table[axis], -1).to_numpy().astype(np.int64) for axis in LAUNCH_SHAPE]
        both.append(np.stack(columns, axis=1))
    if any((part[:, 2:] < 0).all() for part in both):  # old versions of ncu report no devices
        both = [part[:, :2] for part in both]
    _, codes = np.unique(np.concatenate(both), axis=0, return_inverse=True)
    codes = codes.reshape(-1).astype(np.int64)
    return codes[: len(launches)], codes[len(launches) :]


def _numbered(column: pa.ChunkedArray, known: dict[str, int], plain: Callable[[str], str]) -> Ints:
    codes, texts = tables.decoded(column)
    numbers = np.array([*(known.setdefault(plain(text), len(known)) for text in texts), -1], np.int64)
    return numbers[codes]  # a missing text has code -1, the last


def _places(part: Ints, whole: Ints) -> Iterator[int]:
    """Positions at which a sequence occurs in another one."""
    text, wanted = whole.astype(np.int64).tobytes(), part.astype(np.int64).tobytes()
    at = text.find(wanted) if wanted else -1
    while at >= 0:
        if at % 8 == 0:
            yield at // 8
        at = text.find(wanted, at + 1)


def _by_iteration(timeline: pa.Table, kernels: Ints) -> list[Ints]:
    """Positions in ``kernels`` (rows of the timeline) of the kernels of each iteration, by their chain of parents."""
    spans = Spans.from_table(timeline, timed=False)
    owner = spans.innermost(kernels, spans.those("kind", ("iteration",)))
    inside = np.flatnonzero(owner >= 0)
    inside = inside[np.argsort(owner[inside], kind="stable")]
    groups = np.split(inside, np.flatnonzero(np.diff(owner[inside])) + 1) if len(inside) else []
    return sorted(groups, key=lambda group: int(group[0]))


def _iterations(seen: Ints, there: Ints, groups: list[Ints]) -> Ints | None:
    """Positions in ``there`` of launches of whole iterations, -1 for others; None if ncu contains no whole iteration.

    Iterations of one sequence are interchangeable: the first of ncu is matched with the first of the timeline.
    """
    if len(groups) == 0:
        return None
    sequences = Counter(there[group].tobytes() for group in groups)
    usual, _ = sequences.most_common(1)[0]
    groups = [group for group in groups if there[group].tobytes() == usual]
    sequence = np.frombuffer(usual, np.int64)
    found = np.full(len(seen), -1, np.int64)
    whole = np.zeros(len(seen), bool)
    free = 0
    count = 0
    for place in _places(sequence, seen):
        if place < free:
            continue
        free = place + len(sequence)
        whole[place:free] = True
        if count < len(groups):
            found[place:free] = groups[count]
        count += 1
    astray = np.isin(seen, sequence) & ~whole
    if count == 0 or (len(sequence) < _TELLING and astray.any()):
        return None
    return found
