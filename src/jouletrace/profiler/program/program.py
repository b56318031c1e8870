"""Records power around a program that runs in a process of its own, and says where its energy went."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from jouletrace.devices import open_devices
from jouletrace.devices.base import Device
from jouletrace.devices.rapl import beside_gpus
from jouletrace.errors import JouletraceError, RecorderDiedError
from jouletrace.profiler import calibrations
from jouletrace.profiler.measure import warn_of_idle
from jouletrace.profiler.program.command import Command
from jouletrace.profiler.program.gpus import gpus_of, unrecorded
from jouletrace.profiler.program.left import ROWS
from jouletrace.profiler.program.live import Live
from jouletrace.profiler.program.recorded import analyse_program, recorded, warn_of_losses
from jouletrace.profiler.program.signals import Signals
from jouletrace.recording.session import Session
from jouletrace.report.document import printable
from jouletrace.run import Run
from jouletrace.run.files import shown
from jouletrace.run.forms import WorkloadFacts
from jouletrace.tracer.launching import Duty, environment, obstacle, ranges_obstacle
from jouletrace.tracer.process_trace import ProcessTrace
from jouletrace.tracer.reader import read

LOOK_S = 0.25
"""Time between looks while the program runs."""

_ASKED = {128 + number: number.name for number in (signal.SIGINT, signal.SIGTERM)}
"""Exit codes of programs that a signal asked to end: its name."""


def run_program(
    program: Command,
    signals: Signals,
    *,
    device: Sequence[str] = ("visible",),
    operators: bool = True,
    duty: Duty | None = None,
    live: bool = False,
    folder: Path | None = None,
    command: str = "",
) -> tuple[Run, int]:
    """Run a program and say where its energy went.

    Args:
        program: The program, checked.
        signals: The context that has the signals of this process from the start of the program on.
        device: As for ``--device``.
        operators: Whether operators and modules are marked.
        duty: Which part of the program is traced; None for that of ``Duty``.
        live: Whether lines about the running program go to stderr.
        folder: Folder of the Run; None keeps it in memory.
        command: For ``Run.command``.

    Returns:
        The analysed Run, and the exit code of the program: 128 more than the number of a signal that killed it.

    Raises:
        BadInputError, NotPossibleError: If the devices can't be opened, or the program can't be started.
        RecorderDiedError: If the recorder failed; the folder holds what was recorded.
    """
    devices = _open(device)
    try:
        about: WorkloadFacts = {"name": program.name, "arguments": len(program.arguments)}
        session = Session("program", devices, folder=folder, command=command, workload=about)
        with ExitStack() as stack:
            stack.enter_context(session)
            for opened in devices:
                calibrations.attach(session.run, opened)
                _note_others(session.run, opened)
            warn_of_idle(session.run, devices)
            _say_first(devices)
            session.save_header()
            signals.take()
            begin_ns = session.clock.time_ns()
            rows = stack.enter_context(_place_of_rows(session.folder, begin_ns))
            process = program.start(environment(rows, operators=operators, duty=duty or Duty()))
            signals.follow(process)
            lines = Live(session, rows) if live else None
            code = _wait(process, session, lines)
            session.add_span("phase", "program", begin_ns, session.clock.time_ns(), "program")
            signals.end()
            if lines is not None:
                lines.close()
            _blocking()
            _finish(session, read(rows), code)
    finally:
        for opened in devices:
            opened.close()
    return session.run, int(session.run.workload["exit_code"])


def _open(names: Sequence[str]) -> list[Device]:
    """Open devices, and the CPUs beside GPUs."""
    opened = open_devices(names, real_time=True)
    real = any(device.info.kind != "cpu" and not device.info.simulated for device in opened)
    return [*opened, *(beside_gpus() if real and all(device.info.kind != "cpu" for device in opened) else [])]


def _say_first(devices: Sequence[Device]) -> None:
    """Say on stderr, before the program takes its time, what will be missing."""
    without = [str(device.info.details["no_gpu"]) for device in devices if "no_gpu" in device.info.details]
    if without:
        _say(": ".join(filter(None, ["no GPU can be measured here", without[0]])))
    elif any(device.info.kind != "cpu" and not device.info.simulated for device in devices) and obstacle():
        _say(f"no kernels will be traced: {obstacle()}")


def _say(text: str) -> None:
    """Print a line of ours on stderr."""
    with suppress(OSError, ValueError):  # a closed stderr ends no program
        print(printable(f"jouletrace: {text}"), file=sys.stderr, flush=True)


def _note_others(run: Run, device: Device) -> None:
    """Say who uses a device before the program does."""
    others = ", ".join(f"{one.name or 'process'} (pid {one.pid})" for one in device.processes())
    if others:
        text = f"others use the GPU, too: {others}; what they draw is in idle and in the rows that run beside them"
        run.warn("other_processes", text, device.info.id)


@contextmanager
def _place_of_rows(folder: Path | None, begin_ns: int) -> Iterator[Path]:
    """A folder of this user alone, for what the tracer writes; what is in it stays if the block fails."""
    place = Path(tempfile.mkdtemp(prefix=f"{ROWS}{begin_ns}-", dir=folder))
    try:
        yield place
    except BaseException:
        if any(place.glob("*")):
            _say(f"what the tracer wrote is in {shown(place)}")
        else:
            shutil.rmtree(place, ignore_errors=True)
        raise
    shutil.rmtree(place, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], session: Session, live: Live | None) -> int:
    """Wait for the program; returns its exit code, negative for the number of a signal.

    Signals come at the latest with the next look: one that another thread gets doesn't end a call of the main one.
    """
    try:
        ended, events = os.pidfd_open(process.pid), select.poll()
        events.register(ended, select.POLLIN)
    except (AttributeError, OSError):  # not Linux, or an old one
        ended = None
    try:
        while (code := process.poll()) is None:
            _look(session, live)
            if ended is not None:
                events.poll(1000 * LOOK_S)
            else:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_S)
        return code
    finally:
        if ended is not None:
            os.close(ended)


def _look(session: Session, live: Live | None) -> None:
    """Say so once if the recorder has died, and the program goes on; print lines that are due."""
    if live is not None:
        with suppress(OSError, JouletraceError):  # lines matter less than the rest
            live.look()
    try:
        session.recorder.check()
    except RecorderDiedError as error:
        if all(warning.code != "failed" for warning in session.run.warnings):
            session.run.warn("failed", str(error))


def _blocking() -> None:
    """Let our output wait for its reader again, which a program may have switched off for all who share the file."""
    for number in (1, 2):
        with suppress(OSError):
            os.set_blocking(number, True)


def _finish(session: Session, found: Sequence[ProcessTrace], status: int) -> None:
    """End the recording and compute its figures; the status is the exit code, or negative for a signal."""
    run = session.run
    code = run.workload["exit_code"] = status if status >= 0 else 128 - status
    if code in _ASKED:
        run.warn("program_ended", f"the program was ended by {_ASKED[code]}; figures are of what ran until then")
    elif code:
        ended = f"ended with exit code {code}" if status > 0 else f"was killed by {_signal(-status)}"
        run.warn("program_failed", f"the program {ended}; figures are of what ran until then")
    warn_of_losses(run, found)
    _note(run, found, session.devices)
    found = [traced for traced in found if len(traced.work)]
    known = [device.info.id for device in session.devices if device.info.kind != "cpu"] or ["cpu"]
    gpus, waits = gpus_of(found, known)
    for id in unrecorded(found, known):
        run.warn("not_recorded", f"kernels ran on {id}, too, whose power isn't recorded: --device all records it", id)
    if gpus:
        units, activity = recorded(run, gpus, waits)
        session.add_units(units)
        session.add_activity({name: activity[name].combine_chunks() for name in activity.column_names})
    session.finish()
    analyse_program(run)
    session.save()


def _signal(number: int) -> str:
    """The name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:  # one of those for real time
        return f"signal {number}"


def _note(run: Run, found: Sequence[ProcessTrace], devices: Sequence[Device]) -> None:
    """Say what is missing."""
    gpus = [device for device in devices if device.info.kind != "cpu"]
    none = all(not len(traced.work) for traced in found)
    if not gpus and none:
        missing = any("no_gpu" in device.info.details for device in devices)
        here = "there is no GPU here" if missing else "no GPU is recorded"
        run.warn("no_gpu", f"{here}, and no kernels were traced")
    elif none and all(warning.code not in _WHY_NONE for warning in run.warnings):
        run.warn("not_traced", f"kernels: {_why_none(found, gpus)}")
    if gpus and ranges_obstacle():
        run.warn("not_traced", ranges_obstacle())
    for traced in found:
        if traced.segments and _runs(traced.pid):
            run.warn("child_runs", f"{traced.name} (process {traced.pid}) still runs: its later kernels are missing")


def _why_none(found: Sequence[ProcessTrace], gpus: Sequence[Device]) -> str:
    """Why there are no kernels."""
    if any(traced.segments for traced in found):
        return "the program ran none, or ended before one was written: by a signal or _exit within half a second"
    if (why := obstacle()) or not all(device.info.simulated for device in gpus):
        return why or _NONE
    return "none were traced: a program runs none on a simulated GPU"


_WHY_NONE = "not_traced", "records_dropped", "child_lost"
"""Codes of warnings that say why there are no kernels."""

_NONE = "the program ran none, or the tracer couldn't come into it (behind sudo, env -i, ssh or docker run, or setuid)"


def _runs(pid: int) -> bool:
    """True if a process runs; one that has ended and wasn't waited for doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False
