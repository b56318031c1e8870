"""One call from raw tables to figures, whatever made the Run."""

from __future__ import annotations

import numpy as np

from jouletrace.analysis.beside import add_host
from jouletrace.analysis.between_runs import add_between_runs
from jouletrace.analysis.counter import warn_of_counter
from jouletrace.analysis.imported_recording import moment, seconds_text, span_text
from jouletrace.analysis.model import add_model
from jouletrace.analysis.monitor import add_devices
from jouletrace.analysis.nodes import add_nodes, has_nodes
from jouletrace.analysis.power import most_w, power_record, state_period
from jouletrace.analysis.work import add_work
from jouletrace.arrays import Floats, Ints
from jouletrace.errors import BrokenOffError, JouletraceError
from jouletrace.run import MODEL_UNIT, DeviceInfo, Run, tables
from jouletrace.run.figures import Figures
from jouletrace.run.forms import LENT
from jouletrace.run.model import draft_of
from jouletrace.run.readings import Readings
from jouletrace.run.recording_names import has_recording
from jouletrace.run.spans import spans_of
from jouletrace.sensor.power_record import HELD, HELD_S, integrate, printed_step
from jouletrace.stats.one_thread import one_thread
from jouletrace.wing import kind_of, lacking

_RECORD_WARNINGS = {
    "nan": "{n} readings were not numbers and were left out",
    "negative": "{n} readings were negative and were left out",
    "implausible": "{n} readings of power were beyond what the GPU can draw and were left out, the first at {first}",
    "clock_stepped_back": "the clock stepped back while recording ({n} ×); the time lived twice was left out",
    "conflicting_stamps": "{n} stamps occur twice with different readings; the later reading was kept",
}

_HARMLESS = {"out_of_order", "duplicate", "skipped", "hole", "no_samples", "one_sample"}
"""Harmless repairs, and problems that are reported elsewhere; every other repair is counted in a warning."""

_STILL_S, _STILL, _NEAR, _STEPS, _COARSE_W = 60.0, 10, 1.25, 5.0, 0.1
"""A reading that repeats for so long, and so many times, is stuck if others within so large a factor usually change by
so many printed steps; not in steps of 0.1 W or more if the GPU is at rest (docs/results/accuracy-logs.md)."""


def analyse(run: Run) -> Run:
    """Compute ``results``, ``units`` and what kernels draw in a Run again from its raw tables; returns the same Run."""
    vars(run).update(vars(analysed(run)))  # tables that are in files stay there
    return run


@one_thread
def analysed(run: Run) -> Run:
    """The same Run with its figures, warnings and all that changes with them; the one given stays as it is.

    Figures that only a wing determines that isn't here stay as they are stored.
    """
    run, figures = draft_of(run), Figures()
    if lacking(run.workload, LENT):
        return run
    kind = kind_of(run.workload)
    for name in ("waveform", *tables.SOLVED):
        setattr(run, name, tables.empty(name))
    check_record(run)
    if run.kind in ("monitor", "record"):
        add_devices(run, figures)
        if run.kind == "record":
            from jouletrace.analysis.ranges import add_ranges, add_ranks  # scipy takes half a second to import

            units = add_ranges(run, figures)
            add_ranks(run, figures, units)
        add_work(run, figures)
    elif run.kind == "program":
        from jouletrace.analysis.parts import add_program  # scipy takes a second to import

        add_program(run, figures)
    elif run.kind == "import":
        from jouletrace.analysis.imported import add_imported

        add_imported(run, figures)
    elif kind is None:
        from jouletrace.analysis.host import work_and_idle

        add_model(run, figures)
        if has_recording(run):
            from jouletrace.analysis.parts import recorded_of

            recorded_of(run, figures).add(scaled=True)
        elif has_nodes(run):
            add_nodes(run, figures)
        for metric, figure in work_and_idle(run).items():
            figures.add(MODEL_UNIT, metric, figure)
        add_between_runs(run, figures)  # last: parts are compared with the whole of this run
    if kind is not None:
        kind.add(run, figures)
    add_host(run, figures)
    figures.become(run)
    return run


def analyse_recorded(run: Run) -> Run:
    """The same of a Run that has just been recorded: if it can't be analysed, the recording must be kept.

    Raises:
        BrokenOffError: If the analysis is refused.
    """
    try:
        return analyse(run)
    except BrokenOffError:
        raise
    except JouletraceError as error:
        raise BrokenOffError(f"it was recorded, but its figures can't be computed: {error}") from error


def check_record(run: Run) -> None:
    """Warn of what is wrong with the readings themselves, with counters and with the clock."""
    for device in run.devices:
        state_period(run, device.id)
    _warn_of_record(run)
    for device in run.devices:
        warn_of_counter(run, device.id)
        if left_out := device.details.get("packages_left_out"):
            text = f"{device.name}: without {', '.join(left_out)}, whose max_energy_range_uj can't be read"
            run.warn("packages_left_out", text, device.id)
    _warn_of_clock(run)


def _warn_of_record(run: Run) -> None:
    """Say what is wrong with the readings themselves."""
    start, end = spans_of(run, "phase").edges_ns
    for device in run.devices:
        power = power_record(run, device.id)
        if power is None:
            continue
        record = power[0]
        _warn_of_zeros(run, device, record)
        _warn_of_power(run, device, record)
        # Between phases nothing is measured: a hole there harms no figure. A log has no phases.
        anywhere = len(start) == 0 and run.kind == "import"
        seen = [hole for hole in record.holes if anywhere or np.any((start < hole[1]) & (end > hole[0]))]
        if seen and len(record.time_ns):
            run.warn("hole_in_record", _hole_text(np.array(seen), record), device.id)
        for code, count in record.issues.items():
            if code not in _HARMLESS:
                words = _RECORD_WARNINGS.get(code, "{n} readings were left out ({code})")
                first = moment(int(record.implausible_ns[0])) if len(record.implausible_ns) else ""
                run.warn(f"record_{code}", words.format(n=count, code=code.replace("_", " "), first=first), device.id)


def _warn_of_zeros(run: Run, device: DeviceInfo, record: Readings) -> None:
    """Say so if readings are 0 W: a GPU that is on never draws that, whatever a meter behind which nothing is may."""
    zero = record.value == 0
    if not zero.any():
        return
    if zero.all():
        run.warn("power_all_zero", f"all {len(zero)} readings of power are 0 W: its sensor doesn't work", device.id)
        return
    text = f"{int(zero.sum())} of {len(zero)} readings of power are 0 W"
    stamps, busy = run.series(device.id, "utilization_gpu_pct")
    most = float(np.max(busy[np.isin(stamps, record.time_ns[zero])], initial=0.0))
    if most > 0:
        run.warn("power_zero", f"{text}, though the device was up to {most:.0f} % busy: its sensor fails", device.id)
    elif device.kind == "gpu":
        run.warn("power_zero", f"{text}, which no GPU draws that is on: its sensor fails", device.id)
    else:
        run.warn("meter_zero", f"{text}: is that what was drawn?", device.id)


def _warn_of_power(run: Run, device: DeviceInfo, record: Readings) -> None:
    """Say so if a reading stood still though others scatter, or if power was held above the GPU's limit."""
    time, watts = record.time_ns, record.value
    edges = np.flatnonzero(np.diff(watts, prepend=np.nan, append=np.nan))
    longest = int(np.argmax(time[edges[1:] - 1] - time[edges[:-1]])) if len(time) else 0
    first, last = (int(edges[longest]), int(edges[longest + 1]) - 1) if len(time) else (0, 0)
    if last - first >= _STILL and time[last] - time[first] >= 1e9 * _STILL_S and _scatters(watts, first, last):
        text = f"the power reading stood still for {seconds_text((time[last] - time[first]) / 1e9)}"
        text = f"{text}, {span_text(int(time[first]), int(time[last]))}, though others change each time"
        run.warn("power_stuck", f"{text}: leave that time out", device.id)
    held_ns = round(1e9 * max(HELD_S, 5 * record.period_s)) if len(time) > 1 and device.kind == "gpu" else 0
    at = np.arange(time[0], time[-1], held_ns) if held_ns else time[:0]
    mean_w = integrate(time, watts, at[:-1], at[1:]) / held_ns * 1e9 if len(at) > 1 else watts[:0]
    over = (mean_w > HELD * most_w(run, device.id)) & (record.hole_seconds(at[:-1], at[1:]) == 0)
    if over.any():
        text = f"power is {mean_w[over].mean():.4g} W for {seconds_text(over.sum() * held_ns / 1e9)} from "
        text += f"{moment(int(at[np.argmax(over)]))} on, more than the GPU's limit allows for so long"
        run.warn("power_implausible", text, device.id)


def _scatters(watts: Floats, first: int, last: int) -> bool:
    """True if readings other than those between two usually change by many printed steps, at their power or below."""
    step_w = max(printed_step(watts), 1e-3)
    if step_w >= _COARSE_W and watts[first] <= _NEAR * np.quantile(watts, 0.05):
        return False
    high, low = np.maximum(watts[1:], watts[:-1]), np.minimum(watts[1:], watts[:-1])
    below = np.delete(high <= _NEAR * watts[first], slice(first, last))
    near = below & np.delete(low >= watts[first] / _NEAR, slice(first, last))
    changes = np.delete(high - low, slice(first, last))[near if near.sum() >= _STILL else below]
    return len(changes) >= _STILL and float(np.median(changes)) >= _STEPS * step_w


def _hole_text(holes: Ints, record: Readings) -> str:
    """How long the record has no readings, and from when to when; the longest of several holes; how much is covered.

    The reading at the end of one speaks of the period before it, which is no hole: time that the record covers and
    holes add up to the whole.
    """
    begin, end = holes[:, 0], np.maximum(holes[:, 1] - round(1e9 * record.period_s), holes[:, 0])
    lasts_s, longest = (end - begin) / 1e9, int(np.argmax(end - begin))
    covered = 100 * (1 - 1e9 * lasts_s.sum() / np.ptp(np.append(record.time_ns, holes)))
    where = f"{span_text(int(begin[longest]), int(end[longest]))}: {covered:.3g} % of its time is covered"
    if len(holes) == 1:
        return f"the power record has a hole of {seconds_text(lasts_s[0])}, {where}"
    many = f"the power record has {len(holes)} holes of {seconds_text(lasts_s.sum())} together"
    return f"{many}, the longest {seconds_text(lasts_s.max())}, {where}"


def _warn_of_clock(run: Run) -> None:
    """Say so if the clock of the stamps was set while recording: it must keep pace with one that never steps."""
    for first, last in zip(run.clock_pairs[::2], run.clock_pairs[1::2], strict=False):
        steady = last["monotonic_ns"] - first["monotonic_ns"]
        gained_s = (last["time_ns"] - first["time_ns"] - steady) / 1e9
        # a time daemon slews by half as much as is allowed here
        if abs(gained_s) > 0.05 + 1e-3 * steady / 1e9:
            run.warn("clock_stepped", f"the host's clock was set by {gained_s:+.2f} s while recording")
