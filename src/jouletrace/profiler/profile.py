"""``profile``: idle levels, warm-up, latency, energy, in passes that don't disturb each other."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from jouletrace import analysis
from jouletrace.devices import open_device
from jouletrace.devices.base import Device
from jouletrace.execution.steps import check_outputs
from jouletrace.execution.steps.base import KnowsNodes
from jouletrace.profiler import board_store, calibrations, generation, passes
from jouletrace.profiler.backends.base import Prepared
from jouletrace.profiler.detail.nodes import nodes
from jouletrace.profiler.detail.recording import record
from jouletrace.profiler.passes import warm_up
from jouletrace.profiler.prepare import check, for_workload, load_libraries, prepare, resolve
from jouletrace.profiler.progress import Progress, Silent
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.recording.session import Session
from jouletrace.run import Run
from jouletrace.run.store import save
from jouletrace.workloads.base import Workload
from jouletrace.workloads.user_code import no_silent_exit


def profile_workload(
    workload: str | Workload,
    settings: ProfileSettings,
    *,
    folder: Path | None = None,
    command: str = "",
    progress: Progress | None = None,
    ready: Callable[[Session], None] | None = None,
) -> Run:
    """Measure latency, power and energy of a workload.

    Args:
        workload: Name, path, or workload object.
        settings: The settings.
        folder: Folder of the Run; None keeps it in memory.
        command: For ``Run.command``.
        progress: Receives phases and elapsed seconds.
        ready: Called after the warm-up; the first pass starts when it returns.

    Returns:
        The analysed Run. After an interruption ``folder`` holds the recorded data, marked incomplete.

    Raises:
        BadInputError, NotPossibleError: As ``prepare``, and for the device.
        RecorderDiedError: If the recorder failed; ``folder`` holds the data recorded so far.
    """
    progress = progress or Silent()
    found = resolve(workload)
    settings = for_workload(found, settings)
    device = open_device(settings.device)
    try:
        check(device, settings)
        session = Session(
            "profile",
            [device],
            folder=folder,
            command=command,
            workload={"name": found.name},
            settings=settings.to_dict(),
        )
        with session, no_silent_exit():
            if settings.calibrated:
                calibrations.attach(session.run, device)
                calibrations.recall_rate(session.run, device.info.id)
            _warn_of_others(session, device)
            passes.deep_idle(session, device, settings, progress, lambda: load_libraries(found, device, settings))
            progress.begin("building the workload", 0)
            prepared = prepare(found, device, settings)
            try:
                _measure(session, prepared, settings, progress, ready)
            finally:
                prepared.step.close()
            run = session.finish()
    finally:
        device.close()
    return finish(run, session.folder)


def finish(run: Run, folder: Path | None) -> Run:
    """Compute the figures of a Run and save it, if it has a folder."""
    analysis.analyse_recorded(run)
    _remember_deep_idle(run)
    calibrations.remember_rate(run, run.devices[0].id)
    if folder is not None:
        save(run, folder, overwrite=True)
    return run


def _measure(
    session: Session,
    prepared: Prepared,
    settings: ProfileSettings,
    progress: Progress,
    ready: Callable[[Session], None] | None,
) -> None:
    step = prepared.step
    workload = session.run.workload = {"mode": settings.mode, **prepared.built.facts, "step": step.describe()}
    workload["items"] = prepared.built.items
    session.save_header()  # a record left by a crash needs these facts
    for warning in check_outputs(prepared.built) if prepared.real else prepared.warnings:
        session.run.warn(warning.code, warning.message, warning.where)
    progress.begin("warming up", settings.warmup_s)
    with session.phase("warm-up"):
        warm = warm_up(session, step, settings.warmup_s, progress)
    workload["warm_up"] = warm.to_dict()
    session.save_header()
    passes.idle(session, "context idle before", settings, progress)
    if ready is not None:
        ready(session)
    recorded = settings.detail != "model" and not (prepared.make_generation and settings.detail == "phase")
    between = None
    if recorded and not isinstance(step, KnowsNodes):
        between = partial(record, session, prepared.program(), settings, warm.iteration_s, progress)
    if prepared.make_generation is None:
        passes.latency(session, step, settings, warm.iteration_s, progress)
        passes.energy(session, step, settings, warm.iteration_s, progress, between)
    else:
        generation.measure(session, step, prepared.make_generation, settings, warm.iteration_s, progress, between)
    passes.idle(session, "context idle after", settings, progress)
    if isinstance(step, KnowsNodes):
        nodes(session, step, warm.iteration_s, progress)


def _warn_of_others(session: Session, device: Device) -> None:
    others = [process for process in device.processes() if process.pid != os.getpid()]
    if others:
        named = ", ".join(f"{process.name or 'process'} (pid {process.pid})" for process in others)
        session.run.warn("other_processes", f"other processes use the device: {named}", device.info.id)


def _remember_deep_idle(run: Run) -> None:
    """Store a measured deep idle power, for runs that start with a context."""
    seen = run.result("baseline_deep_idle_w")
    if seen.value is not None and not run.stored.get("deep_idle"):
        device = run.devices[0]
        board_store.remember(
            device.id, deep_idle={**seen.to_dict(), "time_ns": run.created_ns, "driver": device.driver}
        )
