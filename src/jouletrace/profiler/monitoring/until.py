"""The end of a recording: that of a command, or a time."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

from jouletrace.errors import BadInputError, TerminatedError
from jouletrace.recording.session import Session

Tick = Callable[[], None]


def until(session: Session, end_ns: int | None, interval_s: float, tick: Tick) -> None:
    """Tick until a time, or without end."""
    while (left := interval_s if end_ns is None else (end_ns - session.clock.time_ns()) / 1e9) > 0:
        session.clock.sleep(min(interval_s, left))
        tick()


def with_command(session: Session, command: Sequence[str], interval_s: float, tick: Tick) -> int:
    """Run a command and tick until it ends; returns its exit code by the convention of shells.

    Args:
        session: The recording.
        command: Program and arguments.
        interval_s: Seconds between ticks.
        tick: Called at each interval.

    Raises:
        BadInputError: If it can't be started.
    """
    try:
        process = subprocess.Popen(list(command))
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
        process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        session.add_span("range", " ".join(command), start, session.clock.time_ns(), "command")
    if process.returncode != 0:
        session.run.warn("command_failed", f"{command[0]} ended with {_how(process.returncode)}")
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
