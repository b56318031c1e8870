"""``monitor``: record devices while another program runs, and report their energy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from jouletrace import analysis
from jouletrace.devices.base import Device, others
from jouletrace.errors import BadInputError
from jouletrace.processes.termination import interrupts_taken
from jouletrace.profiler.measure import warn_of_idle
from jouletrace.profiler.monitoring.watch import Display, Observer, Watch
from jouletrace.profiler.monitoring.work_counter import WorkCounter, channels
from jouletrace.profiler.program.launcher import Launcher
from jouletrace.recording.session import Session
from jouletrace.run import Run
from jouletrace.run.forms import Settings, WorkloadFacts
from jouletrace.run.masking import masked_arguments


def monitor(
    devices: Sequence[Device],
    *,
    interval_s: float = 1.0,
    duration_s: float | None = None,
    launcher: Launcher | None = None,
    stdout: int | None = None,
    counter: WorkCounter | None = None,
    folder: Path | None = None,
    typed: str = "",
    displays: Sequence[Display] = (),
    observers: Sequence[Observer] = (),
    kept_s: float = 3600.0,
) -> Run:
    """Record until the program ends or, without one, the duration is over, or Ctrl-C or SIGTERM comes.

    The record has the sensor's update rate; every ``interval_s`` seconds the displays get the latest readings and the
    work that ``counter`` has counted, with what ``observers`` know of the devices. The output of the program goes to
    the descriptor ``stdout``, if given; ``typed`` becomes ``Run.command``.
    Of what is older than ``kept_s`` means of seconds are kept, with their extremes.

    Raises:
        BadInputError: If the program can't be started, there is nothing to count, or nothing would end the recording
            of a simulated GPU.
        RecorderDiedError: If the recorder failed; a program has ended by itself.
    """
    _refuse(devices, duration_s, launcher, counter)
    settings: Settings = {
        "interval_s": interval_s,
        "duration_s": duration_s,
        "per": counter.source if counter is not None else None,
    }
    name = counter.unit if counter is not None else "monitor"
    if launcher is not None:
        name = " ".join(masked_arguments(launcher.program.stated))
    workload: WorkloadFacts = {"name": name}
    if counter is not None:
        workload["work"] = counter.unit
    session = Session(
        "monitor", devices, folder=folder, command=typed, workload=workload, settings=settings, kept_s=kept_s
    )
    try:
        with session:
            if counter is not None:
                session.run.channels += channels(devices[0].info.id, counter)
                counter.start(session.clock)
            if launcher is not None:
                warn_of_idle(session.run, devices)
                session.warn_of_others(others(devices))
            used = _used(devices)
            watch = Watch(session, interval_s=interval_s, displays=displays, counter=counter, observers=observers)
            session.save_header()
            start = session.clock.time_ns()
            end = start + int(duration_s * 1e9) if duration_s is not None else None
            if launcher is not None:
                launcher.start(session.clock, stdout=stdout)
                session.state_commit(launcher.program.context)
                launcher.wait(watch.tick, interval_s)
                launcher.warn(session.run)
                session.warn_of_others(others(devices))
                session.add_span("range", name, launcher.begin_ns, launcher.end_ns, "command")
            else:
                with interrupts_taken():  # the normal end of a monitor
                    until(session, end, interval_s, watch.tick)
            if counter is not None:
                _finish_counting(session, watch, counter)
            watch.finish()
            if launcher is None:  # within a program's time anything may have come and gone
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
    return run


def _refuse(
    devices: Sequence[Device], duration_s: float | None, launcher: Launcher | None, counter: WorkCounter | None
) -> None:
    """Refuse options that exclude each other, before anything is recorded."""
    real = "a command" if launcher is not None else "a counter" if counter is not None else ""
    if devices[0].clock.virtual and (real or duration_s is None):
        why = f"{real} takes real time" if real else "its time is virtual: give a duration"
        raise BadInputError(f"{devices[0].spec}: {why}, or write realtime=1")


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
    """Tick until a time, or without end; how long a tick takes doesn't delay the next one."""
    now = due = session.clock.time_ns()
    while end_ns is None or now < end_ns:
        due = max(due + int(interval_s * 1e9), now)
        session.clock.sleep(((due if end_ns is None else min(due, end_ns)) - now) / 1e9)
        tick()
        now = session.clock.time_ns()
