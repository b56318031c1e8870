"""``monitor``: record devices while another program runs, and report their energy."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from jouletrace import analysis
from jouletrace.devices.base import Device
from jouletrace.errors import BadInputError, TerminatedError
from jouletrace.processes.children import asked_to_end
from jouletrace.processes.termination import interrupts_taken, taken
from jouletrace.profiler.measure import warn_of_idle
from jouletrace.profiler.monitoring.watch import Display, Watch
from jouletrace.profiler.monitoring.work_counter import WorkCounter, channels
from jouletrace.recording.session import Session
from jouletrace.run import Run
from jouletrace.run.forms import Settings, WorkloadFacts
from jouletrace.run.masking import masked_arguments


def monitor(
    devices: Sequence[Device],
    *,
    interval_s: float = 1.0,
    duration_s: float | None = None,
    command: Sequence[str] | None = None,
    stdout: int | None = None,
    counter: WorkCounter | None = None,
    folder: Path | None = None,
    typed: str = "",
    displays: Sequence[Display] = (),
) -> tuple[Run, int]:
    """Record until the command ends, the duration is over, or Ctrl-C (or SIGTERM, which is passed on to the command).

    The record has the sensor's update rate; every ``interval_s`` seconds the displays get the latest readings and the
    work that ``counter`` has counted. ``duration_s`` limits the recording, but stops no command, whose stdout goes to
    the descriptor ``stdout``, if given. The exit code of the command is returned too, 0 without one; ``typed`` becomes
    ``Run.command``.

    Raises:
        BadInputError: If the command can't be started, there is nothing to count, or nothing would end the recording
            of a simulated GPU.
        RecorderDiedError: If the recorder failed.
    """
    _refuse(devices, duration_s, command, counter)
    settings: Settings = {
        "interval_s": interval_s,
        "duration_s": duration_s,
        "per": counter.source if counter is not None else None,
    }
    name = " ".join(masked_arguments(command)) if command else counter.unit if counter is not None else "monitor"
    workload: WorkloadFacts = {"name": name}
    if counter is not None:
        workload["work"] = counter.unit
    session = Session("monitor", devices, folder=folder, command=typed, workload=workload, settings=settings)
    code = 0
    try:
        with session:
            if counter is not None:
                session.run.channels += channels(devices[0].info.id, counter)
                counter.start(session.clock)
            if command:
                warn_of_idle(session.run, devices)
            session.save_header()
            used = _used(devices)
            watch = Watch(session, interval_s=interval_s, displays=displays, counter=counter)
            start = session.clock.time_ns()
            end = start + int(duration_s * 1e9) if duration_s is not None else None
            with interrupts_taken():  # the normal end of a monitor
                if command:
                    code = with_command(session, command, interval_s, watch.tick, stdout)
                else:
                    until(session, end, interval_s, watch.tick)
            if counter is not None:
                _finish_counting(session, watch, counter)
            if command is None:  # within a command's time anything may have come and gone
                for device, before, after in zip(devices, used, _used(devices), strict=True):
                    if before == after and device.info.kind == "gpu":
                        device.info.details["processes"] = before
            session.add_span("phase", "monitor", start, session.clock.time_ns(), "monitor")
            run = session.finish()
    finally:
        if counter is not None:
            counter.stop()
    analysis.analyse_recorded(run)
    session.save()
    return run, code


def _refuse(
    devices: Sequence[Device],
    duration_s: float | None,
    command: Sequence[str] | None,
    counter: WorkCounter | None,
) -> None:
    """Refuse options that exclude each other, before anything is recorded."""
    real = "a command" if command else "a counter" if counter is not None else ""
    if devices[0].clock.virtual and (real or duration_s is None):
        why = f"{real} takes real time" if real else "its time is virtual: give a duration"
        raise BadInputError(f"{devices[0].spec}: {why}, or write realtime=1")
    if command and shutil.which(command[0]) is None:
        why = "it is not executable" if Path(command[0]).exists() else "there is no such program"
        raise BadInputError(f"cannot run {command[0]!r}: {why}")


def _used(devices: Sequence[Device]) -> list[bool]:
    """True for each device that a process uses, as far as the driver lists them: a CUDA context raises idle power."""
    return [bool(device.processes()) for device in devices]


def _finish_counting(session: Session, watch: Watch, counter: WorkCounter) -> None:
    with interrupts_taken():  # a second Ctrl-C skips the last reading
        watch.store(counter.stop())
    for code, message in counter.warnings():
        session.run.warn(code, message, counter.source)


Tick = Callable[[], None]


def until(session: Session, end_ns: int | None, interval_s: float, tick: Tick) -> None:
    """Tick until a time, or without end."""
    while (left := interval_s if end_ns is None else (end_ns - session.clock.time_ns()) / 1e9) > 0:
        session.clock.sleep(min(interval_s, left))
        tick()


def with_command(
    session: Session, command: Sequence[str], interval_s: float, tick: Tick, stdout: int | None = None
) -> int:
    """Run a command and tick until it ends; returns its exit code by the convention of shells.

    Raises:
        BadInputError: If it can't be started.
    """
    try:
        process = subprocess.Popen(list(command), stdout=stdout)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInputError(f"cannot run {command[0]!r}: {reason}") from None
    start = session.clock.time_ns()
    try:
        while True:
            try:
                process.wait(timeout=interval_s)
                break
            except subprocess.TimeoutExpired:
                tick()
    except KeyboardInterrupt as error:
        # A terminal sends Ctrl-C to the command too; waiting includes the command's end in the record.
        if isinstance(error, TerminatedError):
            process.terminate()
        taken()
        process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        session.add_span("range", " ".join(command), start, session.clock.time_ns(), "command")
    if asked := asked_to_end(process.returncode):
        session.run.warn("program_ended", asked)
    elif process.returncode != 0:
        how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
        session.run.warn("command_failed", f"{command[0]} ended with {how}")
    return process.returncode if process.returncode >= 0 else 128 - process.returncode
