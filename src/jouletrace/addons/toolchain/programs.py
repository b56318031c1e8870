"""Finding and running programs of other makers: with a time limit, their output kept, their failures in one line."""

from __future__ import annotations

import glob
import os
import re
import shlex
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
"""Given to a program to end by itself, once it was asked to."""

_TAIL_BYTES = 64 * 1024
_COMPLAINT = re.compile(r"error|fail|fatal|cannot|can't|not |unable|denied|invalid|unrecognized", re.IGNORECASE)


@dataclass(frozen=True)
class Program:
    """A program that may or may not be installed.

    Attributes:
        name: Its command.
        places: Where it is installed besides the PATH, as patterns; the last match wins, which is the newest.
        how_to_get: For those who don't have it.
    """

    name: str
    places: tuple[str, ...]
    how_to_get: str

    def find(self) -> str:
        """Where it is.

        Raises:
            NotPossibleError: If it isn't installed; says how to get it.
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
        output: The end of what it printed, on both streams.
        start_ns, end_ns: When it ran, since the Unix epoch.
    """

    code: int
    output: str
    start_ns: int
    end_ns: int

    def last_complaint(self) -> str:
        """The last line of its output that tells of a failure, else the last of all; "" if it was silent."""
        # Whatever it printed goes to a terminal from here: without what would move the cursor there.
        printable = ("".join(c if c.isprintable() else " " for c in line) for line in self.output.splitlines())
        lines = [line.strip() for line in printable if line.strip()]
        telling = [line for line in lines if _COMPLAINT.search(line)]
        return (telling or lines or [""])[-1][:300]

    def how(self) -> str:
        """The exit code or signal in words."""
        return f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"


def printed(command: Sequence[str]) -> str:
    """A command as it can be pasted into a shell."""
    return shlex.join(command)


def run(
    command: Sequence[str], log: Path, limit_s: float, check: Callable[[], None] | None = None, cwd: Path | None = None
) -> Ended:
    """Run a program to its end, or to its time limit; all that it starts ends with it.

    Args:
        command: Program and arguments.
        log: Where its output goes, both streams.
        limit_s: Seconds after which it is ended.
        check: Called a few times per second; what it raises ends the program.
        cwd: Its working directory.

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
                cwd=cwd,
                start_new_session=True,  # so that a signal reaches what it starts, too
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise BadInputError(f"cannot run {command[0]!r}: {reason}") from None
        try:
            _wait(process, limit_s, check)
        except subprocess.TimeoutExpired:
            said = Ended(0, _tail(log), 0, 0).last_complaint()
            raise TimedOutError(
                f"{_named(command)} did not end within {limit_s:g} s and was ended (--time-limit gives it more)"
                + (f"; the last that it said: {said}" if said else "")
            ) from None
        finally:
            _end(process)
    return Ended(process.returncode, _tail(log), start_ns, time.time_ns())


def _named(command: Sequence[str]) -> str:
    """The program that a command runs, past the ``env`` that sets variables for it."""
    words = [word for word in command[1:] if "=" not in word] if command[0] == "env" else command
    return Path(words[0]).name


def _wait(process: subprocess.Popen[bytes], limit_s: float, check: Callable[[], None] | None) -> None:
    deadline = time.monotonic() + limit_s
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise subprocess.TimeoutExpired(process.args, limit_s)
        try:
            process.wait(timeout=min(TICK_S, left))
            return
        except subprocess.TimeoutExpired:
            if check is not None:
                check()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program that still runs, and whatever it has left behind."""
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
