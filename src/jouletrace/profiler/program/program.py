"""Records power around a program that runs in a process of its own, and says where its energy went.

Before the program starts, only what opens devices is imported, the rest while it runs. The recorder starts beside it,
too, unless readings would be lost.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from jouletrace import higher
from jouletrace.devices import open_devices
from jouletrace.devices.base import Device, others
from jouletrace.devices.host import beside
from jouletrace.errors import BadInputError, BrokenOffError, JouletraceError, RecorderDiedError
from jouletrace.profiler.program.launcher import Launcher
from jouletrace.run.channels import POWER
from jouletrace.run.files import shown
from jouletrace.run.places import begin, written
from jouletrace.tracer.launching import Duty, environment, obstacle
from jouletrace.words.text import printable

if TYPE_CHECKING:
    from jouletrace.profiler.program.live import Live
    from jouletrace.recording.session import Session
    from jouletrace.run import Run
    from jouletrace.run.forms import WorkloadFacts

OTHERS_S = 2.0
"""Time between two looks for other processes on the GPUs."""

LATE_S = 1.0
"""Readings that a driver keeps for so long aren't lost while the recorder starts beside the program."""

_FIGURES = "jouletrace.analysis.parts", "jouletrace.attribution.attribute", higher.PRINTED
"""Figures of a program and their print import these, which takes a second: while it runs, from the first look on."""

HOST = Path(__file__).parents[1] / "host"
"""Folder whose ``sitecustomize`` keeps the ranges of a Python without a GPU."""

ROWS = "rows-"
"""Beginning of the name of the tracer's folder; the start of the program follows, ns since the Unix epoch."""


def run_program(
    launcher: Launcher,
    *,
    folder: Path,
    device: Sequence[str] = ("visible",),
    operators: bool = True,
    duty: Duty | None = None,
    live: bool = False,
) -> Run:
    """Run a program and say where its energy went.

    Args:
        launcher: Starts the program.
        folder: Folder of the Run.
        device: As for ``--device``.
        operators: Whether operators and modules are marked.
        duty: Which part of the program is traced; None for that of ``Duty``.
        live: Whether lines about the running program go to stderr.

    Returns:
        The analysed Run.

    Raises:
        BadInputError, NotPossibleError: If the devices can't be opened, or the program can't be started.
        RecorderDiedError, BrokenOffError: If recording failed; the program has ended by itself, and the folder holds
            what was recorded.
    """
    devices = open_devices(device, real_time=True)
    try:
        clock, there = devices[0].clock, others(devices)
        _say_first(devices)
        id = begin(folder, "program", [opened.info for opened in devices])
        with ExitStack() as stack:

            def begun() -> Session:
                from jouletrace.recording.session import Session, command_line

                program = launcher.program
                about: WorkloadFacts = {"name": program.name, "arguments": len(program.arguments)}
                typed = command_line(program.left_out)
                session = Session("program", devices, folder=folder, workload=about, id=id, command=typed)
                return stack.enter_context(session)

            early = None if _kept(devices) and not beside(devices) else begun()
            rows = stack.enter_context(_place_of_rows(folder, clock.time_ns()))
            host = HOST if all(opened.info.kind == "cpu" for opened in devices) else None
            launcher.start(clock, environment(rows, operators=operators, duty=duty or Duty(), host=host))
            stack.callback(launcher.wait)  # before what it writes into is removed
            try:
                session = early or begun()
            except BadInputError as error:
                raise BrokenOffError(str(error)) from None
            from jouletrace.profiler.program.live import Live
            from jouletrace.profiler.program.recorded import describe, finish

            session.state_commit(launcher.program.context)
            describe(session, there)
            lines = Live(session, rows) if live else None
            due = time.monotonic() + OTHERS_S

            def look() -> None:
                nonlocal due
                _look(session, lines)
                if time.monotonic() >= due:
                    session.warn_of_others(others(devices, used_here=True))
                    due = time.monotonic() + OTHERS_S

            launcher.wait(look)
            session.add_span("phase", "program", launcher.begin_ns, launcher.end_ns, "program")
            if lines is not None:
                lines.close()
            _blocking()
            finish(session, rows, launcher)
    finally:
        for opened in devices:
            opened.close()
    return session.run


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


def _kept(devices: Sequence[Device]) -> bool:
    """True if each power record that is there goes back for ``LATE_S``, and so will when the recorder reads it."""
    since_ns = time.time_ns() - int(LATE_S * 1e9)
    sources = [source for device in devices for source in device.sources()]
    return all(
        any(samples.channel == POWER and samples.time_ns[0] <= since_ns for samples in source.poll())
        for source in sources
        if any(channel.name == POWER for channel in source.channels)
    )


@contextmanager
def _place_of_rows(folder: Path, begin_ns: int) -> Iterator[Path]:
    """A folder of this user alone, for what the tracer writes; what is in it stays if the block fails."""
    with written(folder, BadInputError):
        rows_folder = Path(tempfile.mkdtemp(prefix=f"{ROWS}{begin_ns}-", dir=folder))
    try:
        yield rows_folder
    except BaseException:
        if any(rows_folder.glob("*")):
            _say(f"what the tracer wrote is in {shown(rows_folder)}")
        else:
            shutil.rmtree(rows_folder, ignore_errors=True)
        raise
    shutil.rmtree(rows_folder, ignore_errors=True)


def _look(session: Session, live: Live | None) -> None:
    """Say so once if the recorder has died, and the program goes on; print lines that are due; import once."""
    if live is not None:
        with suppress(OSError, JouletraceError):  # lines matter less than the rest
            live.look()
    for module in _FIGURES:
        import_module(module)
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
