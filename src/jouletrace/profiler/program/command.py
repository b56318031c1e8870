"""A command that is recorded: what it starts in Python traces itself, all else is known by its power."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.profiler.program.script import Script

_PASSED_ON = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2") if hasattr(signal, name)
)


@dataclass(frozen=True)
class Command:
    """A program of any language with its arguments.

    Attributes:
        target: Path of the executable.
        arguments: Its arguments.
    """

    target: str
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the Run is called: the command, or the first script among its arguments."""
        scripts = [word for word in self.arguments if word.endswith(".py")]
        return Path(scripts[0] if scripts else self.target).name

    def check(self) -> None:
        """Its executable is known to exist."""

    def run(self, ends: bool = False) -> int:
        """Run it to its end; returns its exit code, 128 more than the number of a signal that ended it.

        Raises:
            BadInputError: If it can't be started.
        """
        process: subprocess.Popen[bytes] | None = None
        early: list[int] = []

        def pass_on(number: int, _frame: object) -> None:
            if process is None:
                early.append(number)
            elif number != signal.SIGINT or not _at_terminal():  # which has sent it to the command, too
                _send(process, number)

        with ExitStack() as stack:
            for number in _PASSED_ON:
                stack.callback(signal.signal, number, signal.signal(number, pass_on))
            try:
                process = subprocess.Popen([self.target, *self.arguments])
            except OSError as error:
                raise BadInputError(f"run {self.target}: {error.strerror or error}") from None
            for number in early:
                _send(process, number)
            code = process.wait()
            return code if code >= 0 else 128 - code


def _at_terminal() -> bool:
    """Whether keys of a terminal reach this process and those that it starts."""
    try:
        with open("/dev/tty", "rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def _send(process: subprocess.Popen[Any], number: int) -> None:
    with suppress(OSError):
        process.send_signal(number)


def program_of(arguments: Sequence[str], module: bool) -> Script | Command:
    """The program of a command line: a script of Python runs in this process, everything else is a command.

    Raises:
        BadInputError: If none is named.
    """
    if not arguments:
        raise BadInputError("run: name " + ("a module" if module else "a script, a command, or -m MODULE"))
    target, rest = arguments[0], tuple(arguments[1:])
    if module:
        return Script(target, rest, module)
    there = Path(target)
    hides = there.is_dir() and os.sep not in target and not (there / "__main__.py").is_file()
    if there.exists() and not (hides and shutil.which(target)):  # a folder with the name of a command
        foreign = there.is_file() and os.access(there, os.X_OK) and not _python(there)
        return Command(str(there.absolute()), rest) if foreign else Script(target, rest)
    found = shutil.which(target)
    if found is None:
        return Script(target, rest)  # which says what is missing
    return Script(found, rest) if _python(Path(found)) else Command(found, rest)


def _python(path: Path) -> bool:
    """Whether this Python runs a file: by its suffix, its first line, or as an archive of modules."""
    if path.suffix in (".py", ".pyc", ".pyw", ".pyz", ".zip"):
        return True
    try:
        with path.open("rb") as file:
            first = file.readline(256)
    except OSError:
        return False
    return first.startswith(b"PK") or (first.startswith(b"#!") and _is_this_python(os.fsdecode(first[2:]).split()))


def _is_this_python(interpreter: Sequence[str]) -> bool:
    """Whether a first line names the Python that runs this, without options; another one runs as a command."""
    if interpreter and Path(interpreter[0]).name == "env":
        interpreter = interpreter[1:]
    found = shutil.which(interpreter[0]) if len(interpreter) == 1 else None
    return (
        found is not None and os.path.realpath(found) == os.path.realpath(sys.executable) and _has_our_packages(found)
    )


def _has_our_packages(python: str) -> bool:
    """Whether a Python has the packages of this one: the same environment, if it is of one."""
    folder = Path(python).parent.parent
    return not (folder / "pyvenv.cfg").exists() or folder.resolve() == Path(sys.prefix).resolve()
