"""Ends the recording of a program: what was recorded comes into its Run, with what is missing, and its figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from jouletrace import analysis
from jouletrace.devices.base import Device, Process, others
from jouletrace.profiler.measure import warn_of_idle
from jouletrace.profiler.program.launcher import Launcher
from jouletrace.profiler.program.timeline import gpus_of, recorded, steps_of, unrecorded, warn_of_unseen
from jouletrace.recording import calibrations
from jouletrace.recording.session import Session
from jouletrace.run import MODEL_UNIT, Run
from jouletrace.tracer.launching import obstacle, ranges_obstacle
from jouletrace.tracer.process_trace import ProcessTrace
from jouletrace.tracer.reader import read


def describe(session: Session, there: Mapping[str, Sequence[Process]]) -> None:
    """Add to the Run who else uses its devices, and that simulated ones were idle."""
    session.warn_of_others(there)
    warn_of_idle(session.run, session.devices)
    session.save_header()


def finish(session: Session, rows: Path, launcher: Launcher) -> None:
    """End the recording and compute its figures."""
    run, traces = session.run, read(rows)
    run.workload["exit_code"] = launcher.code or 0
    launcher.warn(run)
    pids = {traced.pid for traced in traces}
    session.warn_of_others(others(session.devices, pids), pids)
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
    else:
        add_host_ranges(session, rows)
    session.finish()
    warn_of_unseen(run, gpus)
    analyse_program(run)
    session.save()


def add_host_ranges(session: Session, rows: Path) -> None:
    """Add the ranges that processes without a GPU have kept, and what is wrong with them."""
    for file in sorted(rows.glob("*.ranges")):
        with suppress(OSError, ValueError):  # cut off by a full disk
            kept = json.loads(file.read_bytes())
            spans = sorted(kept["spans"])  # by id: a range has a lower one than those in it
            number = {span[0]: k for k, span in enumerate(spans)}
            names = "id", "parent", "kind", "name", "lane", "start_ns", "end_ns"
            session.add_spans(
                [dict(zip(names, (number[id], number.get(above), *rest), strict=True)) for id, above, *rest in spans]
            )
            for code, message in kept["warnings"]:
                session.run.warn(code, message)


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
