"""Puts what was recorded of a program into its Run: its GPUs with their units and kernels, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from jouletrace import analysis
from jouletrace.arrays import Ints
from jouletrace.devices.base import Device
from jouletrace.profiler.measure import warn_of_idle
from jouletrace.profiler.program.gpus import ProgramGpu, Waits, gpus_of, unrecorded
from jouletrace.profiler.program.launcher import Launcher
from jouletrace.profiler.program.timeline import MOST_KERNELS, MOST_PLACES, rows_of, steps_of
from jouletrace.recording import calibrations
from jouletrace.recording.session import Session
from jouletrace.run import MODEL_UNIT, Run, tables
from jouletrace.run.forms import RecordingFacts
from jouletrace.run.recording_names import RECORDINGS
from jouletrace.run.spans import union
from jouletrace.run.units import Units
from jouletrace.tracer.launching import obstacle, ranges_obstacle
from jouletrace.tracer.process_trace import ProcessTrace
from jouletrace.tracer.reader import read

MOST_OF_ALL = 4_000_000
"""Kernels in a Run; of many GPUs, each has fewer than ``MOST_KERNELS``."""

SHORT_GAP_S = 20e-6
"""Idle time between kernels up to this length lies between launches that the GPU has already received."""


SEEN_NS = 5_000
"""Clocks of host and GPU agree to this."""


def describe(session: Session, there: Mapping[str, str]) -> None:
    """Add to the Run who else uses its devices, and that simulated ones were idle."""
    session.warn_of_others(there)
    warn_of_idle(session.run, session.devices)
    session.save_header()


def finish(session: Session, rows: Path, launcher: Launcher) -> None:
    """End the recording and compute its figures."""
    run, traces = session.run, read(rows)
    run.workload["exit_code"] = launcher.code or 0
    launcher.warn(run)
    warn_of_losses(run, traces)
    _note(run, traces, session.devices)
    traces = [traced for traced in traces if len(traced.work)]
    recorded_ids = [device.info.id for device in session.devices if device.info.kind != "cpu"] or ["cpu"]
    gpus, waits = gpus_of(traces, recorded_ids)
    for id in unrecorded(traces, recorded_ids):
        run.warn("not_recorded", f"kernels ran on {id}, too, whose power isn't recorded: --device all records it", id)
    if gpus:
        units, activity = recorded(run, gpus, waits)
        alone = all(
            len(np.unique(traced.work.device)) == 1 for traced in traces
        )  # else replicas of a module count, too
        if alone and (steps := steps_of([part for gpu in gpus for part in gpu.parts])):
            run.workload["steps"] = steps
        session.add_units(units)
        session.add_activity({name: activity[name].combine_chunks() for name in activity.column_names})
    session.finish()
    analyse_program(run)
    session.save()


def _note(run: Run, traces: Sequence[ProcessTrace], devices: Sequence[Device]) -> None:
    """Say what is missing."""
    gpus = [device for device in devices if device.info.kind != "cpu"]
    none = all(not len(traced.work) for traced in traces)
    if not gpus and none:
        missing = any("no_gpu" in device.info.details for device in devices)
        here = "there is no GPU here" if missing else "no GPU is recorded"
        run.warn("no_gpu", f"{here}, and no kernels were traced")
    elif none and all(warning.code not in _WHY_NONE for warning in run.warnings):
        run.warn("not_traced", f"kernels: {_why_none(traces, gpus)}")
    if gpus and ranges_obstacle():
        run.warn("not_traced", ranges_obstacle())
    for traced in traces:
        if traced.segments and _runs(traced.pid):
            run.warn("child_runs", f"{traced.name} (process {traced.pid}) still runs: its later kernels are missing")


def _why_none(traces: Sequence[ProcessTrace], gpus: Sequence[Device]) -> str:
    """Why there are no kernels."""
    if any(traced.segments for traced in traces):
        return "the program ran none, or ended before one was written: by a signal or _exit within half a second"
    if (why := obstacle()) or not all(device.info.simulated for device in gpus):
        return why or _NONE
    return (
        "none were traced: a program runs none on a simulated GPU, so its ranges are not kept, which are those of "
        "kernels: jt.record keeps them"
    )


_WHY_NONE = "not_traced", "records_dropped", "child_lost"
"""Codes of warnings that say why there are no kernels."""

_NONE = "the program ran none, or the tracer couldn't come into it (behind sudo, env -i, ssh or docker run, or setuid)"


def _runs(pid: int) -> bool:
    """True if a process runs; one that has ended and wasn't waited for doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def recorded(run: Run, gpus: Sequence[ProgramGpu], waits: Waits) -> tuple[Units, pa.Table]:
    """Units and rows of ``activity`` of a program; facts about the recording of each GPU are added to its Run.

    Where several GPUs are recorded, all of one lies below the unit of that device.
    """
    several = sum(device.kind != "cpu" for device in run.devices) > 1
    most = min(MOST_KERNELS, MOST_OF_ALL // len(gpus))
    units = Units()
    activity, recordings = [], list[RecordingFacts]()
    for gpu, name in zip(gpus, _names(run, gpus), strict=True):
        top = MODEL_UNIT
        if several:
            top = units.add("device", gpu.id, module=gpu.id)
        if away := sum(int(np.diff(part.away).sum()) for part in gpu.parts):
            text = f"{len(gpu.parts)} processes had the GPU by turns: {away / 1e9:.3g} s within kernels were another's"
            run.warn("took_turns", text, gpu.id)
        rows, about, pooled = rows_of(gpu.parts, units, top, most, MOST_PLACES // len(gpus))
        if pooled:
            text = f"{pooled} kernels in ranges, those with the least time, are together: there are too many names"
            run.warn("too_many_names", text, gpu.id)
        device = pa.DictionaryArray.from_arrays(np.zeros(len(rows["unit"]), np.int32), [gpu.id])
        activity.append(tables.conform(pa.table({**rows, "device": device}), "activity"))
        about |= recording_facts(gpu, rows["start_ns"], rows["end_ns"])
        if several:
            about["name"] = name
            if gpu.rank is not None and len(gpus) > 1:
                about |= {"last": waits.last.get(gpu.rank, 0), "collectives": waits.matched}
        recordings.append(about)
    run.workload[RECORDINGS] = recordings
    if len(gpus) > 1 and waits.matched < 0.5 * waits.collectives:
        text = f"{waits.collectives - waits.matched} of {waits.collectives} collectives couldn't be matched"
        run.warn("collectives_unmatched", f"{text} between ranks: waiting is in their communication")
    return units, tables.concat(activity, "activity")


def warn_of_losses(run: Run, traces: Sequence[ProcessTrace]) -> None:
    """Say what the tracer says is missing of each process."""
    for note in dict.fromkeys(note for traced in traces for note in traced.notes):
        run.warn(*note)


def analyse_program(run: Run) -> None:
    """Compute the figures of a program; rates of sensors are recalled, and those that it determined are kept."""
    devices = [about["device"] for about in run.workload.get("recordings", ())]
    for device in devices:
        calibrations.recall_rate(run, device)
    analysis.analyse_recorded(run)
    tops = {row["module"]: row["id"] for row in run.units.to_pylist() if row["level"] == "device"}
    for device in devices:
        calibrations.remember_rate(run, device, tops.get(device, MODEL_UNIT))


def recording_facts(gpu: ProgramGpu, start: Ints, end: Ints) -> RecordingFacts:
    """Provenance of the rows of a GPU, whose kernels in the part that is analysed have these edges, ns."""
    about: RecordingFacts = {
        "device": gpu.id,
        "iterations": 1,
        "iterations_by": None,
        "first_ns": min(int(part.work.start_ns.min()) for part in gpu.parts),
        "dropped": gpu.dropped,
        "kernels": sum(len(part.work) for part in gpu.parts),
        "kernels_s": gpu.busy_s,
        "idle_by": _idle_by(start, end, gpu),
    }
    if gpu.rank is not None:
        about["rank"] = gpu.rank
    if gpu.unsampled:
        about["note"] = f"operators: {gpu.unsampled}"
    return about


def _names(run: Run, gpus: Sequence[ProgramGpu]) -> list[str]:
    """Names of GPUs: by their rank, or by their place among the devices where they have none of their own."""
    ids, ranks = [device.id for device in run.devices], [gpu.rank for gpu in gpus]
    names = []
    for gpu in gpus:
        words = [] if gpu.rank is None else [f"rank-{gpu.rank}"]
        if gpu.rank is None or ranks.count(gpu.rank) > 1:
            words.append(f"gpu-{ids.index(gpu.id)}")
        names.append("-".join(words))
    return names


def _idle_by(start: Ints, end: Ints, gpu: ProgramGpu) -> dict[str, float]:
    """Shares of the idle time by what the host did: loading data, launching, resuming after it waited for the GPU."""
    until = np.maximum.accumulate(end)[:-1]
    gap = np.maximum(start[1:] - until, 0)
    total = float(gap.sum())
    if total <= 0:
        return {}
    short = float(gap[gap <= SHORT_GAP_S * 1e9].sum())
    long = gap > SHORT_GAP_S * 1e9
    since, then = until[long], start[1:][long]
    spans = np.array(sorted(gpu.loads), np.int64).reshape(-1, 2)
    loading = _overlap(since, then, spans)
    # The host learns that the GPU is done just after its last kernel, and launches from then on.
    ends = gpu.syncs[:, 1]
    after = np.searchsorted(ends, then) > np.searchsorted(ends, since - SEEN_NS)
    waited = float((then - since)[after].sum()) - _overlap(since[after], then[after], spans)
    return {
        "data loading": loading / total,
        "between launches": short / total,
        "synchronisation": waited / total,
        "host": max(total - short - loading - waited, 0.0) / total,
    }


def _overlap(start: Ints, end: Ints, spans: Ints) -> float:
    """Length that intervals have in common with spans, both ascending; overlapping spans count once."""
    if not len(spans) or not len(start):
        return 0.0
    spans = union(*spans.T)
    edges, covered = spans.ravel(), np.append(0, np.cumsum(np.diff(spans)))
    values = np.column_stack([covered[:-1], covered[1:]]).ravel()
    return float((np.interp(end, edges, values) - np.interp(start, edges, values)).sum())
