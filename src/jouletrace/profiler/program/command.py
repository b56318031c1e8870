"""The command that is recorded: a script or module of Python, or any executable, as the shell would start it."""

from __future__ import annotations

import errno
import importlib.util
import os
import pkgutil
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from importlib.util import MAGIC_NUMBER
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.run.files import near

_PYTHON = (".py", ".pyc", ".pyw", ".pyz", ".zip")
"""Endings of what Python runs, and never the system."""

_SHELLS = (".sh", ".bash", ".zsh", ".ksh")
"""Endings of scripts of shells."""

_SHELL = "/bin/sh"

_LONGEST_LINE = 4096
"""Bytes of the first line of a script that are looked at."""


def _inherited() -> tuple[int, ...]:
    """Descriptors that the shell has opened for the program, beside its three streams."""
    variables = []
    with suppress(OSError):
        for name in os.listdir("/dev/fd"):
            with suppress(OSError):  # that of the folder itself has gone
                if int(name) > 2 and os.get_inheritable(int(name)):
                    variables.append(int(name))
    return tuple(variables)


@dataclass(frozen=True)
class ProgramCommand:
    """A program with its arguments, and with what the shell has given it: made before this process changes its own.

    Attributes:
        target: Path of a script, a folder, a zip or an executable, or a name that is looked up in PATH or as a module.
        arguments: Its arguments.
        python: Arguments of the Python that runs it, itself the first; empty for an executable.
        executable: The file that is started, where the first word isn't its path.
        context: Whether a Run states its arguments and the commit of its folder.
    """

    target: str
    arguments: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    executable: str | None = None
    context: bool = True
    _variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), init=False, repr=False)
    _descriptors: tuple[int, ...] = field(default_factory=_inherited, init=False, repr=False)

    @property
    def name(self) -> str:
        """The name of the Run: the script, which a launcher (torchrun) has among its arguments, or the module."""
        if self.python[1:]:
            return self.target
        scripts = [word for word in (self.target, *self.arguments) if word.endswith(".py")]
        return Path(self.target if self.target.endswith(_PYTHON) or not scripts else scripts[0]).absolute().name

    @property
    def stated(self) -> tuple[str, ...]:
        """The target with the arguments that a Run states."""
        return (self.target, *(self.arguments if self.context else ()))

    @property
    def left_out(self) -> int:
        """How many arguments a Run doesn't state."""
        return 1 + len(self.arguments) - len(self.stated)

    def check(self) -> None:
        """Refuse what Python couldn't run, before anything is recorded; none of it is run or imported.

        Raises:
            BadInputError: If the script is missing, unreadable or no valid Python, or the module isn't there.
        """
        if self.python[1:]:
            self._check_module()
        elif self.python and pkgutil.get_importer(self.target) is None:
            self._check_file()
        elif self.python and Path(self.target).is_dir() and not (Path(self.target) / "__main__.py").is_file():
            raise BadInputError(f"run {self.target}: a folder without a __main__.py")

    def _check_module(self) -> None:
        top = self.target.partition(".")[0]  # to look further would import the package
        sys.path.insert(0, os.getcwd())
        try:
            spec: object = importlib.util.find_spec(top)
        except ImportError:  # Python says it
            return
        except ValueError as error:
            raise BadInputError(f"run -m {self.target}: {error}") from None
        finally:
            sys.path.pop(0)
        if spec is None:
            raise BadInputError(f"run -m {self.target}: no module of that name can be imported from here")

    def _check_file(self) -> None:
        path = Path(self.target)
        if path.exists() and not path.is_file():  # a pipe can be read once
            return
        if path.exists() and path.suffix in _SHELLS:  # some lines of a shell are Python, too
            raise BadInputError(f"run {self.target}: not executable{self._another()}")
        try:
            with path.open("rb") as opened, warnings.catch_warnings(), suppress(RecursionError, MemoryError):
                warnings.simplefilter("ignore")  # Python prints them
                if opened.read(len(MAGIC_NUMBER)) == MAGIC_NUMBER:
                    SourcelessFileLoader("__main__", self.target).get_code("__main__")
                else:
                    SourceFileLoader("__main__", self.target).source_to_code(path.read_bytes(), self.target)
        except OSError as error:
            raise BadInputError(f"run {self.target}: {error.strerror or error}{near(self.target, '*.py')}") from None
        except (SyntaxError, ValueError, ImportError, EOFError) as error:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            said = error.msg if isinstance(error, SyntaxError) else error
            raise BadInputError(f"run {self.target}{line}: not valid Python ({said}){self._another()}") from None

    def _another(self) -> str:
        """Advice on a script of another language that isn't executable; "" for all else."""
        path = Path(self.target)
        if path.suffix in _PYTHON:
            return ""
        by = path.suffix[1:] if path.suffix in _SHELLS else "" if path.suffix else "sh"
        with suppress(OSError), path.open("rb") as file:
            first = file.readline(200).strip()
            if first.startswith(b"#!"):
                by = "" if b"python" in first else first[2:].decode(errors="replace").strip()
        if not by:
            return ""
        name = shlex.quote(self.target)
        return f"; to run it by {by}, make it executable: chmod +x {name}, or write: run {by} {name}"

    def start(self, environment: Mapping[str, str], stdout: int | None = None) -> subprocess.Popen[bytes]:
        """Start it in a process of its own, with these variables added to its environment.

        Its output goes to the descriptor ``stdout``, or to ours.

        Raises:
            BadInputError: If it can't be started.
        """
        words, file = [*self.python, self.target, *self.arguments], self.executable
        try:
            try:
                return self._popen(words, file, environment, stdout)
            except OSError as error:
                path = file or shutil.which(self.target) or self.target
                if error.errno != errno.ENOEXEC or not _is_text(path):
                    raise
                return self._popen([_SHELL, path, *self.arguments], None, environment, stdout)  # as a shell would
        except (OSError, ValueError) as error:  # ValueError: a null byte in a word
            raise BadInputError(f"run {self.target}: {getattr(error, 'strerror', None) or error}") from None

    def _popen(
        self, words: Sequence[str], executable: str | None, environment: Mapping[str, str], stdout: int | None
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            words,
            executable=executable,
            env={**self._variables, **environment},
            pass_fds=self._descriptors,
            stdout=stdout,
        )


def program_of(arguments: Sequence[str], module: bool) -> ProgramCommand:
    """The program of a command line: what isn't executable runs by this Python, as does what is named like a script.

    Raises:
        BadInputError: If none is named.
    """
    if not arguments:
        raise BadInputError("run: name " + ("a module" if module else "a script, a command, or -m MODULE"))
    target, rest = arguments[0], tuple(arguments[1:])
    if module:
        return ProgramCommand(target, rest, (sys.executable, "-m"))
    there = Path(target)
    hides = there.is_dir() and os.sep not in target and not (there / "__main__.py").is_file()
    if there.exists() and not (hides and shutil.which(target)):  # a folder with the name of a command
        if there.is_file() and os.access(there, os.X_OK) and not _is_python(there):
            return ProgramCommand(
                target, rest, executable=target if os.sep in target else os.path.join(os.curdir, target)
            )
    elif (executable := shutil.which(target)) is not None and not _is_python(Path(executable)):
        return ProgramCommand(target, rest)
    elif executable is not None:
        target = executable
    return ProgramCommand(
        os.path.join(os.curdir, target) if target.startswith("-") else target, rest, (sys.executable,)
    )


def _is_text(path: str) -> bool:
    """True if a file begins with a line of text, as the scripts of shells do."""
    with suppress(OSError), Path(path).open("rb") as file:
        return b"\0" not in file.readline(_LONGEST_LINE)
    return False


def _is_python(path: Path) -> bool:
    """True if a file is for Python alone: by its name, or as an archive of modules that doesn't name its Python."""
    if path.suffix in _PYTHON:
        return True
    try:
        with path.open("rb") as file:
            return file.read(2) == b"PK"
    except OSError:
        return False
