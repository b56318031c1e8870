"""The origin of the kernels in an imported timeline: operators by their calls, and iterations by annotations."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.arrays import Ints
from jouletrace.run import Run
from jouletrace.run.spans import Spans

_STEP, STEPS = "ProfilerStep", 2
_MOST, _ALL = 0.5, 0.95
"""Share of the kernels' time that iterations launch, at least: of ranges called so, and of those of any name."""

_NUMBER = re.compile(r"[\s#_:=.-]*\d+$")
_ITERATION = re.compile("step|iter|batch", re.I)
_FRAME = re.compile(r"\(\d+\): |^<built-in|^nn\.Module: ")
"""Names of Python's functions in a trace, which mark nothing."""


@dataclass(frozen=True)
class LaunchedWork:
    """Kernels and copies of a device in order of their starts."""

    spans: Spans  # all, with times of -1 where unknown
    row: Ints  # of each among them, shape (n,), as all below
    # Since the Unix epoch, ns
    start: Ints
    end: Ints
    name: Ints  # codes into the spans' names
    op: Ints  # row of the innermost operator that launched it; -1 where there is none
    op_name: Ints  # its name, likewise
    shape: Ints  # code into ``shapes`` of the launch, of the first one of an operator's call for all of the call
    shapes: list[str]  # as CUDA writes them; "" where unknown

    @classmethod
    def from_run(cls, run: Run, device: str | None) -> LaunchedWork:
        """The work on a device, as spans name it."""
        spans = Spans.from_table(run.spans, timed=False)
        wanted = spans.texts["device"].index(device) if device is not None else -1
        timed = pc.is_valid(run.spans["start_ns"]).to_numpy(zero_copy_only=False)
        row = np.flatnonzero(spans.those("kind", ("kernel", "memcpy")) & (spans.device == wanted) & timed)
        row = row[np.argsort(spans.start_ns[row], kind="stable")]
        op = spans.innermost(row, spans.those("kind", ("op",)))
        shape, shapes = _launches(run.spans, row, op)
        op_name = np.where(op >= 0, spans.name[op], -1)
        return cls(spans, row, spans.start_ns[row], spans.end_ns[row], spans.name[row], op, op_name, shape, shapes)


def _launches(spans: pa.Table, row: Ints, op: Ints) -> tuple[Ints, list[str]]:
    """Code of the launch shape of each kernel, that of the first for all of an operator's call; and the texts."""
    axes = [f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"]
    table = np.column_stack([pc.fill_null(spans[axis], -1).to_numpy()[row].astype(np.int64) for axis in axes])
    distinct, code = np.unique(table, axis=0, return_inverse=True)
    code = code.reshape(-1)
    _, first, call = np.unique(op, return_index=True, return_inverse=True)  # rows are in order of start
    code = np.where(op >= 0, code[first][call.reshape(-1)], code)
    return code, ["" if shape[0] < 0 else f"<<<{_axes(shape[:3])}, {_axes(shape[3:])}>>>" for shape in distinct]


def _axes(numbers: Ints) -> str:
    """``64x12`` for (64, 12, 1)."""
    used = [str(number) for number in numbers]
    while len(used) > 1 and used[-1] == "1":
        used.pop()
    return "x".join(used)


@dataclass(frozen=True)
class MarkedIterations:
    """Iterations that annotations mark."""

    name: str  # what they are called; "" if there are none
    count: int  # how many launched something
    of: Ints  # number of the iteration that launched each kernel, in order of their starts; -1 outside of all


def steps_of(work: LaunchedWork) -> MarkedIterations:
    """The profiler's steps, else ranges of one name (but for a number) that together launched most of the time."""
    spans = work.spans
    steps, ranges = (np.flatnonzero(spans.those("kind", (kind,))) for kind in ("iteration", "range"))
    launched = np.zeros(len(spans.kind))
    length = (work.end - work.start).astype(float)
    for at in spans.around(work.row):
        launched += np.bincount(at[at >= 0], length[at >= 0], len(launched))
    stems = ["" if _FRAME.search(name) else _NUMBER.sub("", name) or name for name in spans.texts["name"]]
    ranges = ranges[launched[ranges] > 0]
    families: dict[str, list[int]] = {}
    for row in ranges.tolist():
        families.setdefault(stems[spans.name[row]], []).append(row)
    families.pop("", None)
    found: list[tuple[str, Ints]] = []
    for name, rows in [(_STEP, steps[launched[steps] > 0].tolist()), *families.items()]:
        marks = np.array(sorted(rows, key=lambda row: spans.start_ns[row]), np.int64)
        apart = bool((spans.start_ns[marks[1:]] >= spans.end_ns[marks[:-1]]).all())
        share = launched[marks].sum() / max(length.sum(), 1.0)
        called = name == _STEP or _ITERATION.search(name) is not None
        if apart and share > (_MOST if called else _ALL) and len(marks) >= (1 if name == _STEP else STEPS):
            found.append((name, marks))
    if not found:
        return MarkedIterations("", 0, np.full(len(work.start), -1, np.int64))
    # The profiler's own come first; of ranges those that are called so, and the outermost, of which there are fewest.
    name, marks = min(found, key=lambda one: (one[0] != _STEP, not _ITERATION.search(one[0]), len(one[1])))
    number = np.full(len(spans.kind), -1, np.int64)
    number[marks] = np.arange(len(marks))
    mark = spans.innermost(work.row, number >= 0)
    return MarkedIterations(name, len(marks), np.where(mark >= 0, number[mark], -1))
