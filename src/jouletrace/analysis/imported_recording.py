"""A recording of kernels and power by other tools: their timeline and their record, kept as ``profile`` keeps its own.

Kernels get operators by their calls, and iterations by annotations. Where the record is the driver's, of momentary
samples every 20 ms, the regression (``analysis.parts``) finds the power of each kind of kernel in it. Coarser records
are for ``analysis.span_energies``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.analysis.power import power_record
from jouletrace.analysis.span_energies import power_device
from jouletrace.analysis.unrecorded import launches_of
from jouletrace.arrays import Ints, Mask
from jouletrace.errors import BadInputError
from jouletrace.run import Run, tables
from jouletrace.run.channels import POWER
from jouletrace.run.figures import Units
from jouletrace.run.forms import RecordingFacts
from jouletrace.run.recording_names import RECORDINGS
from jouletrace.run.spans import Spans, union_ns
from jouletrace.sensor.kinds import KINDS, RECORD, samples, sensor_behind

_STEP, STEPS = "ProfilerStep", 2
_MOST, _ALL = 0.5, 0.95
"""Share of the kernels' time that iterations launch, at least: of ranges called so, and of those of any name."""

_NUMBER = re.compile(r"[\s#_:=.-]*\d+$")
_ITERATION = re.compile("step|iter|batch", re.I)
_FRAME = re.compile(r"\(\d+\): |^<built-in|^nn\.Module: ")
"""Names of Python's functions in a trace, which mark nothing."""

NO_COMMON_TIME = "no_common_time"
"""Code of the warning that files don't overlap."""

NOT_ATTRIBUTED = "not_attributed"
"""Code of the warning that says why there are no energies of kernels."""

_OF_KERNELS = {"launch", "memcpy"}
"""Kinds of spans in timelines that have kernels, if they were recorded."""

_NEAR = 0.25
"""Spacings within this share of the period are looked at; whether they are the driver's, their grid says."""

_LATE_S, _OFTEN = 1e-3, 0.1
"""Lateness that is no jitter of a meter, and the least share of spacings that have it in the driver's record: 0.4."""

MOST_SHAPES = 16
"""Launch shapes of an operator, or of a kernel without one, with rows of their own."""

_OUTSIDE, _TOGETHER = 0.01, 0.05
"""Shares of the kernels' time outside of iterations, and with several at once, above which a warning states them."""


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
    families_apart: list[tuple[str, Ints]] = []
    for name, rows in [(_STEP, steps[launched[steps] > 0].tolist()), *families.items()]:
        marks = np.array(sorted(rows, key=lambda row: spans.start_ns[row]), np.int64)
        apart = bool((spans.start_ns[marks[1:]] >= spans.end_ns[marks[:-1]]).all())
        share = launched[marks].sum() / max(length.sum(), 1.0)
        called = name == _STEP or _ITERATION.search(name) is not None
        if apart and share > (_MOST if called else _ALL) and len(marks) >= (1 if name == _STEP else STEPS):
            families_apart.append((name, marks))
    if not families_apart:
        return MarkedIterations("", 0, np.full(len(work.start), -1, np.int64))
    # The profiler's own come first; of ranges those that are called so, and the outermost, of which there are fewest.
    name, marks = min(
        families_apart, key=lambda family: (family[0] != _STEP, not _ITERATION.search(family[0]), len(family[1]))
    )
    number = np.full(len(spans.kind), -1, np.int64)
    number[marks] = np.arange(len(marks))
    mark = spans.innermost(work.row, number >= 0)
    return MarkedIterations(name, len(marks), np.where(mark >= 0, number[mark], -1))


def take_for_samples(run: Run) -> None:
    """Note which power records beside a timeline are the driver's own: gapless, of momentary samples every 20 ms.

    A table doesn't say what its readings are means of; stamps on the driver's grid do. Beside kernels others are warned
    of. Beside other spans a meter may read each 20 ms, too: the GPU's name or the driver's late stamps exclude that.
    """
    kinds = set(pc.unique(run.spans["kind"]).to_pylist())
    if run.kind != "import" or not kinds - {None}:
        return
    records = [channel for channel in run.channels if channel.name == POWER]
    traces = kinds & _OF_KERNELS or any("joins" in imported for imported in run.settings.get("imported", ()))
    if records and traces and "kernel" not in kinds:
        run.warn(NOT_ATTRIBUTED, "no energies of kernels: the timeline has none; record the GPU's activity too")
    for channel in records:
        if samples(channel):
            continue
        stamps, watts = run.series(channel.device, POWER)
        board = next((info.name for info in run.devices if info.id == channel.device), "")
        kind, record = sensor_behind(RECORD, board)
        period_s = KINDS[kind].response.period_s
        spacing_s = float(np.median(np.diff(np.sort(stamps)))) / 1e9 if len(stamps) > 1 else 0.0
        wrong = ""
        if KINDS[kind].sampler is None:
            wrong = f"readings of the driver's record of {board} are means, not momentary samples"
        elif channel.window_s is not None:
            wrong = "its readings were polled, and are not the driver's record of samples"
        elif abs(spacing_s / period_s - 1) > _NEAR:
            wrong = (
                f"it has a reading every {1e3 * spacing_s:.4g} ms; the driver's record of samples has one every "
                f"{1e3 * period_s:g} ms"
            )
        elif "kernel" not in kinds and not (record.boards or _late(stamps, period_s)):
            wrong = "its readings may be any meter's"
        else:
            try:
                from jouletrace.sensor.readout import on_grid  # scipy takes a second to come in

                on_grid(stamps, watts, period_s)
            except BadInputError as error:
                wrong = str(error).removeprefix("power record: ")
        if wrong and "kernel" in kinds:
            run.warn(NOT_ATTRIBUTED, f"no powers of single kernels from this power record: {wrong}", channel.device)
        if wrong:
            continue
        channel.sensor, channel.gapless, channel.response = kind, True, {}
        channel.period_s, channel.window_s = period_s, record.window_s
        channel.source = f"{channel.source} (stamps of the driver's record of samples)".strip()


def _late(stamps: Ints, period_s: float) -> bool:
    """True if some stamps come late as the driver's do: on an H100 every fifth by 3 ms."""
    return bool(np.mean(np.abs(np.diff(np.sort(stamps)).astype(np.float64) - 1e9 * period_s) > 1e9 * _LATE_S) > _OFTEN)


def span_text(start_ns: int, end_ns: int) -> str:
    """From when to when, in UTC; in seconds where times count from a start of their own."""
    return " to ".join(moment(ns) for ns in (start_ns, end_ns))


def seconds_text(seconds: float) -> str:
    """A length of time: lengths that add up must do so as they are printed."""
    return f"{seconds:.0f} s" if seconds >= 100 else f"{seconds:.3g} s"


def moment(ns: int) -> str:
    """A time, in UTC or in seconds, likewise."""
    # times before 1971 count from a start of their own
    if abs(ns) < 31_536_000_000_000_000:
        return f"{ns / 1e9:.3f} s"
    return f"{str(np.datetime64(ns // 1_000_000, 'ms')).replace('T', ' ')} UTC"


def add_recording(run: Run, units: Units) -> bool:
    """Fill ``activity``, facts about the recording, and ``units`` from the spans, where the record is fine enough.

    Returns:
        Whether there is a recording now.
    """
    device_and_source = _device(run)
    if device_and_source is None:
        return False
    device, source = device_and_source
    work = LaunchedWork.from_run(run, device)
    steps = steps_of(work)
    inside = steps.of >= 0 if steps.count else np.ones(len(work.start), bool)
    unit = _units(units, work, inside, max(steps.count, 1))
    run.units = units.table()
    run.activity = tables.conform(
        pa.table({"start_ns": work.start, "end_ns": work.end, "unit": unit, "copy": ~inside}), "activity"
    )
    first, last, count = _whole(work, steps)
    about: RecordingFacts = {
        "device": source,
        "iterations": max(steps.count, 1),
        "iterations_by": steps.name or None,
        "start_ns": int(work.start.min()),
        "end_ns": int(work.end.max()),
        "whole": [first, last, count],
        "unmatched": float(np.mean(work.op < 0)),
        "dropped": launches_of(run.spans.filter(pc.is_valid(run.spans["start_ns"]))).lost,
    }
    run.workload[RECORDINGS] = [about]
    _warn(run, work, inside, steps)
    spans = np.full(len(run.spans), -1, np.int64)
    spans[work.row] = unit
    where = run.spans.schema.get_field_index("unit")
    run.spans = run.spans.set_column(where, run.spans.schema.field("unit"), pa.array(spans, mask=spans < 0))
    return True


def _warn(run: Run, work: LaunchedWork, inside: Mask, steps: MarkedIterations) -> None:
    """Say what of the kernels' time the tables leave out or share equally."""
    length = (work.end - work.start).astype(float)
    outside = float(length[~inside].sum() / max(length.sum(), 1.0))
    if outside > _OUTSIDE:
        text = f"{100 * outside:.1f} % of the kernels' time was launched outside of {steps.name} and is in no row"
        run.warn("outside_of_iterations", text)
    together = 1 - union_ns(work.start, work.end) / max(length.sum(), 1.0)
    if together > _TOGETHER:
        text = f"{100 * together:.1f} % of the kernels' time others ran at once: energy of that time is shared equally"
        run.warn("kernels_overlap", text)


def remove_recording(run: Run) -> None:
    """Take it away again: its figures can't be trusted."""
    run.activity = tables.empty("activity")
    run.workload.pop(RECORDINGS, None)
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
    fine = [channel.device for channel in run.channels if channel.name == POWER and samples(channel)]
    recorded: list[tuple[str | None, str]] = []
    for device in sorted(ran, key=lambda name: -ran[name]):
        source, _ = power_device(run, device)
        if source in fine and not (apart := _apart(run, device, str(source))):
            recorded.append((device, str(source)))
        elif source in fine and not any(warning.code == NO_COMMON_TIME for warning in run.warnings):
            run.warn(NOT_ATTRIBUTED, f"no energies of kernels: {apart}", str(source))
    if len(recorded) > 1:
        run.warn("one_device", f"powers of kernels are those of {recorded[0][1]}, on which kernels ran for the longest")
    elif fine and ran and all(power_device(run, device)[0] not in fine for device in ran):
        names = ", ".join(sorted(str(device) for device in ran))
        advice = "give the record a column gpu with the number of its device"
        run.warn(NOT_ATTRIBUTED, f"no energies of kernels: whose power the record is of {names} is unknown; {advice}")
    return recorded[0] if recorded else None


def _apart(run: Run, device: str | None, source: str) -> str:
    """That the power record has no reading while kernels ran; "" if it has."""
    of = pc.equal(run.spans["device"], device) if device is not None else pc.is_null(run.spans["device"])
    kernels = run.spans.filter(pc.and_(of, pc.equal(run.spans["kind"], "kernel")))
    ran = pc.min(kernels["start_ns"]).as_py(), pc.max(kernels["end_ns"]).as_py()
    if ran[0] is None:
        return "the kernels in the timeline have no times"
    power = power_record(run, source)
    if power is None or not len(power[0]):
        return "the power record has no reading that can be used"
    recorded = int(power[0].time_ns[0]), int(power[0].time_ns[-1])
    if recorded[0] < ran[1] and recorded[1] > ran[0]:
        return ""
    return f"kernels ran from {span_text(*ran)}, the power record is from {span_text(*recorded)}"


def _whole(work: LaunchedWork, steps: MarkedIterations) -> tuple[int, int, int]:
    """From when to when how many iterations ran: between the first kernels of two of them, else from first to last."""
    if steps.count >= STEPS:
        first = work.start[np.flatnonzero(steps.of == 0)[0]]
        last = work.start[np.flatnonzero(steps.of == steps.count - 1)[0]]
        if last > first:
            return int(first), int(last), steps.count - 1
    return int(work.start.min()), int(work.end.max()), 1


def _units(units: Units, work: LaunchedWork, inside: Mask, iterations: int) -> Ints:
    """Add operators by name and launch shape, their kernels, and idle; returns the unit of each kernel, shape (n,)."""
    shape = np.where(_few(work, np.where(work.op >= 0, work.op_name, -2 - work.name)), work.shape, -1)
    keys, first, code = np.unique(
        np.column_stack([work.op_name, shape, work.name]), axis=0, return_index=True, return_inverse=True
    )
    code = code.reshape(-1)
    counts = np.bincount(code[inside], minlength=len(keys)) / iterations
    ids, calls = np.empty(len(keys), np.int64), dict[tuple[int, int], int]()
    for k in np.argsort(first, kind="stable"):
        op, launch, name = (int(key) for key in keys[k])
        text = work.shapes[launch] if launch >= 0 else ""
        shown, count = work.spans.texts["name"][name] if name >= 0 else "", round(float(counts[k]))
        if op < 0:
            ids[k] = units.add("kernel", f"{shown} {text}".strip(), count=count or None)
            continue
        about: dict[str, Any] = {"op": work.spans.texts["name"][op], "shapes": text or None}
        if (op, launch) not in calls:
            mine = work.op[(work.op_name == op) & (shape == launch) & inside]
            calls[op, launch] = units.add(
                "op", about["op"], count=round(len(np.unique(mine)) / iterations) or None, **about
            )
        ids[k] = units.add("kernel", shown, calls[op, launch], count=count or None, **about)
    units.idle()
    return ids[code]


def _few(work: LaunchedWork, what: Ints) -> Mask:
    """True if a kernel's launcher has several launch shapes, and so few that each may have a row of its own."""
    _, of = np.unique(what, return_inverse=True)
    pairs = np.unique(np.column_stack([of.reshape(-1), work.shape]), axis=0)
    shapes = np.bincount(pairs[:, 0])
    return np.asarray(((shapes > 1) & (shapes <= MOST_SHAPES))[of.reshape(-1)])
