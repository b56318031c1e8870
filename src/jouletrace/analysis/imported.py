"""Figures of what other tools recorded: time by name of what ran, and energy where there is a power record."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.analysis.imported_recording import add_recording, remove_recording
from jouletrace.analysis.kernel_counters import add_kernels
from jouletrace.analysis.latency import stated_latency
from jouletrace.analysis.monitor import add_each, sensor_known
from jouletrace.analysis.power import NO_READING, WHICH_POWER, no_power_reason, power_record, window_estimate
from jouletrace.analysis.span_energies import KINDS, Named, add_energies, by_name
from jouletrace.analysis.unrecorded import warn_of_launches
from jouletrace.arrays import Ints
from jouletrace.run import MODEL_UNIT, DeviceInfo, Estimate, Run, device_labels
from jouletrace.run.channels import ENERGY_COUNTER
from jouletrace.run.estimate import STATED
from jouletrace.run.figures import Figures, Units
from jouletrace.run.recording_names import recording_of
from jouletrace.run.spans import Spans, spans_of, union_ns
from jouletrace.run.tables import LEVEL_OF_SPANS, UnitRow

METHOD = "spans"

PER_INFERENCE = "levels x latency"
"""Method of the energy of an inference: (working level - idle level) x latency.

It is the practice of artifacts that were measured with ``nvidia-smi dmon`` beside a latency benchmark. It takes the GPU
to be at its working level for the whole latency, with one inference after the other; what it yields is active energy,
over whatever idle level the log shows.
"""

_MOST_NAMES = 1000
"""Names of one level that become units; the longest in sum come first."""

_WORK = ("kernel", "memcpy")
"""Kinds of spans that are a GPU's work."""

IMPOSSIBLE, TIMES_LEFT_OUT = "impossible_times", "times_left_out"
"""Reason of a figure without a time that is possible, and flag of one of the rest."""


def add_imported(run: Run, figures: Figures) -> None:
    """Add what an import holds: stated figures, devices with a power record, and every name that ran.

    ``time_s`` of a kernel, copy, range or iteration is the sum of its durations, and of an operator
    the sum of the kernels and copies launched right in it. Sums over-count where spans overlap;
    ``time_busy_s`` of the model, the time in which at least one kernel or copy ran, doesn't. ``time_mean_s`` of a
    kernel or copy is that of a call and, where no power was logged, ``share`` that of all kernels and copies.
    """
    figures.model(run.workload.get("name", "import"))
    _keep_stated(run, figures)
    traced = _add_traced(run, figures)
    powered = [device for device in run.devices if power_record(run, device.id) is not None]
    unread = [info for info in run.devices if info not in powered and no_power_reason(run, info.id) == NO_READING]
    # where another has energy, one with several powers has none without a choice
    open_choice = [info for info in run.devices if powered and no_power_reason(run, info.id) == WHICH_POWER]
    logged = [
        info
        for info in run.devices
        if info in (*powered, *unread, *open_choice) or run.channel(info.id, ENERGY_COUNTER) is not None
    ]
    devices = add_each(run, figures, logged)
    _warn_of_devices(run, unread, [info for info in powered if not sensor_known(run, info.id)])
    latency = stated_latency(run)
    if len(powered) == 1 and latency.value is not None:
        difference = figures.get(devices[powered[0].id], "power_difference_w")
        figures.add(MODEL_UNIT, "energy_per_inference_j", energy_per_inference(difference, latency))
    warn_of_launches(run)
    timeline, untimed = spans_of(run), _untimed(run)
    # of powers without a choice the importer has said so
    said = any(warning.code == WHICH_POWER for warning in run.warnings)
    if run.channels and not (logged or said or _needs_no_power(run, timeline)):
        text = "none of the columns is a power or an energy counter"
        run.warn("no_power_logged", f"{text}: log power too, as power.draw of nvidia-smi or DCGM_FI_DEV_POWER_USAGE")
    if len(timeline) == 0:
        add_kernels(run, figures)
    elif not traced:
        _add_model(timeline, figures, [TIMES_LEFT_OUT] if untimed else [])
    kinds = [kind for kind in KINDS if not traced or kind not in ("op", "kernel", "memcpy")]
    units, spans = _add_names(run, timeline, figures, kinds, untimed)
    if powered and len(timeline):
        for named in untimed & units.keys():  # a sum that leaves some out would be wrong without a word
            figures.add(units[named], "energy_total_j", Estimate.null(IMPOSSIBLE, METHOD))
        add_energies(run, figures, units, spans)
    else:
        _add_shares(figures, [units[named] for named in units if named[0] in _WORK])


def _warn_of_devices(run: Run, unread: Sequence[DeviceInfo], unknown: Sequence[DeviceInfo]) -> None:
    """Name the devices that have no reading of power, though a log should have it, and meters of an unknown kind."""
    labels = device_labels(run.devices)
    unread_names, names = (", ".join(labels[device.id] for device in some) for some in (unread, unknown))
    if unread:
        run.warn(NO_READING, f"no reading of power: {unread_names}")
    if unknown:
        text = "the file doesn't state whether a reading is a mean or of its moment, and the mean of readings is given"
        run.warn("meter_unknown", f"{names}: {text}: an energy counter would show more, or faster readings")


def _add_traced(run: Run, figures: Figures) -> bool:
    """Add operators and kernels by the regression, an iteration of the timeline as the whole; False if it can't be."""
    if not add_recording(run, Units(figures.units)):
        return False
    from jouletrace.analysis.parts import recorded_of  # scipy takes a second to come in

    recorded = recorded_of(run, figures)
    if recorded.powers is None:
        remove_recording(run)
        return False
    about = recording_of(run)
    start_ns, end_ns, iterations = about["whole"]
    whole = window_estimate(run, about["device"], start_ns, end_ns)
    seconds = (end_ns - start_ns) / 1e9
    flags = ["traced"] if about["iterations_by"] else ["whole_stretch"]
    time = Estimate(seconds / iterations, n=iterations, method="trace")
    figures.add(MODEL_UNIT, "iteration_time_s", time, flags)
    figures.add_energy(MODEL_UNIT, replace(whole, flags=tuple(flags)).scaled(1 / iterations), seconds / iterations)
    recorded.add(scaled=False)
    return True


def _keep_stated(run: Run, figures: Figures) -> None:
    """Take over units and figures that the file stated, layers too that it only names.

    All other results are computed again, and so are the ids of its units.
    """
    results = run.results.to_pylist()
    stated = [row for row in results if str(row["method"] or "").startswith(STATED)]
    computed = {row["unit"] for row in results if not str(row["method"] or "").startswith(STATED)}
    rows: dict[int, UnitRow] = {row["id"]: row for row in run.units.to_pylist() if row["id"] != MODEL_UNIT}
    kept: dict[int, UnitRow] = {id: row for id, row in rows.items() if row["level"] == "layer" and id not in computed}
    for row in stated:
        unit = row["unit"]
        while unit in rows and unit not in kept:
            kept[unit] = rows[unit]
            unit = rows[unit]["parent"]
    figures.keep_results(stated)
    figures.units.keep(kept[unit] for unit in sorted(kept))


def _untimed(run: Run) -> set[Named]:
    """Names of spans some of whose times are unknown, since the file gives impossible ones; and of their operators.

    Launches with counters have no times by nature.
    """
    gone = pc.and_(pc.is_null(run.spans["start_ns"]), pc.is_in(run.spans["kind"], pa.array(list(LEVEL_OF_SPANS))))
    gone = pc.and_(gone, pc.invert(pc.is_in(run.spans["id"], run.counters["span"].combine_chunks())))
    spans = run.spans.filter(gone).select(["kind", "name", "device", "parent"])
    above = run.spans.filter(pc.is_in(run.spans["id"], spans["parent"].combine_chunks()))
    rows = [*spans.to_pylist(), *(row for row in above.to_pylist() if row["kind"] == "op")]
    return {(row["kind"], row["name"] or "", row["device"] or "") for row in rows}


def _needs_no_power(run: Run, timeline: Spans) -> bool:
    """True of a timeline of a GPU's work, and of energies that the file states; ranges alone are rows of results."""
    metrics = run.results["metric"].unique().to_pylist()
    others = any(np.any(timeline.those("kind", (kind,))) for kind in LEVEL_OF_SPANS if kind != "range")
    return others or any(str(metric).startswith("energy") for metric in metrics)


def _add_model(timeline: Spans, figures: Figures, flags: list[str]) -> None:
    """From the first start to the last end, and how long of it some kernel or copy ran."""
    work = timeline.those("kind", _WORK)
    shown = work if work.any() else np.ones(len(work), bool)
    seconds = float(timeline.end_ns[shown].max() - timeline.start_ns[shown].min()) / 1e9
    figures.add(MODEL_UNIT, "time_s", Estimate(seconds, n=int(shown.sum()), method=METHOD), flags)
    if work.any():
        busy = union_ns(timeline.start_ns[work], timeline.end_ns[work]) / 1e9
        figures.add(MODEL_UNIT, "time_busy_s", Estimate(busy, n=int(work.sum()), method=METHOD), flags)


def _add_names(
    run: Run, timeline: Spans, figures: Figures, kinds: Collection[str], untimed: set[Named]
) -> tuple[dict[Named, int], dict[Named, Spans]]:
    """A unit for each name by kind and device; returns their ids, and the spans. Those untimed in part have a flag."""
    units, spans = dict[Named, int](), dict[Named, Spans]()
    rows, duration = by_name(timeline, kinds), timeline.end_ns - timeline.start_ns
    launched = _time_launched_in(timeline, duration)
    seconds = {
        named: float((launched if named[0] == "op" else duration)[some].sum()) / 1e9 for named, some in rows.items()
    }
    ranges = [(row["name"], id) for id, row in figures.units.rows.items() if row["level"] == "range"]
    count_of = Counter(name for name, _ in ranges)  # the window of a row of results is that row, not a second one
    stated = {name: id for name, id in ranges if count_of[name] == 1}
    several = len(timeline.texts["device"]) > 1
    for kind, level in LEVEL_OF_SPANS.items():
        named_so = sorted((named for named in rows if named[0] == kind), key=lambda named: -seconds[named])
        if len(named_so) > _MOST_NAMES:
            run.warn("more_names", f"{len(named_so)} names of {kind} spans; figures are of the {_MOST_NAMES} longest")
        for named in named_so[:_MOST_NAMES]:
            _, name, device = named
            spans[named], count = timeline.take(rows[named]), len(rows[named])
            unit = stated.get(name) if kind == "range" and count == 1 else None
            if unit is None:
                where = device or None if several else None
                unit = figures.units.add(level, name, module=where, count=count)
            units[named] = unit
            flags = [TIMES_LEFT_OUT] if named in untimed else []
            time = Estimate(seconds[named], n=count, method=METHOD)
            figures.add(unit, "time_s", time, flags)
            if kind in _WORK:
                figures.add(unit, "time_mean_s", time.scaled(1 / count), flags)
    for named in sorted(untimed - units.keys()):
        kind, name, device = named
        if kind in kinds:
            where = device or None if several else None
            unit = units[named] = figures.units.add(LEVEL_OF_SPANS[kind], name, module=where)
            figures.add(unit, "time_s", Estimate.null(IMPOSSIBLE, METHOD))
    return units, spans


def _add_shares(figures: Figures, work: Sequence[int]) -> None:
    """Add to units of kernels and copies their share of the time of all."""
    whole_s = sum(figures.get(unit, "time_s").value or 0.0 for unit in work)
    for unit in work if whole_s else ():
        figures.add(unit, "share", figures.get(unit, "time_s").scaled(1 / whole_s))


def _time_launched_in(timeline: Spans, duration: Ints) -> Ints:
    """For each span the durations of the kernels and copies of which it is the parent."""
    work = np.flatnonzero(timeline.those("kind", _WORK) & (timeline.above >= 0))
    return np.bincount(timeline.above[work], duration[work], minlength=len(duration)).astype(np.int64)


def energy_per_inference(difference: Estimate, seconds: Estimate) -> Estimate:
    """Joules of an inference: a difference of levels in watts times a latency in seconds.

    Null with the reason of whichever is missing. The interval has both uncertainties, as far as
    they are known.
    """
    if difference.value is None or seconds.value is None:
        return Estimate.null(difference.reason or seconds.reason or "not_measured", PER_INFERENCE)
    value = difference.value * seconds.value
    if difference.half_width is None:
        return Estimate(value, n=difference.n, method=PER_INFERENCE)
    half = math.hypot(difference.half_width * seconds.value, (seconds.half_width or 0.0) * difference.value)
    return Estimate(value, value - half, value + half, difference.n, PER_INFERENCE)
