"""A recording of kernels and power by other tools: their timeline and their record, kept as ``profile`` keeps its own.

Where the record is the driver's, of momentary samples every 20 ms, the regression (``analysis.attributed``) finds the
power of each kind of kernel in it. Coarser records are for ``analysis.attribution``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.analysis.attribution import power_device
from jouletrace.analysis.power import power_record
from jouletrace.analysis.recording import IDLE_NAME, PHASE, samples
from jouletrace.errors import BadInputError
from jouletrace.run import MODEL_UNIT, Run, tables
from jouletrace.run.channels import POWER

NO_COMMON_TIME = "no_common_time"
"""Code of the warning that files don't overlap."""

NOT_ATTRIBUTED = "not_attributed"
"""Code of the warning that says why there are no energies of kernels."""

PERIOD_S, WINDOW_S = 0.02, 0.025
"""Of the driver's record, and the time over which one of its readings is a mean, about."""

_NEAR = 0.25
"""Spacings within this share of the period are looked at; whether they are the driver's, their grid says."""

MOST_SHAPES = 16
"""Launch shapes of an operator, or of a kernel without one, with rows of their own."""

_EARLIEST_NS = 31_536_000_000_000_000
"""1971: times before it count from a start of their own."""

_STEP, _STEPS = "ProfilerStep", 2
_MOST, _ALL = 0.5, 0.95
"""Share of the kernels' time that iterations launch, at least: of ranges called so, and of those of any name."""

_OUTSIDE, _TOGETHER = 0.01, 0.05
"""Shares of the kernels' time above which it is said that it is of no iteration, or that several ran at once."""

_MOST_DEPTH = 1000
_NUMBER = re.compile(r"[\s#_:=.-]*\d+$")
_ITERATION = re.compile("step|iter|batch", re.I)
_FRAME = re.compile(r"\(\d+\): |^<built-in|^nn\.Module: ")
"""Names of Python's functions in a trace, which mark nothing."""

_LAUNCH, _CAPTURE = re.compile(r"launch_?(cooperative_?)?kernel", re.I), re.compile("StreamBeginCapture")

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def take_for_samples(run: Run) -> None:
    """Note which power records beside a timeline are the driver's own: gapless, of momentary samples every 20 ms.

    A table doesn't say what its readings are means of; stamps on the driver's grid do. Others are warned of.
    """
    kinds = set(pc.unique(run.spans["kind"]).to_pylist())
    if run.kind != "import" or not kinds - {None}:
        return
    records = [channel for channel in run.channels if channel.name == POWER]
    if records and "kernel" not in kinds:
        run.warn(NOT_ATTRIBUTED, "no energies of kernels: the timeline has none; record the GPU's activity too")
        return
    for channel in records:
        if samples(channel):
            continue
        stamps, watts = run.series(channel.device, POWER)
        spacing_s = float(np.median(np.diff(np.sort(stamps)))) / 1e9 if len(stamps) > 1 else 0.0
        wrong = ""
        if channel.window_s is not None or abs(spacing_s / PERIOD_S - 1) > _NEAR:
            wrong = (
                f"it has a reading every {1e3 * spacing_s:.4g} ms; the driver's record of samples has one every 20 ms"
            )
        else:
            try:
                from jouletrace.sensor.readout import on_grid  # scipy takes a second to come in

                on_grid(stamps, watts, PERIOD_S)
            except BadInputError as error:
                wrong = str(error).removeprefix("power record: ")
        if wrong:
            run.warn(NOT_ATTRIBUTED, f"no powers of single kernels from this power record: {wrong}", channel.device)
            continue
        channel.gapless, channel.period_s, channel.window_s, channel.response = True, PERIOD_S, WINDOW_S, {}
        channel.source = f"{channel.source} (stamps of the driver's record of samples)".strip()


def span_text(start_ns: int, end_ns: int) -> str:
    """From when to when, in UTC; in seconds where times count from a start of their own."""
    return " to ".join(_moment(ns) for ns in (start_ns, end_ns))


def _moment(ns: int) -> str:
    if abs(ns) < _EARLIEST_NS:
        return f"{ns / 1e9:.3f} s"
    return f"{str(np.datetime64(ns // 1_000_000, 'ms')).replace('T', ' ')} UTC"


def add_recording(run: Run, first_id: int) -> bool:
    """Fill ``activity``, ``units`` and what is said of the recording from the spans, where the record is fine enough.

    Args:
        run: An import.
        first_id: Of the first unit.

    Returns:
        Whether there is a recording now.
    """
    found = _device(run)
    if found is None:
        return False
    device, source = found
    work = _Work.of(run, device)
    steps = _steps(work)
    own = steps.of >= 0 if steps.count else np.ones(len(work.start), bool)
    units, unit = _units(work, own, max(steps.count, 1), first_id)
    run.units = tables.from_rows(units, "units")
    run.activity = tables.conform(
        pa.table({"start_ns": work.start, "end_ns": work.end, "unit": unit, "copy": ~own}), "activity"
    )
    first, last, count = _whole(work, steps)
    run.workload[PHASE] = {
        "device": source,
        "iterations": max(steps.count, 1),
        "iterations_by": steps.name or None,
        "start_ns": int(work.start.min()),
        "end_ns": int(work.end.max()),
        "whole": [first, last, count],
        "unmatched": float(np.mean(work.op < 0)),
        "dropped": _dropped(run),
    }
    _warn(run, work, own, steps)
    spans = np.full(len(run.spans), -1, np.int64)
    spans[work.row] = unit
    where = run.spans.schema.get_field_index("unit")
    run.spans = run.spans.set_column(where, run.spans.schema.field("unit"), pa.array(spans, mask=spans < 0))
    return True


def _warn(run: Run, work: _Work, own: Mask, steps: _Steps) -> None:
    """Say what of the kernels' time the tables leave out or share equally."""
    length = (work.end - work.start).astype(float)
    outside = float(length[~own].sum() / max(length.sum(), 1.0))
    if outside > _OUTSIDE:
        text = f"{100 * outside:.1f} % of the kernels' time was launched outside of {steps.name} and is in no row"
        run.warn("outside_of_iterations", text)
    until = np.maximum.accumulate(work.end)
    alone = (work.end[:1].sum() - work.start[:1].sum()) + np.maximum(
        work.end[1:] - np.maximum(work.start[1:], until[:-1]), 0
    ).sum()
    together = 1 - float(alone) / max(length.sum(), 1.0)
    if together > _TOGETHER:
        text = f"{100 * together:.1f} % of the kernels' time others ran at once: energy of that time is shared equally"
        run.warn("kernels_overlap", text)


def remove_recording(run: Run) -> None:
    """Take it away again: its figures can't be trusted."""
    run.activity = tables.empty("activity")
    run.workload.pop(PHASE, None)
    where = run.spans.schema.get_field_index("unit")
    field = run.spans.schema.field("unit")
    run.spans = run.spans.set_column(where, field, tables.nulls(len(run.spans), field.type))


def _device(run: Run) -> tuple[str | None, str] | None:
    """The device whose kernels a fine record speaks for, as spans name it, and that of the record; None without one."""
    kernels = run.spans.filter(pc.equal(run.spans["kind"], "kernel"))
    lasts = pc.subtract(kernels["end_ns"], kernels["start_ns"])
    ran: dict[str | None, int] = {}
    for row in pa.table({"of": kernels["device"], "s": lasts}).group_by("of").aggregate([("s", "sum")]).to_pylist():
        ran[row["of"]] = row["s_sum"] or 0
    fine = [one.device for one in run.channels if one.name == POWER and samples(one)]
    found: list[tuple[str | None, str]] = []
    for device in sorted(ran, key=lambda one: -ran[one]):
        source, _ = power_device(run, device)
        if source in fine and not (apart := _apart(run, device, str(source))):
            found.append((device, str(source)))
        elif source in fine and not any(warning.code == NO_COMMON_TIME for warning in run.warnings):
            run.warn(NOT_ATTRIBUTED, f"no energies of kernels: {apart}", str(source))
    if len(found) > 1:
        run.warn("one_device", f"powers of kernels are those of {found[0][1]}, on which kernels ran for the longest")
    elif fine and ran and all(power_device(run, device)[0] not in fine for device in ran):
        names = ", ".join(sorted(str(device) for device in ran))
        advice = "give the record a column gpu with the number of its device"
        run.warn(NOT_ATTRIBUTED, f"no energies of kernels: whose power the record is of {names} is unknown; {advice}")
    return found[0] if found else None


def _apart(run: Run, device: str | None, source: str) -> str:
    """That the power record has no reading while kernels ran; "" if it has."""
    of = pc.equal(run.spans["device"], device) if device is not None else pc.is_null(run.spans["device"])
    kernels = run.spans.filter(pc.and_(of, pc.equal(run.spans["kind"], "kernel")))
    ran = pc.min(kernels["start_ns"]).as_py(), pc.max(kernels["end_ns"]).as_py()
    if ran[0] is None:
        return "the kernels in the timeline have no times"
    found = power_record(run, source)
    if found is None or not len(found[0]):
        return "the power record has no reading that can be used"
    recorded = int(found[0].time_ns[0]), int(found[0].time_ns[-1])
    if recorded[0] < ran[1] and recorded[1] > ran[0]:
        return ""
    return f"kernels ran from {span_text(*ran)}, the power record is from {span_text(*recorded)}"


@dataclass(frozen=True)
class _Spans:
    """All spans, of which some lie within others.

    Attributes:
        kind, name: Codes into ``kinds`` and ``names``, shape (n,).
        start, end: Since the Unix epoch, ns; -1 where unknown.
        above: Row of the span around each; -1 where there is none.
    """

    kind: Ints
    name: Ints
    start: Ints
    end: Ints
    above: Ints
    kinds: list[str]
    names: list[str]

    @classmethod
    def of(cls, spans: pa.Table) -> _Spans:
        (kind, kinds), (name, names) = (tables.decoded(spans[column]) for column in ("kind", "name"))
        start, end = (pc.fill_null(spans[column], -1).to_numpy().astype(np.int64) for column in ("start_ns", "end_ns"))
        ids, parent = spans["id"].to_numpy(), pc.fill_null(spans["parent"], -1).to_numpy()
        order = np.argsort(ids, kind="stable")
        place = np.minimum(np.searchsorted(ids, parent, sorter=order), len(ids) - 1)
        above = np.where((parent >= 0) & (ids[order[place]] == parent), order[place], -1)
        return cls(kind, name, start, end, above, kinds, names)

    def is_a(self, *kinds: str) -> Mask:
        """Which are of one of some kinds."""
        return np.isin(self.kind, [self.kinds.index(one) for one in kinds if one in self.kinds])

    def around(self, row: Ints) -> Iterator[Ints]:
        """Rows of the spans around each row, those of one depth after the other, innermost first; -1 where none."""
        at = self.above[row]
        for _ in range(_MOST_DEPTH):
            if not (at >= 0).any():
                return
            yield at
            at = np.where(at >= 0, self.above[at], -1)

    def innermost(self, row: Ints, wanted: Mask) -> Ints:
        """Row of the innermost span around each that is wanted; -1 where there is none."""
        found = np.full(len(row), -1, np.int64)
        for at in self.around(row):
            found = np.where((found < 0) & (at >= 0) & wanted[at], at, found)
        return found


@dataclass(frozen=True)
class _Work:
    """Kernels and copies of a device in order of their starts.

    Attributes:
        spans: Among which they are.
        row: Of each among them, shape (n,), as all below.
        start, end: Since the Unix epoch, ns.
        name: Codes into the spans' names.
        op: Row of the innermost operator that launched it; -1 where there is none.
        op_name: Its name, likewise.
        shape: Code into ``shapes`` of the launch, of the first one of an operator's call for all of the call.
        shapes: As CUDA writes them; "" where unknown.
    """

    spans: _Spans
    row: Ints
    start: Ints
    end: Ints
    name: Ints
    op: Ints
    op_name: Ints
    shape: Ints
    shapes: list[str]

    @classmethod
    def of(cls, run: Run, device: str | None) -> _Work:
        spans = _Spans.of(run.spans)
        on, devices = tables.decoded(run.spans["device"])
        timed = pc.is_valid(run.spans["start_ns"]).to_numpy(zero_copy_only=False)
        wanted = devices.index(device) if device is not None else -1
        row = np.flatnonzero(spans.is_a("kernel", "memcpy") & (on == wanted) & timed)
        row = row[np.argsort(spans.start[row], kind="stable")]
        op = spans.innermost(row, spans.is_a("op"))
        shape, shapes = _launches(run.spans, row, op)
        op_name = np.where(op >= 0, spans.name[op], -1)
        return cls(spans, row, spans.start[row], spans.end[row], spans.name[row], op, op_name, shape, shapes)


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
class _Steps:
    """Iterations that annotations mark.

    Attributes:
        name: What they are called; "" if there are none.
        count: How many launched something.
        of: Number of the iteration that launched each kernel, in order of their starts; -1 outside of all.
    """

    name: str
    count: int
    of: Ints


def _steps(work: _Work) -> _Steps:
    """The profiler's steps, else ranges of one name (but for a number) that together launched most of the time."""
    spans = work.spans
    steps, ranges = np.flatnonzero(spans.is_a("iteration")), np.flatnonzero(spans.is_a("range"))
    launched = np.zeros(len(spans.kind))
    length = (work.end - work.start).astype(float)
    for at in spans.around(work.row):
        launched += np.bincount(at[at >= 0], length[at >= 0], len(launched))
    stems = ["" if _FRAME.search(name) else _NUMBER.sub("", name) or name for name in spans.names]
    ranges = ranges[launched[ranges] > 0]
    families: dict[str, list[int]] = {}
    for row in ranges.tolist():
        families.setdefault(stems[spans.name[row]], []).append(row)
    families.pop("", None)
    found: list[tuple[str, Ints]] = []
    for name, rows in [(_STEP, steps[launched[steps] > 0].tolist()), *families.items()]:
        marks = np.array(sorted(rows, key=lambda row: spans.start[row]), np.int64)
        apart = bool((spans.start[marks[1:]] >= spans.end[marks[:-1]]).all())
        share = launched[marks].sum() / max(length.sum(), 1.0)
        called = name == _STEP or _ITERATION.search(name) is not None
        if apart and share > (_MOST if called else _ALL) and len(marks) >= (1 if name == _STEP else _STEPS):
            found.append((name, marks))
    if not found:
        return _Steps("", 0, np.full(len(work.start), -1, np.int64))
    # The profiler's own come first; of ranges those that are called so, and the outermost, of which there are fewest.
    name, marks = min(found, key=lambda one: (one[0] != _STEP, not _ITERATION.search(one[0]), len(one[1])))
    number = np.full(len(spans.kind), -1, np.int64)
    number[marks] = np.arange(len(marks))
    mark = spans.innermost(work.row, number >= 0)
    return _Steps(name, len(marks), np.where(mark >= 0, number[mark], -1))


def _whole(work: _Work, steps: _Steps) -> tuple[int, int, int]:
    """From when to when how many iterations ran: between the first kernels of two of them, else from first to last."""
    if steps.count >= _STEPS:
        first = work.start[np.flatnonzero(steps.of == 0)[0]]
        last = work.start[np.flatnonzero(steps.of == steps.count - 1)[0]]
        if last > first:
            return int(first), int(last), steps.count - 1
    return int(work.start.min()), int(work.end.max()), 1


def _units(work: _Work, own: Mask, iterations: int, first_id: int) -> tuple[list[dict[str, Any]], Ints]:
    """Operators by name and launch shape, their kernels, and idle; and the unit of each kernel, shape (n,)."""
    shape = np.where(_few(work, np.where(work.op >= 0, work.op_name, -2 - work.name)), work.shape, -1)
    keys, first, code = np.unique(
        np.column_stack([work.op_name, shape, work.name]), axis=0, return_index=True, return_inverse=True
    )
    code = code.reshape(-1)
    counts = np.bincount(code[own], minlength=len(keys)) / iterations
    rows: list[dict[str, Any]] = []
    calls: dict[tuple[int, int], int] = {}
    ids = np.empty(len(keys), np.int64)
    free = first_id
    for k in np.argsort(first, kind="stable"):
        op, launch, name = (int(one) for one in keys[k])
        text = work.shapes[launch] if launch >= 0 else ""
        shown = work.spans.names[name] if name >= 0 else ""
        row: dict[str, Any] = {"level": "kernel", "name": shown, "count": round(float(counts[k])), "parent": MODEL_UNIT}
        if op < 0:
            row["name"] = f"{shown} {text}".strip()
        else:
            about = {"op": work.spans.names[op], "shapes": text or None}
            if (op, launch) not in calls:
                calls[op, launch] = free
                called = (work.op_name == op) & (shape == launch) & own
                count = round(len(np.unique(work.op[called])) / iterations)
                rows.append(
                    {
                        "id": free,
                        "parent": MODEL_UNIT,
                        "level": "op",
                        "name": work.spans.names[op],
                        "count": count,
                        **about,
                    }
                )
                free += 1
            row |= {"parent": calls[op, launch], **about}
        ids[k] = free
        rows.append({"id": free, **row})
        free += 1
    rows.append({"id": free, "parent": MODEL_UNIT, "level": "op", "name": IDLE_NAME, "count": 1})
    return rows, ids[code]


def _few(work: _Work, what: Ints) -> Mask:
    """Whether what launched a kernel has several launch shapes, and so few that each may have a row of its own."""
    _, of = np.unique(what, return_inverse=True)
    pairs = np.unique(np.column_stack([of.reshape(-1), work.shape]), axis=0)
    shapes = np.bincount(pairs[:, 0])
    return np.asarray(((shapes > 1) & (shapes <= MOST_SHAPES))[of.reshape(-1)])


def _dropped(run: Run) -> int:
    """Launches of kernels whose kernels are missing; 0 where launches may be of a graph that is being captured."""
    spans = run.spans.filter(pc.equal(run.spans["kind"], "launch"))
    (name, names), ids = tables.decoded(spans["name"]), pc.fill_null(spans["correlation"], -1).to_numpy()
    if any(_CAPTURE.search(text) for text in names):
        return 0
    launching = np.isin(name, [code for code, text in enumerate(names) if _LAUNCH.search(text)]) & (ids > 0)
    ran = run.spans.filter(pc.is_in(run.spans["kind"], pa.array(["kernel", "memcpy"])))
    return int((~np.isin(ids[launching], pc.fill_null(ran["correlation"], -1).to_numpy())).sum())
