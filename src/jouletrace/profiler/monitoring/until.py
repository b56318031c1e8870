"""The end of a recording: that of a command, of another process, or a time."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from jouletrace.errors import BadInputError, NotPossibleError, TerminatedError
from jouletrace.profiler.monitoring.work_counter_output import OutputCounter
from jouletrace.recording.session import Session

Tick = Callable[[], None]

_MOST_PID = 2**31 - 1


def until(session: Session, end_ns: int | None, interval_s: float, tick: Tick) -> None:
    """Tick until a time, or without end."""
    while (left := interval_s if end_ns is None else (end_ns - session.clock.time_ns()) / 1e9) > 0:
        session.clock.sleep(min(interval_s, left))
        tick()


def with_command(
    session: Session, command: Sequence[str], interval_s: float, tick: Tick, output: OutputCounter | None = None
) -> int:
    """Run a command and tick until it ends; returns its exit code by the convention of shells.

    Args:
        session: The recording.
        command: Program and arguments.
        interval_s: Seconds between ticks.
        tick: Called at each interval.
        output: Reads the command's output, and passes it on.

    Raises:
        BadInputError: If it can't be started.
    """
    pipe = subprocess.PIPE if output is not None else None
    try:
        process = subprocess.Popen(list(command), stdout=pipe, stderr=pipe)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInputError(f"cannot run {command[0]!r}: {reason}") from None
    if output is not None and process.stdout is not None and process.stderr is not None:
        for stream, passed_to in ((process.stdout, 1), (process.stderr, 2)):
            # The reader owns this end of the pipe and closes it.
            output.watch(os.dup(stream.fileno()), passed_to)
            stream.close()
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


class Followed:
    """A process started elsewhere, held by a handle, so that a later process with the same id isn't mistaken for it.

    Raises:
        BadInputError: If there is no such process, or it is this one.
        NotPossibleError: On Windows.
    """

    def __init__(self, pid: int) -> None:
        if sys.platform == "win32":
            raise NotPossibleError("--pid follows a process on Linux and macOS only")
        self.pid = pid
        self._handle: int | None = None
        if not 0 < pid <= _MOST_PID:
            raise BadInputError(f"--pid {pid}: there is no such process")
        if pid == os.getpid():
            raise BadInputError(f"--pid {pid}: this is the monitor itself, which would wait for its own end")
        try:
            if hasattr(os, "pidfd_open"):
                self._handle = os.pidfd_open(pid)
            else:
                os.kill(pid, 0)
        except ProcessLookupError:
            raise BadInputError(f"--pid {pid}: there is no such process") from None
        except OSError:
            if not _there(pid):  # a kernel without the call, or another user's process
                raise BadInputError(f"--pid {pid}: there is no such process") from None
        if self.ended(0.0):
            self.close()
            raise BadInputError(f"--pid {pid}: that process has ended")
        self.name = _name(pid)

    def ended(self, wait_s: float, sleep: Callable[[float], None] | None = None) -> bool:
        """Whether it has ended, or does within ``wait_s``."""
        if self._handle is not None:
            return bool(select.select([self._handle], [], [], wait_s)[0])
        if sleep is not None and wait_s > 0:
            sleep(wait_s)
        return not _there(self.pid)

    def close(self) -> None:
        """Release the handle."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def with_process(session: Session, process: Followed, end_ns: int | None, interval_s: float, tick: Tick) -> None:
    """Tick until a process ends, or until a time if that is earlier."""
    start = session.clock.time_ns()
    try:
        while (left := interval_s if end_ns is None else (end_ns - session.clock.time_ns()) / 1e9) > 0:
            if process.ended(min(interval_s, left), session.clock.sleep):
                break
            tick()
    finally:
        session.add_span("range", f"{process.name} ({process.pid})", start, session.clock.time_ns(), "process")


def _there(pid: int) -> bool:
    """Whether a process runs; a zombie doesn't."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return True


def _name(pid: int) -> str:
    try:  # without its arguments, which may be secret
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip() or "process"
    except OSError:
        return "process"
