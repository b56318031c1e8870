"""A recording of kernels and power by other tools: their timeline and their record, kept as ``profile`` keeps its own.

Where the record is the driver's, of momentary samples every 20 ms, the regression (``analysis.parts``) finds the
power of each kind of kernel in it. Coarser records are for ``analysis.span_energies``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.analysis.launched import STEPS, LaunchedWork, MarkedIterations, steps_of
from jouletrace.analysis.power import power_record
from jouletrace.analysis.span_energies import power_device
from jouletrace.analysis.unrecorded import launches_of
from jouletrace.arrays import Ints, Mask
from jouletrace.errors import BadInputError
from jouletrace.run import Run, tables
from jouletrace.run.channels import POWER
from jouletrace.run.forms import RecordingFacts
from jouletrace.run.recording_names import RECORDINGS
from jouletrace.run.spans import union_ns
from jouletrace.run.units import Units
from jouletrace.sensor.kinds import KINDS, RECORD, samples, sensor_behind

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


def take_for_samples(run: Run) -> None:
    """Note which power records beside a timeline are the driver's own: gapless, of momentary samples every 20 ms.

    A table doesn't say what its readings are means of; stamps on the driver's grid do. Beside kernels others are warned
    of. Beside other spans a meter may read each 20 ms, too: the GPU's name or the driver's late stamps exclude that.
    """
    kinds = set(pc.unique(run.spans["kind"]).to_pylist())
    if run.kind != "import" or not kinds - {None}:
        return
    records = [channel for channel in run.channels if channel.name == POWER]
    traces = kinds & _OF_KERNELS or any("joins" in one for one in run.settings.get("imported", ()))
    if records and traces and "kernel" not in kinds:
        run.warn(NOT_ATTRIBUTED, "no energies of kernels: the timeline has none; record the GPU's activity too")
    for channel in records:
        if samples(channel):
            continue
        stamps, watts = run.series(channel.device, POWER)
        board = next((one.name for one in run.devices if one.id == channel.device), "")
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
    found = _device(run)
    if found is None:
        return False
    device, source = found
    work = LaunchedWork.from_run(run, device)
    steps = steps_of(work)
    own = steps.of >= 0 if steps.count else np.ones(len(work.start), bool)
    unit = _units(units, work, own, max(steps.count, 1))
    run.units = units.table()
    run.activity = tables.conform(
        pa.table({"start_ns": work.start, "end_ns": work.end, "unit": unit, "copy": ~own}), "activity"
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
    _warn(run, work, own, steps)
    spans = np.full(len(run.spans), -1, np.int64)
    spans[work.row] = unit
    where = run.spans.schema.get_field_index("unit")
    run.spans = run.spans.set_column(where, run.spans.schema.field("unit"), pa.array(spans, mask=spans < 0))
    return True


def _warn(run: Run, work: LaunchedWork, own: Mask, steps: MarkedIterations) -> None:
    """Say what of the kernels' time the tables leave out or share equally."""
    length = (work.end - work.start).astype(float)
    outside = float(length[~own].sum() / max(length.sum(), 1.0))
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


def _whole(work: LaunchedWork, steps: MarkedIterations) -> tuple[int, int, int]:
    """From when to when how many iterations ran: between the first kernels of two of them, else from first to last."""
    if steps.count >= STEPS:
        first = work.start[np.flatnonzero(steps.of == 0)[0]]
        last = work.start[np.flatnonzero(steps.of == steps.count - 1)[0]]
        if last > first:
            return int(first), int(last), steps.count - 1
    return int(work.start.min()), int(work.end.max()), 1


def _units(units: Units, work: LaunchedWork, own: Mask, iterations: int) -> Ints:
    """Add operators by name and launch shape, their kernels, and idle; returns the unit of each kernel, shape (n,)."""
    shape = np.where(_few(work, np.where(work.op >= 0, work.op_name, -2 - work.name)), work.shape, -1)
    keys, first, code = np.unique(
        np.column_stack([work.op_name, shape, work.name]), axis=0, return_index=True, return_inverse=True
    )
    code = code.reshape(-1)
    counts = np.bincount(code[own], minlength=len(keys)) / iterations
    ids, calls = np.empty(len(keys), np.int64), dict[tuple[int, int], int]()
    for k in np.argsort(first, kind="stable"):
        op, launch, name = (int(one) for one in keys[k])
        text = work.shapes[launch] if launch >= 0 else ""
        shown, count = work.spans.texts["name"][name] if name >= 0 else "", round(float(counts[k]))
        if op < 0:
            ids[k] = units.add("kernel", f"{shown} {text}".strip(), count=count or None)
            continue
        about: dict[str, Any] = {"op": work.spans.texts["name"][op], "shapes": text or None}
        if (op, launch) not in calls:
            mine = work.op[(work.op_name == op) & (shape == launch) & own]
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
