"""Locating and running other vendors' programs: with a time limit, their output kept, their failures in one line."""

from __future__ import annotations

import glob
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jouletrace.errors import BadInputError, NotPossibleError, TerminatedError, TimedOutError

TICK_S = 0.25
PATIENCE_S = 10.0
"""Grace period in which a program may end by itself after a request."""

_TAIL_BYTES = 64 * 1024
_COMPLAINT = re.compile(r"error|fail|fatal|cannot|can't|not |unable|denied|invalid|unrecognized", re.IGNORECASE)


@dataclass(frozen=True)
class Tool:
    """A program that may or may not be installed.

    Attributes:
        name: Its command.
        places: Places of installation besides the PATH, as patterns; the last match, which is the newest, is used.
        how_to_get: Instructions for installation.
    """

    name: str
    places: tuple[str, ...]
    how_to_get: str

    def find(self) -> str:
        """Path of the program.

        Raises:
            NotPossibleError: If it isn't installed; the message states how to get it.
        """
        found = shutil.which(self.name)
        if found is not None:
            return found
        for pattern in self.places:
            there = [path for path in sorted(glob.glob(pattern)) if os.access(path, os.X_OK)]
            if there:
                return there[-1]
        raise NotPossibleError(f"{self.name} is not installed here (not on the PATH): {self.how_to_get}")


@dataclass(frozen=True)
class Ended:
    """How a program ended.

    Attributes:
        code: Its exit code; negative for a signal.
        output: The end of its output, of both streams.
        start_ns, end_ns: When it ran, since the Unix epoch.
    """

    code: int
    output: str
    start_ns: int
    end_ns: int

    def last_complaint(self) -> str:
        """The last line of its output that reports a failure, else the last line; "" without output."""
        # The text is printed to a terminal, so control characters are removed.
        printable = ("".join(c if c.isprintable() else " " for c in line) for line in self.output.splitlines())
        lines = [line.strip() for line in printable if line.strip()]
        telling = [line for line in lines if _COMPLAINT.search(line)]
        return (telling or lines or [""])[-1][:300]

    def how(self) -> str:
        """The exit code or signal in words."""
        return f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"


def run(command: Sequence[str], log: Path, limit_s: float, check: Callable[[], None] = lambda: None) -> Ended:
    """Run a program to its end, or for ``limit_s`` seconds; all of its child processes end with it.

    The output of both streams goes to the log. ``check`` is called a few times per second; an exception in it ends the
    program.

    Raises:
        BadInputError: If it can't be started.
        TimedOutError: If it didn't end in time.
    """
    start_ns = time.time_ns()
    with log.open("wb") as sink:
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that a signal also reaches its child processes
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise BadInputError(f"cannot run {command[0]!r}: {reason}") from None
        try:
            _wait(process, limit_s, check)
        except subprocess.TimeoutExpired:
            said = Ended(0, _tail(log), 0, 0).last_complaint()
            words = [word for word in command if word != "env" and "=" not in word]
            raise TimedOutError(
                f"{Path(words[0]).name} did not end within {limit_s:g} s and was ended (--time-limit extends that)"
                + (f"; its last output: {said}" if said else "")
            ) from None
        finally:
            _end(process)
    return Ended(process.returncode, _tail(log), start_ns, time.time_ns())


def _wait(process: subprocess.Popen[bytes], limit_s: float, check: Callable[[], None]) -> None:
    deadline = time.monotonic() + limit_s
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise subprocess.TimeoutExpired(process.args, limit_s)
        try:
            process.wait(timeout=min(TICK_S, left))
            return
        except subprocess.TimeoutExpired:
            check()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program that still runs, and the processes that it has left behind."""
    if process.poll() is None:
        for how in (signal.SIGINT, signal.SIGTERM):
            _signal_group(process.pid, how)
            try:
                process.wait(PATIENCE_S if how == signal.SIGINT else 1.0)
                break
            except subprocess.TimeoutExpired:
                continue
            except TerminatedError:
                break
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace")
