"""``profile``: idle levels, warm-up, latency, energy, in passes that don't disturb each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from jouletrace import analysis
from jouletrace.analysis.latency import FIRST_TOKEN
from jouletrace.devices import open_device
from jouletrace.devices.base import others
from jouletrace.errors import BadInputError
from jouletrace.execution.steps import check_outputs
from jouletrace.execution.steps.base import KnowsNodes
from jouletrace.option import named
from jouletrace.profiler import passes
from jouletrace.profiler.detail.kernel_recording import nodes, record
from jouletrace.profiler.passes import warm_up
from jouletrace.profiler.prepare import Prepared, check, for_workload, load_libraries, prepare, slow_cpu
from jouletrace.profiler.progress import Progress, reported, start
from jouletrace.profiler.settings import AUTO, ProfileSettings
from jouletrace.recording import board_store, calibrations
from jouletrace.recording.session import Session
from jouletrace.run import Run
from jouletrace.run.measured import keep
from jouletrace.run.places import SAVE_LATER, check_free
from jouletrace.workloads import ObjectWorkload, resolve
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
    """Measure latency, power and energy of a workload; returns the analysed Run.

    ``ready`` is called after the warm-up and a rest, and the load then begins with a step; without it, windows follow
    the warm-up at once. After an interruption ``folder`` holds the recorded data, marked incomplete.

    Raises:
        BadInputError, NotPossibleError: As ``prepare``, and for the device.
        RecorderDiedError: If the recorder failed; ``folder`` holds the data recorded so far.
    """
    progress = progress or Progress()
    resolved = resolve(workload)
    settings = for_workload(resolved, settings)
    device = open_device(settings.device)
    try:
        check(device, settings)
        start(progress, device, settings.device)
        for remark in slow_cpu(device, settings):
            progress.note(remark)
        session = Session(
            "profile",
            [device],
            folder=folder,
            command=command,
            workload={"name": resolved.name},
            settings=settings.to_dict(),
            calibrated=settings.calibrated,
            meanwhile=partial(load_libraries, resolved, device, settings),
        )
        with session, no_silent_exit():
            calibrations.state_scatter(session.run, device)
            if settings.calibrated:
                calibrations.recall_rate(session.run, device.info.id)
            session.warn_of_others(others([device]))
            passes.deep_idle(session, device, settings, progress)
            progress.begin("building the workload", 0)
            prepared = prepare(resolved, device, settings)
            try:
                _measure(session, prepared, settings, progress, ready)
            finally:
                prepared.step.close()
            session.warn_of_others(others([device], used_here=True))
            run = session.finish()
    finally:
        device.close()
    progress.begin("computing the figures (seconds to minutes)", 0)
    return finish(run, session.folder)


def finish(run: Run, folder: Path | None) -> Run:
    """Compute the figures of a Run and save it, if it has a folder."""
    analysis.analyse_recorded(run)
    _remember_deep_idle(run)
    calibrations.remember_rate(run, run.devices[0].id)
    if folder is not None:
        keep(run, folder, taken=True)
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
    for warning in (*prepared.warnings, *(check_outputs(prepared.built) if prepared.real else ())):
        session.run.warn(warning.code, warning.message, warning.where)
    begun_ns = session.clock.time_ns()

    def timed(iteration_s: float) -> None:
        left = passes.within(session, settings, begun_ns)
        passes.latency(session, step, left, iteration_s)
        if prepared.make_first_token is not None and settings.first_token:
            first = prepared.make_first_token()
            passes.latency(session, first, left, first.replay(1).seconds, FIRST_TOKEN)
            first.close()

    def expect(iteration_s: float) -> None:
        if session.run.devices[0].kind == "cpu":
            limit_s = settings.max_time_s or math.inf
            timed_s = passes.timed_iterations(settings, iteration_s) * iteration_s
            seconds = min(settings.warmup_s + timed_s + passes.expected_s(session, settings, iteration_s), limit_s)
            progress.note(f"about {max(seconds, 3 * iteration_s):.0f} s, at {iteration_s:.2g} s an iteration")

    progress.begin("warm-up and latency", settings.warmup_s, at_most=True)
    with session.phase("warm-up"):
        warm = warm_up(session, step, settings.warmup_s, progress, timed, expect)
    workload["warm_up"] = asdict(warm)
    session.save_header()
    progress.expect(passes.expected_s(session, settings, warm.iteration_s))
    if ready is not None:
        passes.idle(session, "context idle before", settings, progress)
        ready(session)
    between = None
    if settings.detail != "model" and not isinstance(step, KnowsNodes):
        between = partial(record, session, prepared.traceable(), settings, warm.iteration_s, progress)
    left = passes.within(session, settings, begun_ns)
    hot = ready is None and warm.power_settled is True
    passes.energy(session, step, left, warm.iteration_s, progress, between, hot=hot)
    if isinstance(step, KnowsNodes):
        nodes(session, step, warm.iteration_s, progress)


def _remember_deep_idle(run: Run) -> None:
    """Store a measured deep idle power, for runs that start with a context."""
    seen = run.result("baseline_deep_idle_w")
    if seen.value is not None and not run.stored.get("deep_idle"):
        device = run.devices[0]
        board_store.remember(
            device.id, deep_idle={**seen.to_dict(), "time_ns": run.created_ns, "driver": device.driver}
        )


def profile(
    model: Any,
    inputs: Any = (),
    *,
    device: str = "auto",
    mode: str = "eager",
    dtype: str | None = None,
    name: str | None = None,
    target_ci: float = 0.01,
    save_to: str | Path | None = None,
    progress: bool | Progress = True,
    **options: Any,
) -> Run:
    """Measure latency, power and energy of a model or any callable.

    Args:
        model: A module, any callable, or the name of a built-in workload.
        inputs: A tuple of positional arguments, a mapping of keyword arguments, or a single
            argument. Use real data or random numbers: zeros draw less power.
        device: "auto", "cuda:N", a UUID, "cpu" or "sim:NAME"; or a ``torch.device``.
        mode: "eager", "graph" or "compile".
        dtype: Data type to cast to first, by its name or torch's; None keeps the model's.
        name: Name of the workload.
        target_ci: Requested relative half-width of the energy's 95 % interval.
        save_to: Folder or ".zip" file for the Run; None keeps it in memory (``run.save`` writes it later).
        progress: Whether lines on stderr report the device and each phase; ``JOULETRACE_PROGRESS=0`` prints none.
        **options: Further options of ``jouletrace profile`` (``max_time``, ``warmup``, ``seed``, ...), or
            fields of ``profiler.settings.ProfileSettings``; times have both names (``max_time_s``).

    Returns:
        The Run, with its figures.

    Raises:
        BadInputError: If there is no such option (the nearest are named), a value is invalid, or
            the model doesn't take the inputs.
        NotPossibleError: If a library or device is missing.
    """
    given = {"detail": AUTO, **named(ProfileSettings, options, "profile")}
    settings = ProfileSettings(device=device, mode=mode, dtype=dtype, target_ci=target_ci, **given)
    if isinstance(model, str) and (name is not None or not isinstance(inputs, tuple) or inputs):
        raise BadInputError(f"profile({model!r}): a built-in workload has its own inputs and name")
    workload = model if isinstance(model, str) else ObjectWorkload(model, inputs, name)
    target = check_free(save_to, SAVE_LATER).absolute() if save_to is not None else None
    packed = target is not None and target.suffix.lower() == ".zip"
    label = workload if isinstance(workload, str) else workload.name
    command = f"jouletrace.profile({label})"
    folder = None if packed else target
    with reported(progress) as receiver:
        run = profile_workload(workload, settings, folder=folder, command=command, progress=receiver)
    if packed and target is not None:
        keep(run, target)
    return run
