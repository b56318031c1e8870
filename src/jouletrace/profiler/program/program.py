"""Records power around a program that runs in this process or as a command, and says where its energy went."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from jouletrace.devices import open_devices
from jouletrace.devices.base import Device
from jouletrace.devices.cuda_order import cuda_uuids_apart
from jouletrace.devices.rapl import beside_gpus
from jouletrace.errors import RecorderDiedError
from jouletrace.profiler import calibrations
from jouletrace.profiler.measure import warn_of_idle
from jouletrace.profiler.program.children import Children, announce, hand_over
from jouletrace.profiler.program.command import Command
from jouletrace.profiler.program.duty import Duty
from jouletrace.profiler.program.gpus import gpus_of, unrecorded
from jouletrace.profiler.program.late_signals import first_signal_noted
from jouletrace.profiler.program.live import Live
from jouletrace.profiler.program.parking import park_threads
from jouletrace.profiler.program.recorded import analyse_program, recorded
from jouletrace.profiler.program.script import HardExit, Script
from jouletrace.profiler.program.starting import Starting
from jouletrace.profiler.program.streams import Streams
from jouletrace.profiler.program.tracer import Tracer
from jouletrace.recording.session import Session
from jouletrace.run import Run
from jouletrace.run.forms import WorkloadFacts
from jouletrace.tracer.process_trace import ProcessTrace
from jouletrace.without_pandas import hide_pandas

_SIGNALLED = {
    128 + number: (f"was ended by {number.name}", "program_ended") for number in (signal.SIGINT, signal.SIGTERM)
}
"""Exit codes of programs that a signal asked to end: how they ended, and the code of the warning."""


def run_program(
    program: Script | Command,
    *,
    device: Sequence[str] = ("visible",),
    operators: bool = True,
    duty: Duty | None = None,
    live: bool = False,
    folder: Path | None = None,
    command: str = "",
    ends: bool = False,
    then: Callable[[Run, int], None] = lambda run, code: None,
) -> tuple[Run, int]:
    """Run a program and say where its energy went.

    Args:
        program: The program, checked.
        device: As for ``--device``.
        operators: Whether operators and modules are sampled.
        duty: Which part of the program is traced; None for that of ``Duty``.
        live: Whether lines about the running program go to stderr.
        folder: Folder of the Run; None keeps it in memory.
        command: For ``Run.command``.
        ends: As for ``Script.run``.
        then: Receives what is returned, also where the program ends the process by ``os._exit`` or by a signal.

    Returns:
        The analysed Run, and the exit code of the program. A process that the program forks ends here.

    Raises:
        BadInputError, NotPossibleError: If the devices can't be opened.
        RecorderDiedError: If the recorder failed; the folder holds what was recorded.
    """
    devices = _open(device)
    duty = duty or Duty()
    try:
        about: WorkloadFacts = {"name": program.name, "arguments": len(program.arguments)}
        session = Session("program", devices, folder=folder, command=command, workload=about)
        owner, finished = os.getpid(), list[Run]()
        finishing, streams = threading.Lock(), Streams()
        with session, Children(operators, duty) as children:
            for opened in devices:
                calibrations.attach(session.run, opened)
                _note_others(session.run, opened)
            warn_of_idle(session.run, devices)
            lines = Live(session) if live else None
            starting = Starting(devices)

            tracer = Tracer(
                program.name,
                operators=operators,
                duty=duty,
                begun=lambda: announce() if os.getpid() != owner else None,
                look=lambda tracer: _look(session, lines, starting, tracer),
            )
            begin_ns = session.clock.time_ns()

            def finish(code: int) -> None:
                if os.getpid() != owner:
                    hand_over(tracer)
                    return
                with finishing, first_signal_noted():
                    if not finished:
                        if ends:  # the program has ended, and with it what could need pandas, but for its threads
                            park_threads()
                            hide_pandas(threading.get_ident())
                        streams.restore()
                        if lines is not None:
                            lines.close()
                        finished.append(_finish(session, tracer, children, begin_ns, code))
                        then(finished[0], code)

            with HardExit(finish):
                code = program.run(ends)
            if os.getpid() != owner:  # a fork that came to the end of the program
                hand_over(tracer)
                streams.flush()
                os._exit(code)
            finish(code)
    finally:
        for opened in devices:
            opened.close()
    return finished[0], code


def _open(names: Sequence[str]) -> list[Device]:
    """Open devices, and the CPUs beside GPUs.

    CUDA isn't started in this process: one that has can't fork others that use it.
    """
    apart = (cuda_uuids_apart() or ["visible"]) if "visible" in names else []
    opened = open_devices([one for name in names for one in (apart if name == "visible" else [name])], real_time=True)
    real = any(device.info.kind != "cpu" and not device.info.simulated for device in opened)
    return [*opened, *(beside_gpus() if real and all(device.info.kind != "cpu" for device in opened) else [])]


def _note_others(run: Run, device: Device) -> None:
    """Say who uses a device before the program does."""
    others = ", ".join(f"{one.name or 'process'} (pid {one.pid})" for one in device.processes())
    if others:
        text = f"others use the GPU, too: {others}; what they draw is in idle and in the rows that run beside them"
        run.warn("other_processes", text, device.info.id)


def _look(session: Session, live: Live | None, starting: Starting, tracer: Tracer) -> None:
    """Say so once if the recorder has died, and the program goes on; print lines that are due."""
    starting.look()
    if live is not None:
        live.look(tracer)
    try:
        session.recorder.check()
    except RecorderDiedError as error:
        if all(warning.code != "failed" for warning in session.run.warnings):
            session.run.warn("failed", str(error))


def _finish(session: Session, tracer: Tracer, children: Children, begin_ns: int, code: int) -> Run:
    """End the recording and compute its figures."""
    own = tracer.end()
    found, lost = children.take()
    found = [traced for traced in [*([own] if own is not None else []), *found] if len(traced.work)]
    session.add_span("phase", "program", begin_ns, session.clock.time_ns(), "program")
    run = session.run
    run.workload["exit_code"] = code
    if code:
        ended, warning = _SIGNALLED.get(code, (f"ended with exit code {code}", "program_failed"))
        run.warn(warning, f"the program {ended}; figures are of what ran until then")
    for text in lost:
        run.warn("child_lost", text)
    _note(run, tracer, found, all(device.info.kind == "cpu" for device in session.devices))
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
    return run


def _note(run: Run, tracer: Tracer, found: Sequence[ProcessTrace], no_gpu: bool) -> None:
    """Say what is missing."""
    if no_gpu and not found:
        run.warn("no_gpu", "there is no GPU here, so that no kernels were traced")
    elif tracer.problem or not found:
        run.warn("not_traced", f"kernels: {tracer.problem or 'the program ran none, or no process handed any over'}")
    for code, text in dict.fromkeys(note for traced in found for note in traced.notes):
        run.warn(code, text)
